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
from antiphon.models import TwoLayerCNN

__all__ = ["PatchForm", "PatchSums"]

_MARGIN = 25  # roundings by which examples are clipped below the bound, so that none is longer


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
        inputs = torch.as_tensor(x).detach().to(weight)
        if inputs.ndim != 3 or inputs.shape[2] != weight.shape[1] or not len(inputs):
            raise PlanError(
                f"inputs must have shape (n, patches, {weight.shape[1]}) with n >= 1; got "
                f"{tuple(inputs.shape)}."
            )
        self.signs = _signs(y, len(inputs)).to(weight)
        finite = inputs.isfinite().flatten(1).all(dim=1)
        self.inputs = torch.where(finite[:, None, None], inputs, 0.0)
        self._finite = finite
        self._products = self.inputs @ self.inputs.mT  # of all pairs of patches of an example
        self._squares = self.inputs.square().sum(dim=2)

    @property
    def n(self) -> int:
        """Number of examples."""
        return len(self.inputs)

    @property
    def _rounding(self) -> float:
        """By what part of Σ_p ‖x_p‖² ‖a_p‖² a squared norm may be rounded."""
        _, patches, d = self.inputs.shape
        return patches * (_MARGIN + d**0.5) * torch.finfo(self.inputs.dtype).eps

    @torch.no_grad()
    def sums(self, clip_norm: float = math.inf) -> PatchSums:
        """Weighted sums of gradients over all examples.

        Args:
            clip_norm: Bound on the norm of one example's gradient; infinite for none.
        """
        if clip_norm != math.inf:
            positive("clip_norm", clip_norm)
        model, m = self.model, self.model.m
        z = self.inputs @ model.filters.weight.T
        margins = self.signs * (model.activation(z).sum(dim=1) @ model.signs) / m
        slopes = model.activation.slope(z)
        slope = -torch.sigmoid(-margins)
        pairs = ((slopes @ slopes.mT) * self._products).sum(dim=(1, 2))
        norms = slope.abs() / m * pairs.clamp(min=0).sqrt()
        # Patches may cancel each other, and then all that is left of a square is what was rounded.
        rounding = self._rounding * (slopes.square().sum(dim=2) * self._squares).sum(dim=1)
        longest = slope.abs() / m * (pairs.clamp(min=0) + rounding).sqrt()
        usable = self._finite & norms.isfinite() & margins.isfinite()
        pulls = torch.where(usable, slope * _factors(longest, clip_norm), 0.0)
        weights = slopes * (pulls * self.signs / m)[:, None, None] * model.signs
        weights = torch.where(usable[:, None, None], weights, 0.0)  # infinity times 0 is none
        return PatchSums(weights.flatten(0, 1).T @ self.inputs.flatten(0, 1), margins, norms, pulls)


def _factors(norms: Tensor, clip_norm: float) -> Tensor:
    """min(1, C/norm), a little less; 1 for a gradient of zero."""
    if clip_norm == math.inf:
        return torch.ones_like(norms)
    limit = clip_norm * (1 - _MARGIN * torch.finfo(norms.dtype).eps)
    return (limit / norms).clamp(max=1)


def _signs(y: Any, n: int) -> Tensor:
    signs = torch.as_tensor(y).detach()
    if signs.shape != (n,):
        raise PlanError(f"there must be one label per row, {n}; got shape {tuple(signs.shape)}.")
    if not (signs.abs() == 1).all():
        raise PlanError("labels must be -1 or +1. Of labels 0 and 1, take 2 * y - 1.")
    return signs
