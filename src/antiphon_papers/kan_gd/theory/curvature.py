"""Gradients, Hessians and drift of a two-layer KAN with explicit constants.

The paper hides them in C_{σ,b}. "printed" follows its steps with bounds on single splines (√p times a
coordinate's), "tight" uses the norms of `KANConstants`; both keep the loss's own constants.
"""

import math
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from antiphon.errors import PlanError
from antiphon.models import spline_basis
from antiphon_papers.common.two_layer_kan import TwoLayerKAN
from antiphon_papers.kan_gd.theory.constants import SecondLayer
from antiphon_papers.kan_gd.theory.problem import Problem

__all__ = ["Chain", "Curvature", "curvature", "drift_bounds", "gradient_norms"]

Chain = Literal["tight", "printed"]


@final
@dataclass(frozen=True)
class Curvature:
    """Bounds that hold for every example and every first layer.

    Attributes:
        first: ‖∂f/∂a‖.
        second: ‖∂f/∂c‖.
        mixed: Spectral norm of ∂²f/∂c∂a.
        hidden: Spectral norm of ∂²f/∂a².
        hessian: Spectral norm of the whole Hessian of f.
        smoothness: ρ: no eigenvalue of the Hessian of the training loss is larger.
        weakness: κ: none is below -κ times the training loss.
    """

    first: float
    second: float
    mixed: float
    hidden: float
    hessian: float
    smoothness: float
    weakness: float

    @property
    def gradient(self) -> float:
        """Bound on ‖∇f‖."""
        return math.hypot(self.first, self.second)


def curvature(
    problem: Problem,
    layer: SecondLayer,
    *,
    distance: float = 0.0,
    drift: float | None = None,
    chain: Chain = "tight",
) -> Curvature:
    """Bounds on gradient and Hessian of the network and the loss.

    Args:
        problem: m, the constants and the loss.
        layer: Of c(0).
        distance: Bound on ‖c - c(0)‖.
        drift: R_c, bound on max_j ‖c_j - c_j(0)‖; None takes ``distance``, which is never below it.
        chain: "tight", or "printed": the paper's steps.

    Guarantee:
        [KANGradientDescent26, Lem. B.1] and [KANGradientDescent26, Prop. B.2] with every constant
        explicit; a bound for all inputs, where the printed one hides C_{σ,b}.

    Example:
        >>> c = SecondLayer(norm=16.18, largest=4.69, slope_norm=17.5)
        >>> now = curvature(Problem(20_000, 10, 32, 100), c)
        >>> round(now.smoothness, 2), round(now.weakness, 2)
        (11.19, 5.87)
    """
    c, root = problem.constants, math.sqrt(problem.m)
    norm = layer.norm + distance
    largest = layer.largest + (distance if drift is None else drift)
    if chain == "tight":
        second, mixed = c.vector[0], c.vector[0] * c.slope / root
        hidden = c.vector[0] ** 2 * c.bend * largest / root
        hessian = (hidden + math.hypot(hidden, 2 * mixed)) / 2
    elif chain == "printed":
        value, slope, bend = (x * math.sqrt(c.p) for x in c.coordinate)
        second, mixed = value, c.sigma[1] * value * slope / root
        hidden = value**2 * (c.sigma[2] * slope + c.sigma[1] ** 2 * bend) * largest / root
        hessian = 2 * mixed + hidden
    else:
        raise PlanError(f"chain is 'tight' or 'printed'; got {chain!r}.")
    first = mixed * norm
    smoothness = problem.loss.bend * (first**2 + second**2) + problem.loss.slope * hessian
    weakness = problem.loss.self_bound * hessian
    return Curvature(first, second, mixed, hidden, hessian, smoothness, weakness)


def drift_bounds(
    problem: Problem,
    layer: SecondLayer,
    step_size: float,
    total_loss: float,
    chain: Chain = "tight",
) -> tuple[float, float]:
    """How far gradient descent without noise can move one unit: of the first and the second layer.

    Args:
        problem: m, the constants and the loss.
        layer: Of c(0).
        step_size: η.
        total_loss: Σ_{t <= k} of the training losses, from the start.
        chain: "tight", or "printed": the paper's steps.

    Guarantee:
        max_j ‖a_j(k+1) - a_j(0)‖ and max_j ‖c_j(k+1) - c_j(0)‖ are at most these
        [KANGradientDescent26, Lem. B.3], whose proof writes h' for h once and loses a factor 2.

    Example:
        >>> c = SecondLayer(norm=16.18, largest=4.69, slope_norm=17.5)
        >>> [round(x, 4) for x in drift_bounds(Problem(20_000, 10, 32, 100), c, 0.1, 50.0)]
        [7.4857, 0.625]
    """
    at = curvature(problem, layer, chain=chain)
    total = step_size * problem.loss.self_bound * total_loss
    second = at.second * total / math.sqrt(problem.m)
    return at.mixed * (layer.largest + second) * total, second


def gradient_norms(model: TwoLayerKAN, x: Tensor) -> tuple[Tensor, Tensor]:
    """‖∂f/∂a‖ and ‖∂f/∂c‖ of each example, in closed form: no gradient is stored.

    Args:
        model: The network; whether its second layer is frozen does not matter.
        x: Inputs, one row per example.

    Guarantee:
        Exact: ‖Φ(x)‖ sqrt(Σ_j s_j²/m) with s_j = σ'(a_j) c_j · h'(u_j), and sqrt(Σ_j ‖h(u_j)‖²/m). An
        example's gradient of the loss is |l'(y f)| times that.

    Example:
        >>> first, second = gradient_norms(TwoLayerKAN(5, 16), torch.zeros(3, 5))
        >>> first.shape, second.shape
        (torch.Size([3]), torch.Size([3]))
    """
    d, m = model.first.in_features, model.first.out_features
    with torch.no_grad():
        features = model.first.features(x) / math.sqrt(d)
        u = getattr(torch, model.activation)(features @ model.first.coef.T)
        slope = 1 - u**2 if model.activation == "tanh" else u * (1 - u)
        c = model.second.coef.reshape(m, -1)
        s = slope * (c * spline_basis(u, model.second.splines, 1)).sum(-1)
        values = spline_basis(u, model.second.splines)
        first = features.norm(dim=-1) * s.norm(dim=-1) / math.sqrt(m)
        return first, values.flatten(-2).norm(dim=-1) / math.sqrt(m)
