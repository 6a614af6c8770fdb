"""The families with one parameter: a scan, then a refinement around its best point."""

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from scipy.optimize import minimize_scalar

from antiphon.mechanisms.abstract_mechanism import AbstractMechanism
from antiphon.mechanisms.lambda_cgd import LambdaCGD
from antiphon.mechanisms.nu_ftrl import NuFTRL

__all__ = ["best_lambda_cgd", "best_nu_ftrl"]

_SCAN = 25

M = TypeVar("M", bound=AbstractMechanism)


def best_nu_ftrl(T: int, loss: Callable[[AbstractMechanism], float]) -> NuFTRL:
    """The best ν, down to a thousandth of 1/T, below which ν = 0 is the same mechanism."""
    return _best(
        lambda x: NuFTRL(math.exp(x)), math.log(1e-3 / T), math.log(0.999), NuFTRL(0.0), loss
    )


def best_lambda_cgd(T: int, loss: Callable[[AbstractMechanism], float]) -> LambdaCGD:
    """The best λ; close to 1 it is 1 - λ that matters, so that is what is scanned."""
    return _best(lambda x: LambdaCGD(-math.expm1(x)), math.log(1e-3 / T), 0.0, LambdaCGD(1.0), loss)


def _best(
    family: Callable[[float], M],
    low: float,
    high: float,
    limit: M,
    loss: Callable[[AbstractMechanism], float],
) -> M:
    grid = np.linspace(low, high, _SCAN)
    best = int(np.argmin([loss(family(x)) for x in grid]))
    around = grid[max(0, best - 1)], grid[min(_SCAN - 1, best + 1)]
    refined = minimize_scalar(
        lambda x: loss(family(x)), bounds=around, method="bounded", options={"xatol": 1e-5}
    )
    return min((family(float(refined.x)), family(float(grid[best])), limit), key=loss)
