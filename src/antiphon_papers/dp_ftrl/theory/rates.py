"""The rates of Tables 1, 2 and 4 with their constants, and how exact errors compare with them."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import minimize_scalar

from antiphon.checks import positive
from antiphon.errors import PlanError
from antiphon.mechanisms import LambdaCGD, NuFTRL
from antiphon.numerics import Series
from antiphon_papers.common.condition import Condition
from antiphon_papers.dp_ftrl.theory.regression import f_infinity
from antiphon_papers.dp_ftrl.theory.spectrum import Spectrum, eigenvalues, gaussian_moment
from antiphon_papers.kan_gd import Bound

__all__ = [
    "best_nu",
    "damped_anti_pgd",
    "exponents",
    "independent_rate",
    "nu_bound",
    "theorem_2_2_printed",
]

# (5/(2π)) (128/49)/(8π): γ_∞² <= (5/2π) ln(8/ν), and the integral I(ν, b) <= (128/49) ln(8/ν).
_NU_CONSTANT = 5 / (2 * math.pi) * (128 / 49) / (8 * math.pi)


def independent_rate(
    *, spectrum: Spectrum, learning_rate: float, rho: float = 1.0, clip_norm: float = 1.0
) -> float:
    """ηdG²/(8ρ): what F_∞ of Noisy-SGD tends to as η → 0, with the constant of Theorem 2.2 made explicit.

    Example:
        >>> independent_rate(spectrum=[1.0, 0.5, 0.1], learning_rate=0.001)
        0.000375
    """
    eta, G = positive("learning_rate", learning_rate), positive("clip_norm", clip_norm)
    return eta * len(eigenvalues(spectrum)) * G**2 / (8 * positive("rho", rho))


def nu_bound(
    nu: float,
    *,
    spectrum: Spectrum,
    learning_rate: float,
    rho: float = 1.0,
    clip_norm: float = 1.0,
    radius_squared: float | None = None,
) -> Bound:
    """An upper bound on ν-Noisy-FTRL's F_∞ in elementary functions, without label noise.

    Args:
        nu: ν, at most ημ.
        spectrum: Eigenvalues of H.
        learning_rate: η.
        rho: ρ of zCDP.
        clip_norm: G.
        radius_squared: R²; that of Gaussian inputs unless given.

    Guarantee:
        η² (G²/ρ) Tr H ln²(8/ν) · 0.0827/(1 - ηR²/2): Theorem 2.2 with its constant, for ν <= ημ and
        ηL <= 1/4. The factor 1 + O(ν) of [CorrelatedNoise24, Lem. C.21] is not needed.

    Example:
        >>> bound = nu_bound(0.01, spectrum=[1.0, 0.5, 0.1], learning_rate=0.1)
        >>> round(bound.value, 4), bound.verdict
        (0.0721, 'proved')
    """
    values, eta = eigenvalues(spectrum), positive("learning_rate", learning_rate)
    R2 = gaussian_moment(values) if radius_squared is None else radius_squared
    contraction = 1 - eta * R2 / 2
    scale = (eta * positive("clip_norm", clip_norm)) ** 2 / positive("rho", rho)
    scale *= float(values.sum())
    value = scale * math.log(8 / positive("nu", nu)) ** 2 * _NU_CONSTANT
    return Bound(
        "CorrelatedNoise24, Thm. 2.2",
        value / contraction if contraction > 0 else math.inf,
        math.inf,
        (
            Condition.at_most("ν <= ημ", nu, eta * float(values.min())),
            Condition.at_most("ηL <= 1/4", eta * float(values.max()), 0.25),
            Condition.at_most("ηR² < 2", eta * R2, 2.0, strictly=True),
        ),
    )


def damped_anti_pgd(*, spectrum: Spectrum, learning_rate: float) -> LambdaCGD:
    """Anti-PGD with the damping that is best for it: about ν = sqrt(2η Tr H/d) for small η.

    Guarantee:
        Minimises γ_∞² Σ_j q_j = (dν² + 2η(1 - ν) Tr H)/(ν(2 - ν)), and with it both sides of `two_sided`;
        the rate is then η^(3/2) sqrt(d Tr H). The paper's sqrt(η Tr H/d) minimises the rate without its
        constants. (Prop. C.24 prints ν = 1/sqrt d for its second claim, and exchanges λ and ν.)

    Example:
        >>> round(1 - damped_anti_pgd(spectrum=[1.0, 1.0], learning_rate=0.005).lam, 3)
        0.095
    """
    mean = positive("learning_rate", learning_rate) * float(eigenvalues(spectrum).mean())
    if mean >= 1:
        raise PlanError(f"ηλ must be below 1 on average, or descent diverges; it is {mean:.4g}.")
    # The root of ν²(1 - m) + 2mν - 2m, written so that it keeps its digits as m → 0.
    return LambdaCGD(1 - 2 * mean / (mean + math.sqrt(mean * (2 - mean))))


def best_nu(*, spectrum: Spectrum, learning_rate: float) -> float:
    """The ν with the smallest exact F_∞, without label noise (which no ν changes).

    The paper's ν = ημ is close: within 6 to 8 per cent of the best error for eigenvalues 1/k.

    Example:
        >>> round(best_nu(spectrum=[1.0], learning_rate=0.05), 3)
        0.05
    """
    values, eta = eigenvalues(spectrum), positive("learning_rate", learning_rate)

    def error(log_nu: float) -> float:
        return f_infinity(NuFTRL(math.exp(log_nu)), spectrum=values, learning_rate=eta)

    low, high = math.log(1e-3 * eta * values.min()), math.log(0.999)
    grid = np.linspace(low, high, 25)
    best = int(np.argmin([error(x) for x in grid]))
    around = grid[max(0, best - 1)], grid[min(len(grid) - 1, best + 1)]
    refined = minimize_scalar(error, bounds=around, method="bounded", options={"xatol": 1e-6})
    return math.exp(float(refined.x))


def theorem_2_2_printed(
    *, spectrum: Spectrum, learning_rate: float, rho: float = 1.0, clip_norm: float = 1.0
) -> dict[str, float]:
    """The three rates of [CorrelatedNoise24, Thm. 2.2] with unknown constants set to 1 and ν = ημ.

    Example:
        >>> rates = theorem_2_2_printed(spectrum=[1.0, 0.5], learning_rate=0.1)
        >>> {name: round(value, 4) for name, value in rates.items()}
        {'independent': 0.2, 'nu-ftrl': 0.1346, 'lower bound': 0.015}
    """
    values, eta = eigenvalues(spectrum), positive("learning_rate", learning_rate)
    scale = positive("clip_norm", clip_norm) ** 2 / positive("rho", rho)
    trace = float(values.sum())
    log = math.log(1 / (eta * float(values.min())))
    return {
        "independent": eta * len(values) * scale,
        "nu-ftrl": eta**2 * scale * trace * log**2,
        "lower bound": eta**2 * scale * trace,
    }


def exponents(values: Sequence[float], by: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The powers of a product of the columns of ``by`` that fits the values best, in logarithms.

    Example:
        >>> fitted = exponents([2.0, 4.0, 16.0, 32.0], {"x": [1, 2, 2, 4], "y": [1, 1, 2, 2]})
        >>> {name: round(power, 9) for name, power in fitted.items()}
        {'x': 1.0, 'y': 2.0}
    """
    columns = [np.log(np.asarray(column, dtype=np.float64)) for column in by.values()]
    design = np.column_stack([*columns, np.ones(len(values))])
    if len(values) < design.shape[1] or np.linalg.matrix_rank(design) < design.shape[1]:
        raise PlanError(
            f"{len(values)} values do not tell the powers of {', '.join(by)} apart: vary each of them."
        )
    fitted: Series = np.linalg.lstsq(design, np.log(np.asarray(values)), rcond=None)[0]
    return dict(zip(by, fitted[:-1].tolist(), strict=True))
