"""Clipped gradients of a two-layer KAN without autograd and without gradients of single examples.

With pull_i = l'(y_i f(x_i)) y_i, an example's gradients are the outer product of s and Φ(x) for the first
layer, and all h(u_j) for the second, times pull_i. So both norms come from one forward pass, each example's
weight from its norms, and the weighted sums are one matrix product and one pass over the hidden values: the
first layer's spline features are those of the fixed inputs, and the second layer's splines are piecewise
polynomials whose sums are collected power by power.
"""

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import softplus

from antiphon.checks import positive
from antiphon.errors import PlanError
from antiphon.numerics import spline_pieces
from antiphon_papers.common import fixed_kernels
from antiphon_papers.common.fixed_inputs import FixedInputs
from antiphon_papers.common.two_layer_kan import TwoLayerKAN

__all__ = ["ClosedForm", "ClosedSums"]

_Array = NDArray[Any]
# Roundings by which examples are clipped below the bound, so that none is longer; those of sums over units
# are in double, and one for each unit comes on top.
_MARGIN = 25
_CHUNK = 1024  # rows whose sums are taken in the model's precision; sums of those, in double


@final
@dataclass(frozen=True, eq=False)
class ClosedSums:
    """Sums over examples, in the shapes of the model's coefficients.

    Attributes:
        first: Weighted gradients of the first layer; None if it is frozen.
        second: Weighted gradients of the second layer; None if it is frozen.
        margins: y f of each example: statistics of the data, not private.
        norms: Norm of each example's gradient before clipping; not private either.
    """

    first: Tensor | None
    second: Tensor | None
    margins: Tensor
    norms: Tensor

    @property
    def losses(self) -> Tensor:
        """Loss of each example; not private."""
        return softplus(-self.margins)


@final
class ClosedForm:
    """Gradients of the logistic loss of a `TwoLayerKAN` on data that stay the same.

    Args:
        model: On the CPU, float32 or float64. Its coefficients are read at every call; those with
            ``requires_grad`` are trained.
        x: Inputs, one row per example; outside of [-1, 1] they count as the nearest end.
        y: Labels, -1 or +1.
        background: A value that most inputs have, such as that of the empty pixels of images, or one for
            each column, where NaN is none. Declared, not looked for: it makes products faster, and changes
            the last digits of every example.

    Guarantee:
        With a clip norm, no example's contribution to (first, second) together is longer: examples are
        clipped a little below it, which makes up for rounding. An example with a NaN among its inputs, or
        whose loss or gradient is not finite, contributes zero. Sums of more than a thousand examples are
        taken in double, so that one record hardly changes how others are rounded; that it changes it not
        at all is not claimed.

    Example:
        >>> model = TwoLayerKAN(2, 4, train="both")
        >>> sums = ClosedForm(model, torch.zeros(3, 2), torch.ones(3)).sums(clip_norm=0.1)
        >>> sums.first.shape, bool(sums.first.norm() <= 0.3)
        (torch.Size([4, 16]), True)
    """

    def __init__(
        self, model: TwoLayerKAN, x: Any, y: Any, *, background: ArrayLike | None = None
    ) -> None:
        self.model = model
        dtype = model.first.coef.dtype
        if dtype not in (torch.float32, torch.float64) or model.first.coef.device.type != "cpu":
            raise PlanError(
                "the closed form runs on the CPU in float32 or float64; got a model in "
                f"{dtype} on {model.first.coef.device}. Move it with model.cpu().float()."
            )
        inputs = _rows(x, model.first.in_features, dtype)
        self.signs = _signs(y, len(inputs), inputs.dtype)
        self.inputs = FixedInputs(
            inputs, model.first.splines, model.first.out_features, background=background
        )
        table, grid = spline_pieces(model.second.splines.degree), model.second.splines
        # From coefficients to pieces, [interval, power of the place] of each: and back, to their sums.
        pieces = np.zeros((grid.size, grid.intervals, table.shape[1]))
        for k in range(grid.intervals):
            pieces[k : k + len(table), k] = table
        self._pieces = pieces.reshape(grid.size, -1)
        # ‖h(u)‖² is one polynomial of the place, the same in all intervals.
        squares = sum((np.convolve(row, row) for row in table), np.zeros(2 * table.shape[1] - 1))
        self._squares = squares.astype(inputs.dtype)
        self._memory = torch.empty(0, dtype=dtype)  # of a batch, kept between steps

    @property
    def n(self) -> int:
        """Number of examples."""
        return self.inputs.n

    def sums(self, rows: Any = None, clip_norm: float = math.inf) -> ClosedSums:
        """Weighted sums of gradients over all examples, or over the given rows.

        Args:
            rows: Indices, none of them twice.
            clip_norm: Bound on the norm of one example's gradient; infinite for none.
        """
        chosen = None if rows is None else np.asarray(rows, np.intp)
        if clip_norm != math.inf:
            _check_range(positive("clip_norm", clip_norm), self._squares.dtype)
        first, second = (part.coef for part in (self.model.first, self.model.second))
        products, root = self.inputs.select(chosen, self._memory), math.sqrt(self.inputs.d)
        u = products.times(first.detach().numpy())
        getattr(torch, self.model.activation + "_")(torch.from_numpy(u).div_(root))
        moments, found = self._weigh(u, chosen, clip_norm)
        u *= u.dtype.type(1 / root)
        return ClosedSums(
            torch.from_numpy(products.weighted(u)) if first.requires_grad else None,
            torch.from_numpy(self._collect(moments)) if second.requires_grad else None,
            *torch.from_numpy(found).unbind(1),
        )

    def _weigh(self, u: _Array, rows: Any, clip_norm: float) -> tuple[_Array, _Array]:
        """Turns hidden values into weighted slopes, in place; returns moments, margins and norms."""
        model, grid, m = self.model, self.model.second.splines, u.shape[1]
        coef = model.second.coef.detach().numpy().reshape(m, -1)
        with np.errstate(
            invalid="ignore"
        ):  # of coefficients that are not finite: they count as zero
            pieces = (coef @ self._pieces.astype(u.dtype)).reshape(m, grid.intervals, -1)
        every: Any = slice(None) if rows is None else rows
        of = [part[every] for part in (self.signs, self.inputs.void, self.inputs.squares)]
        margin = _MARGIN * float(np.finfo(u.dtype).eps) + m * float(np.finfo(np.float64).eps)
        sizes = (
            float(clip_norm) * (1 - margin),
            math.sqrt(m),
            1.0 / self.inputs.d if model.first.coef.requires_grad else 0.0,
            model.second.coef.requires_grad,
        )
        numbers = (u.dtype.type(grid.low), u.dtype.type(1 / grid.spacing))
        found, total = np.empty((len(u), 2), u.dtype), np.zeros(pieces.shape, np.float64)
        for begin in range(0, len(u), _CHUNK):
            part, moments = slice(begin, begin + _CHUNK), np.zeros_like(pieces)
            fixed_kernels.hidden(
                u[part],
                *(values[part] for values in of),
                model.activation == "tanh",
                *numbers,
                pieces,
                self._squares,
                sizes,
                moments,
                found[part],
            )
            total += moments
        return total, found

    def _collect(self, moments: _Array) -> _Array:
        """Sums of weighted spline values, from sums of weighted powers: shape (1, m p)."""
        sums = moments.reshape(len(moments), -1) @ self._pieces.T
        return sums.reshape(1, -1).astype(self._squares.dtype)


def _check_range(clip_norm: float, dtype: Any) -> None:
    """Far from where numbers of this type lose their digits or end."""
    kind = np.finfo(dtype)
    low, high = float(kind.tiny / kind.eps), float(kind.max) * float(kind.eps)
    if not low <= clip_norm <= high:
        raise PlanError(
            f"in {kind.dtype} the clip norm must be between {low:.1g} and {high:.1g}; got {clip_norm:g}. "
            "Scale the loss, or use a model in double precision."
        )


def _rows(x: Any, d: int, dtype: torch.dtype) -> _Array:
    inputs: _Array = torch.as_tensor(x).detach().to("cpu", dtype).numpy()
    if inputs.ndim != 2 or inputs.shape[1] != d or not len(inputs):
        raise PlanError(f"inputs must have shape (n, {d}) with n >= 1; got {inputs.shape}.")
    return inputs


def _signs(y: Any, n: int, dtype: Any) -> _Array:
    signs = torch.as_tensor(y).detach().to("cpu", torch.float64).numpy()
    if signs.shape != (n,):
        raise PlanError(f"there must be one label per row, {n}; got shape {signs.shape}.")
    if not (np.abs(signs) == 1).all():
        raise PlanError("labels must be -1 or +1. Of labels 0 and 1, take 2 * y - 1.")
    return signs.astype(dtype)
