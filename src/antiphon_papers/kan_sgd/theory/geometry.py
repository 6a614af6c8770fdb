"""Bounds on a two-layer KAN and its derivatives, which hold for all weights W: the constants of the theory.

All have the form G >= ‖∇f‖ (and >= ‖∇ℓ‖, as |ℓ'| <= 1) and H >= ‖∇²f‖. The rest follows: the loss is
β-smooth with β = G²/4 + H, λ_min(∇²L) >= -H L and ‖∇L‖² <= 4βL [KANCorrelated26, Lem. B.7].

The papers bound norms of the spline values by sqrt(p) times their largest entry. At most degree + 1 of
them differ from zero and they sum to 1, so their norms are far smaller: 0.71 instead of 1.89 for p = 8.
"""

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch.nn.functional import softplus

from antiphon.checks import whole
from antiphon.errors import PlanError
from antiphon.numerics import Series, UniformSplines, spline_pieces
from antiphon_papers.common.condition import Condition
from antiphon_papers.common.two_layer_kan import TwoLayerKAN
from antiphon_papers.kan_sgd.theory.tails import log_over

__all__ = [
    "Bounds",
    "Constants",
    "initialization_event",
    "input_condition",
    "measured_smoothness",
]

# Bounds on σ, σ', σ'', and the length of the range of σ, which is the hidden splines' domain.
_ACTIVATIONS = {
    "tanh": ((1.0, 1.0, 4 / (3 * math.sqrt(3))), 2.0),
    "sigmoid": ((1.0, 0.25, 1 / (6 * math.sqrt(3))), 1.0),
}


@final
@dataclass(frozen=True)
class Bounds:
    """Bounds on splines and activation [KANCorrelated26, Ass. 3.2].

    Attributes:
        basis: Number p of basis functions.
        largest: B_b, B_b', B_b'': of one basis function and its derivatives, on the hidden grid.
        norms: Suprema of ‖h‖, ‖h'‖, ‖h''‖ for the vector h of all basis functions, on the hidden grid.
        activation: B_σ, B_σ', B_σ''.

    Example:
        >>> [round(norm, 6) for norm in Bounds.of(intervals=5).norms]
        [0.707107, 2.25347, 15.309311]
    """

    basis: int
    largest: tuple[float, float, float]
    norms: tuple[float, float, float]
    activation: tuple[float, float, float]

    @classmethod
    def of(cls, intervals: int = 5, degree: int = 3, activation: str = "tanh") -> "Bounds":
        """The bounds of a `TwoLayerKAN` with these grids.

        Guarantee:
            Exact suprema, from the extrema of polynomials. A degree below 3 is refused: its second
            derivatives jump, or do not exist.
        """
        if activation not in _ACTIVATIONS:
            raise PlanError(f"activation must be one of {[*_ACTIVATIONS]}; got {activation!r}.")
        if whole("degree", degree) < 3:
            raise PlanError(
                f"the theory needs two continuous derivatives: degree 3 or more, not {degree}."
            )
        bounds, length = _ACTIVATIONS[activation]
        h = length / whole("intervals", intervals)
        pieces = [spline_pieces(degree, order) for order in range(3)]
        largest = [max(map(_largest, table)) / h**k for k, table in enumerate(pieces)]
        norms = [
            math.sqrt(_largest(np.sum([np.convolve(p, p) for p in table], axis=0))) / h**k
            for k, table in enumerate(pieces)
        ]
        return cls(
            intervals + degree,
            (largest[0], largest[1], largest[2]),
            (norms[0], norms[1], norms[2]),
            bounds,
        )


@final
@dataclass(frozen=True)
class Constants:
    """What the descent bounds need to know of a network.

    Attributes:
        gradient: G, a bound on ‖∇f_W(x)‖ for all W and x: the clip norm at which nothing is clipped.
        hessian: H, a bound on ‖∇²f_W(x)‖.
        output: Bound on the standard deviation of f_{W_0}(x), over the second layer.
        worst: Bound on |f_{W_0}(x)| for all x, given the second layer.
        failure: Probability over the second layer with which the bounds may fail.

    Example:
        >>> round(Constants.printed(width=64, failure=1e-5).gradient, 6)
        108.330118
        >>> round(Constants.tight(width=64, failure=1e-5).gradient, 6)
        5.462712
    """

    gradient: float
    hessian: float
    output: float
    worst: float
    failure: float = 0.0

    @property
    def smoothness(self) -> float:
        """β = G²/4 + H, of the loss: the papers' C p³, explicit."""
        return self.gradient**2 / 4 + self.hessian

    @property
    def largest_step(self) -> float:
        """1/(12β), the largest step size of the theory."""
        return 1 / (12 * self.smoothness)

    @classmethod
    def printed(cls, width: int, failure: float, bounds: Bounds | None = None) -> "Constants":
        """As printed, on the event E_δ of `initialization_event` [KANCorrelated26, Lem. B.5, B.6].

        Guarantee:
            Holds with probability 1 - failure over the second layer, with B_σ'² where one line of the
            proof has B_σ². About 20 times what is needed.
        """
        b, m = bounds or Bounds.of(), whole("width", width)
        p, (v0, v1, v2), (_, s1, s2) = b.basis, b.largest, b.activation
        whole_norm = 4 * math.sqrt(p) + 2 * math.sqrt(log_over(2, failure) / m)
        unit_norm = 4 * math.sqrt(p) + 2 * math.sqrt(log_over(2 * m, failure))
        return cls(
            gradient=s1 * v0 * v1 * p * whole_norm,
            hessian=v0**2 * (s2 * v1 + s1**2 * v2) * p**1.5 / math.sqrt(m) * unit_norm,
            output=v0 * math.sqrt(p),
            worst=v0 * math.sqrt(p * m) * whole_norm,
            failure=failure,
        )

    @classmethod
    def tight(cls, width: int, failure: float, bounds: Bounds | None = None) -> "Constants":
        """The same from norms of h and the tails of χ, without knowing the second layer.

        Guarantee:
            G and H each fail with probability at most ``failure``: ‖c‖ <= sqrt(pm) + sqrt(2 log(1/δ)),
            and max ‖c_j‖ <= sqrt(p) + sqrt(2 log(m/δ)) by a union over units.
        """
        b, m = bounds or Bounds.of(), whole("width", width)
        norm = math.sqrt(b.basis) + math.sqrt(2 * log_over(1, failure) / m)
        largest = math.sqrt(b.basis) + math.sqrt(2 * log_over(m, failure))
        return cls(
            gradient=b.activation[1] * b.norms[0] * b.norms[1] * norm,
            hessian=_hessian(b, largest, m),
            output=b.norms[0],
            worst=b.norms[0] * math.sqrt(m) * norm,
            failure=2 * failure,
        )

    @classmethod
    def drawn(cls, model: TwoLayerKAN) -> "Constants":
        """The same for the second layer that was drawn; it is public, so its norms may be looked at.

        Guarantee:
            Certain: G² = B_σ'² sup‖h‖² (1/m) Σ_j sup_v <c_j, h'(v)>², the suprema exact.
        """
        splines = model.second.splines
        b = Bounds.of(splines.intervals, splines.degree, model.activation)
        m = model.first.out_features
        c = model.second.coef.detach().double().reshape(m, -1).numpy()
        steepest = np.array([_steepest(row, splines) for row in c])
        return cls(
            gradient=b.activation[1] * b.norms[0] * math.sqrt(float(np.mean(steepest**2))),
            hessian=_hessian(b, float(np.linalg.norm(c, axis=1).max()), m),
            output=b.norms[0],
            worst=b.norms[0] * float(np.linalg.norm(c)),
        )


def initialization_event(model: TwoLayerKAN, failure: float) -> tuple[Condition, Condition]:
    """Whether the second layer is in the event E_δ [KANCorrelated26, Lem. B.5].

    Guarantee:
        Both hold with probability 1 - failure. The second layer is public: looking costs no privacy.

    Example:
        >>> all(condition.holds for condition in initialization_event(TwoLayerKAN(3, 16), 1e-5))
        True
    """
    m = model.first.out_features
    c = model.second.coef.detach().double().reshape(m, -1)
    p = c.shape[1]
    return (
        Condition.at_most(
            "norm of the second layer",
            float(c.norm()),
            4 * math.sqrt(p * m) + 2 * math.sqrt(log_over(2, failure)),
        ),
        Condition.at_most(
            "largest norm of a unit of the second layer",
            float(c.norm(dim=1).max()),
            4 * math.sqrt(p) + 2 * math.sqrt(log_over(2 * m, failure)),
        ),
    )


def input_condition(X: ArrayLike) -> Condition:
    """Whether all records are in the unit ball, which the setting of [KANCorrelated26] asks for.

    Guarantee:
        Looks at the data, so the result is for your eyes only. Scale every record by itself, or by
        public numbers, to make it true.

    Example:
        >>> input_condition([[0.6, 0.8], [0.0, 0.5]]).holds
        True
    """
    norms = np.linalg.norm(np.atleast_2d(np.asarray(X, np.float64)), axis=1)
    return Condition.at_most("largest norm of a record", float(norms.max()), 1.0 + 1e-12)


def measured_smoothness(
    X: ArrayLike, y: ArrayLike, model: TwoLayerKAN, *, iterations: int = 30, seed: int = 0
) -> float:
    """The largest curvature of the mean loss at the model's present weights, by power iteration.

    Args:
        X: Records, public or synthetic: the result is a statistic of them.
        y: Labels, -1 or +1.
        model: Where it stands now.
        iterations: Products with the Hessian.
        seed: Of the first direction.

    Guarantee:
        At most the largest absolute eigenvalue, and close to it after a few dozen products. It is the
        curvature at one point and not a bound: 12βη with it is advice for λ, and no theorem.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model, X = TwoLayerKAN(2, 16), [[0.1, 0.2], [-0.3, 0.4]]
        >>> measured_smoothness(X, [1, -1], model) < Constants.drawn(model).smoothness
        True
    """
    coef = model.first.coef
    x = torch.as_tensor(np.asarray(X), dtype=coef.dtype)
    signs = torch.as_tensor(np.asarray(y), dtype=coef.dtype)
    loss = softplus(-signs * model(x)).mean()
    (grad,) = torch.autograd.grad(loss, coef, create_graph=True)
    direction = torch.randn(coef.shape, generator=torch.Generator().manual_seed(seed)).to(coef)
    value = 0.0
    for _ in range(whole("iterations", iterations)):
        direction = direction / direction.norm()
        (direction,) = torch.autograd.grad(grad, coef, direction, retain_graph=True)
        value = float(direction.norm())
        if value == 0:
            break
    return value


def _hessian(bounds: Bounds, unit_norm: float, width: int) -> float:
    """‖h‖² (B_σ'' ‖h'‖ + B_σ'² ‖h''‖) max ‖c_j‖/sqrt(m)."""
    n0, n1, n2 = bounds.norms
    _, s1, s2 = bounds.activation
    return n0**2 * (s2 * n1 + s1**2 * n2) * unit_norm / math.sqrt(width)


def _steepest(coef: Series, splines: UniformSplines) -> float:
    """The largest |<c, h'(v)>| on the domain."""
    table = spline_pieces(splines.degree, 1)
    windows = np.lib.stride_tricks.sliding_window_view(coef, splines.degree + 1)
    return max(_largest(window @ table) for window in windows) / splines.spacing


def _largest(polynomial: Series) -> float:
    """The largest |Σ a_e t^e| for t in [0, 1], at an end or where the derivative is 0."""
    slope = polynomial[1:] * np.arange(1, len(polynomial))
    inner = [float(t.real) for t in np.roots(slope[::-1]) if abs(t.imag) < 1e-7]
    points = np.array([0.0, 1.0, *(t for t in inner if 0 < t < 1)])
    return float(np.abs(np.polynomial.polynomial.polyval(points, polynomial)).max())
