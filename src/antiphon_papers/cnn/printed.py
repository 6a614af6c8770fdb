"""Lemma 39 of [CNNGradientDescent26]."""

import math
from typing import Literal

from antiphon.accounting import check_delta, gaussian_delta, gaussian_epsilon
from antiphon.checks import whole
from antiphon.errors import PlanError
from antiphon.participation import Relation
from antiphon_papers.common.printed import Printed, check_choice, failures, result

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
    of_model_records: bool = False,
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
        of_model_records: Neighbours are taken among records of the model alone: one patch is ±μ, the other
            orthogonal to it and no longer than sqrt(1.5 d) σ_p.

    Guarantee:
        None of differential privacy, in any form: nothing is clipped, the bound on the patches is a
        probability over the data, and neighbours are arbitrary; so the true ε is infinite. Among records
        of the model, μ_G = sqrt(2TV/m)/(n σ_b) is exact, which is a condition on the data. Shortening
        noise patches would not be enough, since a record may have two long ones:
        `antiphon_papers.cnn.descend` with ``clip="inputs"`` has the sensitivity of records that are clipped
        as a whole.
    """
    check_delta(delta)
    relation = Relation.of(relation)
    check_choice("form", form, ("printed", "corrected", "exact"))
    for what, count in {"n": n, "width": width, "steps": steps, "dimension": dimension}.items():
        whole(what, count)
    positive, others = (noise,), (signal, patch)
    if not (all(0 < x < math.inf for x in positive) and all(0 <= x < math.inf for x in others)):
        raise PlanError(
            f"noise must be positive, signal and patch non-negative; got {noise}, {signal} and {patch}."
        )
    spread = patch**2 * dimension
    V = signal**2 + (6 if relation is Relation.REPLACE_ONE else 1.5) * spread
    mu = math.sqrt(2 * steps * V / width) / (n * noise)
    A = (2 * signal**2 + 3 * spread if form == "printed" else V) * steps / (noise * n) ** 2 / width
    among_them = gaussian_epsilon(mu, delta)
    claimed = A + 2 * math.sqrt(A * math.log(2 / delta)) if form != "exact" else among_them
    short = "patches of norm at most sqrt(1.5 d) σ_p"
    return result(
        f"CNNGradientDescent26, Lem. 39, {form}",
        noise,
        claimed,
        delta,
        among_them if of_model_records else math.inf,
        float(gaussian_delta(mu, claimed)) if of_model_records else 1.0,
        f"Gaussian, {relation}, among records of the model with {short}: exact there, conditional, no "
        "differential privacy"
        if of_model_records
        else "nothing is clipped: none",
        failures(
            (
                of_model_records,
                "nothing is clipped: a bound on average says nothing on neighbours",
            ),
            (
                form != "printed" or relation is not Relation.REPLACE_ONE or spread == 0,
                "the printed constant bounds one example's gradient, not the difference of two",
            ),
        ),
    )
