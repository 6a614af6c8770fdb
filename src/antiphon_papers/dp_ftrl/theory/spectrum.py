"""The eigenvalues of a Hessian, and what a sample says about its inputs.

Linear regression sees a mechanism only through the eigenvalues λ of H = E x xᵀ. They are public, or are
estimated on public data: `spectrum_of` and `input_moments` add no noise: their results are not private.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh

from antiphon.checks import positive, whole
from antiphon.errors import PlanError
from antiphon.numerics import Series

__all__ = [
    "InputMoments",
    "Spectrum",
    "effective_dimension",
    "eigenvalues",
    "gaussian_moment",
    "input_moments",
    "power_law",
    "spectrum_of",
]

Spectrum = Sequence[float] | NDArray[Any]


def eigenvalues(spectrum: Spectrum) -> Series:
    """The eigenvalues as an array, if they are positive and finite, and there is at least one."""
    try:
        values = np.asarray(spectrum, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise PlanError(f"a spectrum is a list of eigenvalues: {error}") from error
    if values.ndim != 1 or not len(values):
        raise PlanError(
            f"a spectrum is a list of at least one eigenvalue; got shape {values.shape}."
        )
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise PlanError(
            "the eigenvalues of a spectrum must be positive and finite: noise in a direction without "
            "curvature is never taken back. Leave such directions out, or add a ridge."
        )
    return values


def power_law(d: int, exponent: float = 1.0) -> Series:
    """λ_k = k^-exponent for k = 1..d, the spectra of [CorrelatedNoise24, Tab. 4].

    Example:
        >>> power_law(4, 2.0).tolist()
        [1.0, 0.25, 0.1111111111111111, 0.0625]
    """
    if not np.isfinite(exponent):
        raise PlanError(f"exponent must be finite; got {exponent}.")
    return np.arange(1, whole("d", d) + 1, dtype=np.float64) ** -float(exponent)


def effective_dimension(spectrum: Spectrum) -> float:
    """Tr H / λ_max, between 1 and d: the stable rank of the square root of H.

    Example:
        >>> round(effective_dimension(power_law(128)), 3)
        5.433
    """
    values = eigenvalues(spectrum)
    return float(values.sum() / values.max())


def gaussian_moment(spectrum: Spectrum) -> float:
    """R² = Tr H + 2 λ_max of Gaussian inputs, the smallest with E‖x‖² x xᵀ ≤ R² H.

    The paper's 3 Tr H [CorrelatedNoise24, App. C] is looser unless d = 1.

    Example:
        >>> gaussian_moment([1.0, 0.5, 0.1])
        3.6
    """
    values = eigenvalues(spectrum)
    return float(values.sum() + 2 * values.max())


def spectrum_of(X: ArrayLike, *, ridge: float = 0.0) -> Series:
    """Eigenvalues of the second moments of PUBLIC inputs, largest first.

    Args:
        X: One row for each public record. Rows of private records would make the mechanism, and with it
            the certificate, a function of the data.
        ridge: Added to every eigenvalue; data-independent.

    Example:
        >>> spectrum_of([[2.0, 0.0], [0.0, 1.0]], ridge=0.5).tolist()
        [2.5, 1.0]
    """
    rows = _rows(X)
    if not 0 <= ridge < np.inf:
        raise PlanError(f"ridge must be at least 0 and finite; got {ridge}.")
    values = np.linalg.eigvalsh(rows.T @ rows / len(rows))[::-1].astype(np.float64) + ridge
    # What rounding leaves of a direction in which no record lies is no curvature.
    floor = len(values) * np.finfo(np.float64).eps * values[0]
    if not values[-1] > floor:
        raise PlanError(
            f"{int((values <= floor).sum())} of the {len(values)} directions have no curvature in these "
            f"{len(rows)} records. Give a ridge, or more records than columns."
        )
    return values


@final
@dataclass(frozen=True)
class InputMoments:
    """How far a public sample is from the assumptions [CorrelatedNoise24, Assumptions C.1 to C.3].

    Attributes:
        mean_norm: Norm of the mean; A1 asks for 0.
        smallest: μ, the smallest eigenvalue of H.
        largest: L, the largest one.
        radius_squared: R², the largest generalised eigenvalue of (E‖x‖² x xᵀ, H).
        kurtosis: The largest E z_i² z_j² of inputs whitened in H's eigenbasis; 3 for Gaussian ones.
        residual_variance: The largest generalised eigenvalue of (E ξ² x xᵀ, H), or None without labels.
    """

    mean_norm: float
    smallest: float
    largest: float
    radius_squared: float
    kurtosis: float
    residual_variance: float | None


def input_moments(X: ArrayLike, residuals: ArrayLike | None = None) -> InputMoments:
    """The moments of a PUBLIC sample that the bounds of this module ask for.

    Args:
        X: One row for each public record.
        residuals: ξ = y - <θ*, x> of each record.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(20_000, 2)) * [1.0, 0.5]
        >>> found = input_moments(rows)
        >>> round(found.radius_squared, 1), round(found.kurtosis, 1)
        (3.3, 3.0)
    """
    rows = _rows(X)
    n = len(rows)
    H = rows.T @ rows / n
    values, vectors = np.linalg.eigh(H)
    if not values[0] > len(values) * np.finfo(np.float64).eps * values[-1]:
        raise PlanError("the inputs do not span all columns, so that μ = 0. Leave columns out.")

    def against_second_moments(weights: Series) -> float:
        return float(eigh((rows.T * weights) @ rows / n, H, eigvals_only=True)[-1])

    whitened = (rows @ vectors / np.sqrt(values)) ** 2
    variance = None
    if residuals is not None:
        xi = np.asarray(residuals, dtype=np.float64)
        if xi.shape != (n,) or not np.isfinite(xi).all():
            raise PlanError(f"need one finite residual for each of the {n} rows; got {xi.shape}.")
        variance = against_second_moments(xi**2)
    return InputMoments(
        float(np.linalg.norm(rows.mean(axis=0))),
        float(values[0]),
        float(values[-1]),
        against_second_moments((rows**2).sum(axis=1)),
        float((whitened.T @ whitened / n).max()),
        variance,
    )


def _rows(X: ArrayLike) -> NDArray[np.float64]:
    rows = np.asarray(X, dtype=np.float64)
    if rows.ndim != 2 or 0 in rows.shape:
        raise PlanError(f"inputs are a table with one row for each record; got shape {rows.shape}.")
    if not np.isfinite(rows).all():
        raise PlanError("inputs must be finite numbers; some are not.")
    positive("the largest input", float(np.abs(rows).max()))
    return rows
