"""Lemma 39 of [CNNGradientDescent26]."""

import math
from typing import Literal

from antiphon.accounting.gaussian import (
    check_delta,
    gaussian_delta,
    gaussian_epsilon,
)
from antiphon.accounting.printed.base import Printed, check_choice, failures, result
from antiphon.errors import PlanError
from antiphon.relations import Relation

__all__ = ["cnn_lemma_39"]


def cnn_lemma_39(
    noise: float,
    n: int,
    width: int,
    steps: int,
    signal: float,
    patch: float,
    dimension: int,
    delta: float,
    form: Literal["printed", "corrected", "exact"] = "printed",
    relation: Relation | str = Relation.REPLACE_ONE,
    is_clipped: bool = False,
) -> Printed:
    """Full-batch noisy descent on a two-layer CNN [CNNGradientDescent26, Lem. 39].

    ε = A + 2 sqrt(A log(2/δ)), the best of its orders, with A = T V/(σ² n² m): V = 2‖μ‖² + 3 σ_p² d as
    printed; corrected, ‖μ‖² + 6 σ_p² d for replace-one and ‖μ‖² + 1.5 σ_p² d for zero-out.

    Args:
        noise: σ_b, the standard deviation of the noise on each coordinate of the mean gradient.
        n: Number of records.
        width: m, filters per class.
        steps: T.
        signal: ‖μ‖.
        patch: σ_p, standard deviation of the noise patch per coordinate.
        dimension: d.
        delta: δ.
        form: Whose ε is claimed; "exact" is the Gaussian answer with the corrected constant.
        relation: The paper's is replace-one.
        is_clipped: Noise patches are clipped to a norm of sqrt(1.5 d) σ_p, a public constant.

    Guarantee:
        Without clipping no (ε, δ) holds: the bound on the patches is a probability over the data, while
        neighbours are arbitrary. With it, the truth is exact: μ_G = sqrt(2TV/m)/(n σ_b).
    """
    check_delta(delta)
    relation = Relation.of(relation)
    check_choice("form", form, ("printed", "corrected", "exact"))
    positive, others = (noise, n, width, steps, dimension), (signal, patch)
    if not (all(0 < x < math.inf for x in positive) and all(0 <= x < math.inf for x in others)):
        raise PlanError(
            "noise, n, width, steps and dimension must be positive, signal and patch non-negative; got "
            f"{positive} and {others}."
        )
    spread = patch**2 * dimension
    V = signal**2 + (6 if relation is Relation.REPLACE_ONE else 1.5) * spread
    mu = math.sqrt(2 * steps * V / width) / (n * noise)
    A = (2 * signal**2 + 3 * spread if form == "printed" else V) * steps / (noise * n) ** 2 / width
    truth = gaussian_epsilon(mu, delta)
    claimed = A + 2 * math.sqrt(A * math.log(2 / delta)) if form != "exact" else truth
    return result(
        f"CNNGradientDescent26, Lem. 39, {form}",
        noise,
        claimed,
        delta,
        truth,
        float(gaussian_delta(mu, claimed)),
        f"Gaussian, {relation}, patches of norm at most sqrt(1.5 d) σ_p: exact",
        failures(
            (is_clipped, "patches must be clipped: a bound on average says nothing on neighbours"),
            (
                form != "printed" or relation is not Relation.REPLACE_ONE or spread == 0,
                "the printed constant bounds one example's gradient, not the difference of two",
            ),
        ),
    )
