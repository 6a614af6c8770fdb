"""What is to be learned: one ReLU neuron, the second moments of its inputs and the noise of its labels."""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from antiphon.errors import PlanError

__all__ = ["Problem", "covariance_of", "vector_of"]

Array = NDArray[np.float64]

_SYMMETRIC = 1e-9  # of the largest entry


@final
@dataclass(frozen=True, eq=False, repr=False)
class Problem:
    """y = ReLU(x·w*) + z, with E[z | x] = 0 and E[z² | x] = σ² [ReLURegression25, Def. 2].

    Args:
        target: w*.
        label_noise: σ, the standard deviation of z.
        covariance: H = E[x xᵀ]: a matrix, its eigenvalues if it is diagonal, or None for the identity.
        alpha: α of Assumption 2, E[x xᵀ A x xᵀ] <= α tr(HA) H; 3 for Gaussian inputs.

    Example:
        >>> problem = Problem([4.0, 0.0], label_noise=0.5, covariance=[1.0, 0.25])
        >>> problem.d, problem.condition_number, problem.start_risk
        (2, 4.0, 4.0)
    """

    target: Array
    label_noise: float
    covariance: Array
    alpha: float = 3.0

    def __init__(
        self,
        target: ArrayLike,
        label_noise: float,
        covariance: ArrayLike | None = None,
        alpha: float = 3.0,
    ) -> None:
        target = vector_of("target", target)
        if not 0 <= label_noise < np.inf:
            raise PlanError(f"label_noise is a standard deviation, at least 0; got {label_noise}.")
        if not 1 <= alpha < np.inf:
            raise PlanError(
                f"alpha must be at least 1, since a fourth moment is no smaller than a squared second "
                f"one; got {alpha}."
            )
        for name, value in {
            "target": target,
            "label_noise": float(label_noise),
            "covariance": covariance_of(covariance, len(target)),
            "alpha": float(alpha),
        }.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"Problem(d={self.d}, κ={self.condition_number:.4g}, σ={self.label_noise:g})"

    @property
    def d(self) -> int:
        """Number of inputs."""
        return len(self.target)

    @property
    def spectrum(self) -> Array:
        """Eigenvalues of H, ascending."""
        return np.asarray(np.linalg.eigvalsh(self.covariance), np.float64)

    @property
    def trace(self) -> float:
        """tr(H) = E‖x‖²."""
        return float(np.trace(self.covariance))

    @property
    def inverse_trace(self) -> float:
        """tr(H⁻¹), by which noise of equal size in all directions becomes risk."""
        return float((1 / self.spectrum).sum())

    @property
    def condition_number(self) -> float:
        """κ = λ_max/λ_min."""
        return float(self.spectrum[-1] / self.spectrum[0])

    @property
    def signal(self) -> float:
        """‖w*‖_H, the root mean square of x·w*."""
        return float(np.sqrt(self.target @ self.covariance @ self.target))

    @property
    def start_risk(self) -> float:
        """The excess risk of w = 0, ‖w*‖_H²/4: what is known without learning.

        Exact where x and -x have the same second moments on half-spaces (Assumption 3).
        """
        return self.signal**2 / 4


def covariance_of(given: ArrayLike | None, d: int) -> Array:
    """The matrix H, if it is symmetric and positive definite, of d rows."""
    if given is None:
        return np.eye(d)
    H = np.asarray(given, np.float64)
    if H.ndim == 1:
        H = np.diag(H)
    if H.shape != (d, d) or not np.isfinite(H).all():
        raise PlanError(
            f"the covariance needs {d} finite eigenvalues, or {d} rows and columns; got shape "
            f"{np.shape(given)}."
        )
    if np.abs(H - H.T).max() > _SYMMETRIC * np.abs(H).max() or np.linalg.eigvalsh(H)[0] <= 0:
        raise PlanError(
            "the covariance must be symmetric and positive definite: in a direction in which inputs do not "
            "vary nothing can be learned. Leave such directions out."
        )
    return (H + H.T) / 2


def vector_of(name: str, given: ArrayLike) -> Array:
    """The vector, if it is one of finite numbers."""
    vector = np.asarray(given, np.float64)
    if vector.ndim != 1 or not vector.size or not np.isfinite(vector).all():
        raise PlanError(f"{name} must be a vector of finite numbers; got shape {vector.shape}.")
    return vector
