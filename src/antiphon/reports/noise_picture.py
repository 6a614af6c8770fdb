"""The noise of a run, for its picture: what each step cancels, and how the sum grows."""

from dataclasses import replace
from typing import Any

import numpy as np

from antiphon.accounting import calibrate, is_independent
from antiphon.certificates import Certificate
from antiphon.errors import AntiphonError, UnsupportedError
from antiphon.mechanisms import Independent, last_row
from antiphon.plans import Plan

__all__ = ["noise_of"]

_LAGS = 24
_STEPS = 120


def noise_of(certificate: Certificate) -> dict[str, Any]:
    """How the noise of a certified plan is correlated, and how it adds up.

    Returns:
        ``taken_back``: pairs (steps back, share of that step's white noise that the last step takes back).
        ``summed``: rows (step, standard deviation of the summed noise, the same for independent noise), in
        units of the clip norm, each at the noise certified for it. ``independent``: the noise multiplier of
        independent noise at the same (ε, δ). What cannot be had is empty or None.
    """
    plan = certificate.plan
    mechanism = plan.known_mechanism()
    independent = is_independent(mechanism, plan.steps)
    beside = None if independent else _independent(certificate)
    return {
        "is_independent": independent,
        "taken_back": [] if independent else _taken_back(plan),
        "independent": beside,
        "summed": _summed(plan, beside),
    }


def _independent(certificate: Certificate) -> float | None:
    """The noise multiplier of independent noise with the same certificate, if there is one."""
    plan = replace(certificate.plan, mechanism=Independent(), noise_multiplier=None)
    try:
        found = calibrate(plan, certificate.epsilon, certificate.delta)
    except AntiphonError:  # such as blocks, or a sampling for which nothing is proved
        return None
    return found.noise_multiplier


def _taken_back(plan: Plan) -> list[list[float]]:
    try:
        row = last_row(plan.known_mechanism(), plan.steps)
    except UnsupportedError:  # a dense matrix of too many steps
        return []
    return [[lag, float(-row[lag])] for lag in range(1, min(_LAGS + 1, len(row)))]


def _summed(plan: Plan, independent: float | None) -> list[list[float | None]]:
    if plan.noise_multiplier is None:
        return []
    try:
        errors = plan.noise_multiplier * plan.known_mechanism().errors(plan.steps)
    except UnsupportedError:
        return []
    steps = np.unique(np.linspace(1, plan.steps, min(_STEPS, plan.steps)).astype(int)).tolist()
    return [
        [step, float(errors[step - 1]), None if independent is None else independent * step**0.5]
        for step in steps
    ]
