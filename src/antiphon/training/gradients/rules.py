"""Calls whose per-example gradients are known in factors: linear maps, convolutions, tables.

A rule is given the taps and the arguments of a call of torch that reads a trained parameter. It computes
the call for all examples at once, row by row of the input, so that no example meets another. It returns
``NotImplemented`` for arguments of which it does not know the factors: then the parameter gets a tap of
its own.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from antiphon.training.gradients.abstract_factor import AbstractFactor
from antiphon.training.gradients.attention import linear_rows
from antiphon.training.gradients.bags import check_options
from antiphon.training.gradients.convolution import Convolution, Geometry
from antiphon.training.gradients.factors import Dense, Rows
from antiphon.training.gradients.lookups import Lookups
from antiphon.training.gradients.norms import at_least_single
from antiphon.training.gradients.outer import Outer

if TYPE_CHECKING:
    from antiphon.training.gradients.taps import Taps

__all__ = ["RULES"]

Factors = dict[nn.Parameter, AbstractFactor]
Stretch = tuple[int, int]  # of a weight's rows


def _linear(taps: "Taps", x: Any, weight: Any, bias: Any = None) -> Any:
    if (turned := taps.transposed(weight)) is not None:
        return _times(taps, "F.linear", x, turned, bias)
    if not taps.is_trained(weight) or weight.ndim != 2:
        return NotImplemented
    return _map(taps, "F.linear", x, weight, bias, None)


def _linear_rows(taps: "Taps", x: Any, weight: Any, bias: Any, start: int, stop: int) -> Any:
    """Rows of a packed weight, as attention uses them."""
    if not taps.is_trained(weight):
        return NotImplemented
    return _map(taps, "attention", x, weight, bias, (start, stop))


def _map(taps: "Taps", name: str, x: Any, weight: Any, bias: Any, rows: Stretch | None) -> Any:
    """The map x · weightᵀ + bias over the last axis of x, with some rows of the weight."""
    x = taps.tapped(x) if taps.is_trained(x) else x
    if not _is_usable(taps, x, weight, bias) or x.ndim < 1 or not _fits(bias, len(weight)):
        return NotImplemented
    w, b = _of(taps, weight), _of(taps, bias)
    if rows is not None:
        part = slice(*rows)
        w, b = w[part], None if b is None else b[part]

    def compute(x: Tensor) -> tuple[Tensor, Tensor]:
        flat = F.linear(x.reshape(-1, x.shape[-1]), w, b)
        return flat, flat.view(*x.shape[:-1], flat.shape[-1])

    def factors(x: Tensor, g: Tensor) -> Factors:
        left = x.reshape(len(x), -1, x.shape[-1])
        right = g.reshape(len(x), -1, g.shape[-1])
        found: Factors = {}
        if taps.is_trained(weight):
            outer = Outer(left, right, w.shape)
            found[weight] = outer if rows is None else Rows({rows: outer}, weight.shape)
        if taps.is_trained(bias):
            total = _bias_of(right, found.get(weight))
            found[bias] = total if rows is None else Rows({rows: total}, bias.shape)
        return found

    return taps.catch(name, x, compute, factors)


def _bias_of(right: Tensor, weight: AbstractFactor | None) -> Dense:
    if right.shape[1] == 1:
        return Dense(right[:, 0], twin=weight if isinstance(weight, Outer) else None)
    return Dense(at_least_single(right).sum(1))


def _product(taps: "Taps", x: Any, weight: Any, *rest: Any, **named: Any) -> Any:
    """The product x @ weight."""
    if rest or named:
        return NotImplemented
    if (turned := taps.transposed(weight)) is not None:
        return _map(taps, "a matrix product", x, turned, None, None)
    if not taps.is_trained(weight) or weight.ndim != 2:
        return NotImplemented
    return _times(taps, "a matrix product", x, weight, None)


def _sum_and_product(
    taps: "Taps", bias: Any, x: Any, weight: Any, *, beta: float = 1, alpha: float = 1
) -> Any:
    """The sum bias + x @ weight."""
    is_plain = beta == 1 == alpha and isinstance(bias, Tensor) and bias.ndim == 1
    if not is_plain:
        return NotImplemented
    if (turned := taps.transposed(weight)) is not None:
        return _map(taps, "torch.addmm", x, turned, bias, None)
    if not taps.is_trained(weight):
        return NotImplemented
    return _times(taps, "torch.addmm", x, weight, bias)


def _times(taps: "Taps", name: str, x: Any, weight: nn.Parameter, bias: Any) -> Any:
    x = taps.tapped(x) if taps.is_trained(x) else x
    if not isinstance(x, Tensor) or not _is_usable(taps, x, weight, bias) or x.ndim < 1:
        return NotImplemented
    if not _fits(bias, weight.shape[1]):
        return NotImplemented
    w, b = _of(taps, weight), _of(taps, bias)

    def compute(x: Tensor) -> tuple[Tensor, Tensor]:
        rows = x.reshape(-1, x.shape[-1])
        flat = rows @ w if b is None else torch.addmm(b, rows, w)
        return flat, flat.view(*x.shape[:-1], flat.shape[-1])

    def factors(x: Tensor, g: Tensor) -> Factors:
        left = x.reshape(len(x), -1, x.shape[-1])
        right = g.reshape(len(x), -1, g.shape[-1])
        found: Factors = {weight: Outer(right, left, weight.shape)}
        return found | ({bias: _bias_of(right, None)} if taps.is_trained(bias) else {})

    return taps.catch(name, x, compute, factors)


def _embedding(
    taps: "Taps",
    index: Any,
    weight: Any,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    check_options("F.embedding", max_norm, scale_grad_by_freq, sparse)
    if not taps.is_trained(weight) or not _is_usable(taps, index, weight, None):
        return NotImplemented
    table, lines = _of(taps, weight), len(weight)
    padding = None if padding_idx is None else padding_idx % lines

    def compute(index: Tensor) -> tuple[Tensor, Tensor]:
        flat = F.embedding(index.reshape(-1), table)
        return flat, flat.view(*index.shape, table.shape[1])

    def factors(index: Tensor, g: Tensor) -> Factors:
        flat, right = index.reshape(len(index), -1), g.reshape(len(index), -1, g.shape[-1])
        if padding is not None:
            right = right * (flat != padding)[..., None]
        return {weight: Lookups(flat, right, lines)}

    return taps.catch("F.embedding", index, compute, factors)


def _convolution(dims: int) -> Callable[..., Any]:
    def convolution(
        taps: "Taps", x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1,
    ) -> Any:  # fmt: skip
        if not taps.is_trained(weight) or not _is_usable(taps, x, weight, bias):
            return NotImplemented
        if x.ndim not in (dims + 1, dims + 2) or taps.is_trained(x):
            return NotImplemented
        geometry = Geometry.of(weight, stride, padding, dilation, groups)
        w, b, has_rows = _of(taps, weight), _of(taps, bias), x.ndim == dims + 2

        def compute(x: Tensor) -> tuple[Tensor, Tensor]:
            images = x.flatten(0, 1) if has_rows else x
            flat = geometry.convolve(images, w, b)
            out = flat.view(*x.shape[:2], *flat.shape[1:]) if has_rows else flat
            return flat, out

        def factors(x: Tensor, g: Tensor) -> Factors:
            images = x.flatten(0, 1) if has_rows else x
            found: Factors = {weight: _summed(Convolution(geometry, images, g), len(x))}
            if taps.is_trained(bias):
                total = at_least_single(g).flatten(2).sum(2)
                found[bias] = Dense(total.view(len(x), -1, len(bias)).sum(1))
            return found

        return taps.catch(f"F.conv{dims}d", x, compute, factors)

    return convolution


def _summed(convolution: Convolution, examples: int) -> AbstractFactor:
    """The gradients of examples that have several images each."""
    if convolution.rows == examples:
        return convolution
    dense = convolution.dense()
    return Dense(dense.view(examples, -1, *dense.shape[1:]).sum(1))


def _is_usable(taps: "Taps", x: Any, weight: nn.Parameter, bias: Any) -> bool:
    """Whether the input belongs to the examples' vmap, and the bias to all examples."""
    if not isinstance(x, Tensor) or not taps.is_plain(x) or taps.transposed(x) is not None:
        return False
    if bias is None or taps.is_trained(bias):
        return bias is None or bias.ndim == 1
    return taps.is_plain(bias) and taps.rows(bias) is None


def _fits(bias: Any, outputs: int) -> bool:
    """Whether a bias has a number for every output: torch spreads shorter ones."""
    return bias is None or len(bias) == outputs


def _of(taps: "Taps", parameter: Any) -> Any:
    return taps.alias(parameter) if taps.is_trained(parameter) else parameter


RULES: dict[Callable[..., Any], Callable[..., Any]] = {
    F.linear: _linear,
    linear_rows: _linear_rows,
    F.embedding: _embedding,
    torch.addmm: _sum_and_product,
    torch.conv1d: _convolution(1),
    torch.conv2d: _convolution(2),
    torch.conv3d: _convolution(3),
    **dict.fromkeys(
        (torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__), _product
    ),
}
