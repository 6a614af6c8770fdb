"""How the layers of `torch.nn` turn what went in and the gradient of what came out into factors.

A rule takes a layer, its input and the gradient of its output, both with the batch first, and returns the
factors of the layer's own parameters by name. It holds for the class's own ``forward`` only: a subclass
that computes something else goes to `antiphon.training.fallback`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from antiphon.training.convolution import Convolution
from antiphon.training.factors import AbstractFactor, Dense, Lookups, Outer, at_least_single

__all__ = ["Factors", "Rule", "matrix", "rule_for"]

Factors = dict[str, AbstractFactor]
Rule = Callable[[Any, Tensor, Tensor], Factors]


def _linear(layer: nn.Linear, x: Tensor, g: Tensor) -> Factors:
    factors = matrix("weight", layer.weight, x, g)
    weight = factors["weight"]
    if layer.bias is not None and g.ndim == 2 and isinstance(weight, Outer):
        return factors | {"bias": Dense(g, twin=weight)}
    return factors | _bias(layer, g, channel=-1)


def matrix(name: str, weight: Tensor, x: Tensor, g: Tensor) -> Factors:
    """The factor of a matrix applied to the last axis of ``x``."""
    rows = len(x)
    left, right = x.reshape(rows, -1, x.shape[-1]), g.reshape(rows, -1, g.shape[-1])
    return {name: Outer(left, right, weight.shape)}


def _convolution(layer: Any, x: Tensor, g: Tensor) -> Factors:
    return {"weight": Convolution(layer, x, g)} | _bias(layer, g, channel=1)


def _embedding(layer: nn.Embedding, index: Tensor, g: Tensor) -> Factors:
    rows = len(index)
    flat, right = index.reshape(rows, -1), g.reshape(rows, -1, g.shape[-1])
    if layer.padding_idx is not None:
        right = right * (flat != layer.padding_idx)[..., None]
    return {"weight": Lookups(flat, right, layer.num_embeddings)}


def _layer_norm(layer: nn.LayerNorm, x: Tensor, g: Tensor) -> Factors:
    normal = F.layer_norm(at_least_single(x), layer.normalized_shape, eps=layer.eps)
    return _affine(layer, normal, at_least_single(g), shape=layer.normalized_shape)


def _rms_norm(layer: nn.RMSNorm, x: Tensor, g: Tensor) -> Factors:
    normal = F.rms_norm(at_least_single(x), layer.normalized_shape, eps=layer.eps)
    return _affine(layer, normal, at_least_single(g), shape=layer.normalized_shape)


def _group_norm(layer: nn.GroupNorm, x: Tensor, g: Tensor) -> Factors:
    normal = F.group_norm(at_least_single(x), layer.num_groups, eps=layer.eps)
    return _per_channel(layer, normal, at_least_single(g))


def _instance_norm(layer: Any, x: Tensor, g: Tensor) -> Factors:
    return _per_channel(
        layer, F.instance_norm(at_least_single(x), eps=layer.eps), at_least_single(g)
    )


def _prelu(layer: nn.PReLU, x: Tensor, g: Tensor) -> Factors:
    below = torch.clamp(at_least_single(x), max=0.0) * at_least_single(g)
    if layer.num_parameters > 1:
        return {"weight": Dense(_over_places(below))}
    return {"weight": Dense(below.flatten(1).sum(1, keepdim=True))}


def _affine(layer: Any, normal: Tensor, g: Tensor, shape: tuple[int, ...]) -> Factors:
    """Scale and shift of the last axes."""
    rows = len(g)
    factors: Factors = {}
    if layer.weight is not None:
        factors["weight"] = Dense((normal * g).reshape(rows, -1, *shape).sum(1))
    if getattr(layer, "bias", None) is not None:
        factors["bias"] = Dense(g.reshape(rows, -1, *shape).sum(1))
    return factors


def _per_channel(layer: Any, normal: Tensor, g: Tensor) -> Factors:
    """Scale and shift of the second axis."""
    factors: Factors = {}
    if layer.weight is not None:
        factors["weight"] = Dense(_over_places(normal * g))
    if layer.bias is not None:
        factors["bias"] = Dense(_over_places(g))
    return factors


def _over_places(values: Tensor) -> Tensor:
    return values.flatten(2).sum(2) if values.ndim > 2 else values


def _bias(layer: Any, g: Tensor, channel: int) -> Factors:
    if layer.bias is None:
        return {}
    single = at_least_single(g)
    return {"bias": Dense(_over_places(single.movedim(channel, 1)))}


_RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Conv3d: _convolution,
    nn.Embedding: _embedding,
    nn.LayerNorm: _layer_norm,
    nn.RMSNorm: _rms_norm,
    nn.GroupNorm: _group_norm,
    nn.InstanceNorm1d: _instance_norm,
    nn.InstanceNorm2d: _instance_norm,
    nn.InstanceNorm3d: _instance_norm,
    nn.PReLU: _prelu,
}

_METHODS = ("forward", "_conv_forward", "_apply_instance_norm", "_forward_impl")


def rule_for(layer: nn.Module) -> Rule | None:
    """The layer's rule, if it computes what its class does with the parameters its class has."""
    names = {name for name, _ in layer.named_parameters(recurse=False)}
    if not names <= {"weight", "bias"} or "forward" in vars(layer):
        return None
    for kind, rule in _RULES.items():
        if isinstance(layer, kind):
            same = all(getattr(type(layer), m, None) is getattr(kind, m, None) for m in _METHODS)
            return rule if same else None
    return None
