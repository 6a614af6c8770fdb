"""The clipped sum, one example at a time: plain autograd on a batch of one row, in float64."""

import copy
import math

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map


def row_losses(output, scales: Tensor) -> Tensor:
    """One loss per row that uses all that came out; ``scales`` makes small and large gradients."""
    leaves = [t for t in tree_leaves(output) if isinstance(t, Tensor) and t.is_floating_point()]
    flat = [t.to(scales.dtype).reshape(len(scales), -1) for t in leaves]
    squares = [(t - torch.arange(t.shape[1]).mul(1.7).sin().to(t)).square().sum(1) for t in flat]
    return scales * torch.stack(squares).sum(0)


def scales_of(rows: int, dtype=torch.float32) -> Tensor:
    return torch.logspace(-3, 1, rows, dtype=torch.float64).to(dtype)


def as_double(tree):
    return tree_map(
        lambda t: t.double() if isinstance(t, Tensor) and t.is_floating_point() else t, tree
    )


def naive_gradients(model: nn.Module, args, kwargs, rows: int, loss=row_losses, scales=None):
    """Every example's gradient, by parameter name: a list of dictionaries."""
    if scales is None:
        scales = scales_of(rows, torch.float64)
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}

    def row(tree, i):
        has_rows = lambda t: isinstance(t, Tensor) and t.ndim and len(t) == rows  # noqa: E731
        return tree_map(lambda t: t[i : i + 1] if has_rows(t) else t, tree)

    found = []
    for i in range(rows):
        out = model(*row(args, i), **row(kwargs, i))
        total = loss(out, scales[i : i + 1]).sum()
        grads = torch.autograd.grad(total, list(named.values()), allow_unused=True)
        zeros = [torch.zeros_like(p) if g is None else g for p, g in zip(named.values(), grads)]  # noqa: B905
        found.append({n: g.double() for n, g in zip(named, zeros, strict=True)})
    return found


def clip(gradient: dict[str, Tensor], rule: str, clip_norm: float) -> dict[str, Tensor]:
    layers = {name.rpartition(".")[0] for name in gradient}
    parts = [{name} for name in [""]] if rule != "per-layer" else [{layer} for layer in layers]
    bound = clip_norm / math.sqrt(len(parts))
    out = {}
    for part in parts:
        mine = {
            n: g for n, g in gradient.items() if rule != "per-layer" or n.rpartition(".")[0] in part
        }
        norm = math.sqrt(sum(float(g.square().sum()) for g in mine.values()))
        factor = (
            bound / (norm + 0.01) if rule == "automatic" else min(1.0, bound / max(norm, 1e-300))
        )
        out |= {n: g * factor for n, g in mine.items()}
    return out


def naive_sum(gradients, rule: str = "flat", clip_norm: float = 1.0, users=None):
    """Clip every unit's (mean) gradient and add them up."""
    users = list(range(len(gradients))) if users is None else users
    total = {n: torch.zeros_like(g) for n, g in gradients[0].items()}
    for user in set(users):
        mine = [g for g, u in zip(gradients, users, strict=True) if u == user]
        mean = {n: torch.stack([g[n] for g in mine]).mean(0) for n in total}
        if all(bool(torch.isfinite(g).all()) for g in mean.values()):
            for n, g in clip(mean, rule, clip_norm).items():
                total[n] += g
    return total


def double_model(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model).double()
