"""Clipped gradients of a two-layer CNN without autograd and without gradients of single examples.

With z_ip = W x_ip, a_ip = σ'(z_ip), signs J and pull_i = l'(y_i f(x_i)), an example's gradient is
pull_i y_i (J/m) ∘ Σ_p a_ip ⊗ x_ip, and its squared norm (pull_i/m)² Σ_pp' ⟨x_ip, x_ip'⟩ ⟨a_ip, a_ip'⟩. So
one matrix product gives all norms, and a second one the weighted sum.
"""

import math
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor
from torch.nn.functional import softplus

from antiphon.checks import positive
from antiphon.errors import PlanError
from antiphon_papers.cnn.two_layer_cnn import TwoLayerCNN

__all__ = ["PatchForm", "PatchSums"]

_MARGIN = 25  # roundings by which examples are clipped below the bound, so that none is longer
_CHUNK = 4096  # records whose products are formed in float64 at once


@final
@dataclass(frozen=True, eq=False)
class PatchSums:
    """Sums over examples.

    Attributes:
        gradient: Weighted sum of the examples' gradients, shape (2m, d).
        margins: y f of each example: statistics of the data, not private.
        norms: Norm of each example's gradient before clipping; not private either.
        pulls: l'(y f) of each example times what clipping left of it; not private.
    """

    gradient: Tensor
    margins: Tensor
    norms: Tensor
    pulls: Tensor

    @property
    def losses(self) -> Tensor:
        """Loss of each example; not private."""
        return softplus(-self.margins)


@final
class PatchForm:
    """Gradients of the logistic loss of a `TwoLayerCNN` on data that stay the same.

    Args:
        model: Its filters are read at every call.
        x: Inputs, shape (n, patches, d).
        y: Labels, -1 or +1.

    Guarantee:
        With a clip norm, no example's contribution is longer: examples are clipped a little below it,
        which makes up for rounding. An example whose inputs, loss or gradient are not finite contributes
        zero.

    Example:
        >>> form = PatchForm(TwoLayerCNN(3, 4, scale=1.0), torch.ones(5, 2, 3), torch.ones(5))
        >>> sums = form.sums(clip_norm=0.1)
        >>> sums.gradient.shape, bool(sums.gradient.norm() <= 0.5)
        (torch.Size([8, 3]), True)
    """

    def __init__(self, model: TwoLayerCNN, x: Any, y: Any) -> None:
        weight = model.filters.weight
        self.model = model
        if weight.dtype not in (torch.float32, torch.float64):
            raise PlanError(
                f"the closed form runs in float32 or float64; got a model in {weight.dtype}. Move it with "
                "model.float()."
            )
        inputs = torch.as_tensor(x).detach().to(weight)
        if inputs.ndim != 3 or inputs.shape[2] != weight.shape[1] or not all(inputs.shape):
            raise PlanError(
                f"inputs must have shape (n, patches, {weight.shape[1]}) with n >= 1 and a patch at least; "
                f"got {tuple(inputs.shape)}."
            )
        self.signs = _signs(y, len(inputs)).to(weight)
        products = torch.cat([_products(part) for part in torch.split(inputs, _CHUNK)])
        lengths = products.diagonal(dim1=1, dim2=2).sum(dim=1)
        # Longer ones are not finite in the model's precision. None of them is NaN: that fails, too.
        self._finite = lengths <= torch.finfo(weight.dtype).max
        usable = self._finite[:, None, None]
        self.inputs = torch.where(usable, inputs, 0.0)
        self._products = torch.where(usable, products, 0.0)  # of all pairs of patches of an example
        self._squares = self._products.diagonal(dim1=1, dim2=2)

    @property
    def n(self) -> int:
        """Number of examples."""
        return len(self.inputs)

    def _longest(self, slopes: Tensor) -> tuple[Tensor, Tensor]:
        """‖Σ_p a_p ⊗ x_p‖² of every example in float64, and more than it can be in any rounding.

        Patches may cancel each other, and then all that is left of a square is what was rounded: at most
        (d + 2m) roundings of float64 in a term of it, and some of the model's precision in the sum that
        is made of the gradients.
        """
        _, patches, d = self.inputs.shape
        wide, width = slopes.double(), slopes.shape[2]
        squares = ((wide @ wide.mT) * self._products).sum(dim=(1, 2)).clamp(min=0)
        double, own = torch.finfo(torch.float64), torch.finfo(self.inputs.dtype)
        part = patches * ((_MARGIN + d + width) * double.eps + (_MARGIN * own.eps) ** 2)
        lost = width * patches * double.tiny  # squares of slopes that are too small for a number
        terms = (part * wide.square().sum(dim=2) + lost) * self._squares
        return squares, squares + terms.sum(dim=1)

    @torch.no_grad()
    def sums(self, clip_norm: float = math.inf) -> PatchSums:
        """Weighted sums of gradients over all examples.

        Args:
            clip_norm: Bound on the norm of one example's gradient; infinite for none.
        """
        if clip_norm != math.inf:
            least = math.sqrt(torch.finfo(self.inputs.dtype).tiny)
            if positive("clip_norm", clip_norm) < least:
                raise PlanError(
                    f"clip_norm={clip_norm} is too small for {self.inputs.dtype}: take at least "
                    f"{least:.1g}."
                )
        model, m = self.model, self.model.m
        z = self.inputs @ model.filters.weight.T
        margins = self.signs * (model.activation(z).sum(dim=1) @ model.signs) / m
        slopes = model.activation.slope(z)
        slope = -torch.sigmoid(-margins)
        norms, longest = (
            slope.abs().double() / m * squares.sqrt() for squares in self._longest(slopes)
        )
        usable = self._finite & longest.isfinite() & margins.isfinite()
        factors = _factors(longest, clip_norm, slope.dtype)
        pulls = torch.where(usable, slope * factors, 0.0)
        weights = slopes * (pulls * self.signs / m)[:, None, None] * model.signs
        weights = torch.where(usable[:, None, None], weights, 0.0)  # infinity times 0 is none
        gradient = weights.flatten(0, 1).T @ self.inputs.flatten(0, 1)
        return PatchSums(gradient, margins, norms.to(slope), pulls)


def _products(inputs: Tensor) -> Tensor:
    """Of all pairs of patches of an example, in float64."""
    wide = inputs.double()
    return wide @ wide.mT


def _factors(norms: Tensor, clip_norm: float, dtype: torch.dtype) -> Tensor:
    """min(1, C/norm), a little less; 1 for a gradient of zero."""
    if clip_norm == math.inf:
        return torch.ones_like(norms, dtype=dtype)
    limit = clip_norm * (1 - _MARGIN * torch.finfo(dtype).eps)
    return (limit / norms).clamp(max=1).to(dtype)


def _signs(y: Any, n: int) -> Tensor:
    try:
        signs = torch.as_tensor(y).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise PlanError(f"labels must be numbers, -1 or +1: {error}") from error
    if signs.shape != (n,):
        raise PlanError(f"there must be one label per row, {n}; got shape {tuple(signs.shape)}.")
    if not ((signs == 1) | (signs == -1)).all():
        raise PlanError("labels must be -1 or +1. Of labels 0 and 1, take 2 * y - 1.")
    return signs
