"""The excess risk of one ReLU neuron on Gaussian inputs, exactly, and what bounds it elsewhere.

E(w) = ½ E(ReLU(x·w) - ReLU(x·w*))², which is L(w) - L(w*) where the model is well specified.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from antiphon.errors import PlanError
from antiphon_papers.relu.theory.problem import covariance_of, vector_of

__all__ = ["excess_risk", "mean_direction", "risk_bounds"]


def excess_risk(w: ArrayLike, target: ArrayLike, covariance: ArrayLike | None = None) -> float:
    """The excess risk of w for x ~ N(0, H), in closed form.

    With u = H^½ w, v = H^½ w* and θ the angle between them,
    ½ [‖u‖²/2 + ‖v‖²/2 - ‖u‖‖v‖ (sin θ + (π - θ) cos θ)/π].

    Args:
        w: Weights.
        target: w*.
        covariance: H: a matrix, its eigenvalues if it is diagonal, or None for the identity.

    Guarantee:
        Exact for Gaussian inputs of mean 0 up to rounding, also where w is close to the target.

    Example:
        >>> round(excess_risk([1.0, 0.0], [0.0, 1.0]), 12)
        0.340845056908
        >>> excess_risk([0.0, 0.0], [0.0, 1.0])
        0.25
    """
    w, target, H = _checked(w, target, covariance)
    difference = w - target
    near = float(difference @ H @ difference)
    u, v = math.sqrt(w @ H @ w), math.sqrt(target @ H @ target)
    if u == 0 or v == 0:
        return near / 4
    theta = _angle(w, target, H, u, v)
    # As ‖u - v‖² = u² + v² - 2uv cos θ, E = ¼[‖u - v‖² - (2uv/π)(sin θ - θ cos θ)]: exact near w*, too.
    return max(0.0, (near - 2 * u * v / math.pi * _lost(theta)) / 4)


def risk_bounds(
    w: ArrayLike, target: ArrayLike, covariance: ArrayLike | None = None
) -> tuple[float, float]:
    """Between what the excess risk lies: ‖w - w*‖_H²/8 and ‖w - w*‖_H²/2.

    Guarantee:
        The upper bound holds for all inputs; the lower one where x and -x are exchangeable in second
        moments (Assumption 3). It is attained at w = -w*: the 1/4 of [ReLURegression25, App. E] is for a
        risk without the factor ½, and wrong for the risk of its eq. 2.

    Example:
        >>> risk_bounds([-1.0], [1.0])
        (0.5, 2.0)
    """
    w, target, H = _checked(w, target, covariance)
    squared = float((w - target) @ H @ (w - target))
    return squared / 8, squared / 2


def mean_direction(
    w: ArrayLike, target: ArrayLike, covariance: ArrayLike | None = None
) -> NDArray[np.float64]:
    """GLMtron's mean direction E[(ReLU(x·w) - y) x] = ½ H (w - w*), linear though the loss is not convex.

    Guarantee:
        Exact under Assumption 3 for a well-specified model. Without noise or clipping the mean iterate
        therefore obeys w_{t+1} - w* = (I - (η/2) H)(w_t - w*).

    Example:
        >>> mean_direction([1.0, 2.0], [0.0, 0.0], covariance=[2.0, 1.0]).tolist()
        [1.0, 1.0]
    """
    w, target, H = _checked(w, target, covariance)
    return np.asarray(H @ (w - target) / 2)


def _checked(
    w: ArrayLike, target: ArrayLike, covariance: ArrayLike | None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    w, target = vector_of("w", w), vector_of("target", target)
    if len(w) != len(target):
        raise PlanError(f"w has {len(w)} weights and the target {len(target)}; give as many.")
    return w, target, covariance_of(covariance, len(w))


def _angle(
    w: NDArray[np.float64],
    target: NDArray[np.float64],
    H: NDArray[np.float64],
    u: float,
    v: float,
) -> float:
    """Between H^½ w and H^½ w*, by half-angles, which keep the digits of small angles."""
    minus, plus = w / u - target / v, w / u + target / v
    sine, cosine = (math.sqrt(max(0.0, float(side @ H @ side))) for side in (minus, plus))
    return 2 * math.atan2(sine, cosine)


def _lost(theta: float) -> float:
    """The number sin θ - θ cos θ; by its series where the two nearly cancel."""
    if theta < 1e-3:
        return theta**3 / 3 - theta**5 / 30
    return math.sin(theta) - theta * math.cos(theta)
