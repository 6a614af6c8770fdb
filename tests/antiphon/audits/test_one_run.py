import json

import pytest
from oracles.mutants import MUTANTS
from oracles.quick_audits import simulated

import antiphon as ap
from antiphon.audits import one_run
from antiphon.errors import PlanError
from antiphon.mechanisms import Independent, LambdaCGD


def claim(epsilon, **options):
    values = {
        "n": 100,
        "sampling": ap.FullBatch(),
        "steps": 3,
        "mechanism": LambdaCGD(0.9),
    } | options
    return ap.certify(ap.calibrate(ap.Plan(**values), epsilon, 1e-5), 1e-5)


@pytest.mark.parametrize(
    ("sampling", "relation"),
    [(ap.FullBatch(), "add-remove"), (ap.OnePass(40_000), "zero-out"), (ap.OnePass(40_000), "replace-one")],
)  # fmt: skip
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_a_hundred_thousand_canaries_find_half_of_a_tight_epsilon(sampling, relation, epsilon):
    found = one_run(
        claim(epsilon, n=100_000, sampling=sampling, relation=relation), canaries=100_000
    )
    assert found.curve == "gaussian" and found.runs == 1
    assert 0.5 <= found.ratio <= 1
    assert found.verdict == "consistent"


def test_the_bound_is_below_the_truth_as_often_as_it_says():
    # The certificate is tight, so the bound exceeds it in at most 20 % of 100 runs: more than 34 have
    # probability below 1e-3. A trainer with a third of the noise is found out in most.
    tight = claim(2.0)
    bounds = [
        one_run(tight, canaries=2000, guesses=100, confidence=0.8, seed=2 * s, trainer=simulated())
        for s in range(100)
    ]
    assert sum(b.ratio > 1 for b in bounds) <= 34
    assert not any(b.is_violation for b in bounds)
    broken = [
        one_run(tight, canaries=2000, guesses=100, seed=2 * s, trainer=simulated(0.33))
        for s in range(20)
    ]
    assert sum(b.ratio > 1 for b in broken) >= 10


def test_where_the_claim_is_a_point_a_run_of_its_own_chooses_the_guesses():
    found = one_run(
        claim(4.0, sampling=ap.Poisson(0.2), steps=5, mechanism=Independent()), canaries=20_000
    )
    assert found.curve == "point" and found.runs == 2
    assert 0.2 < found.ratio < 1


def test_a_claim_of_points_is_refuted_by_its_whole_curve():
    # m δ is far above the verdict's failure probability: the pair (ε, δ) alone could not be refuted.
    honest = claim(4.0, sampling=ap.Poisson(0.2), steps=5, mechanism=Independent())
    unclipped = MUTANTS["max in place of min"].trainer
    assert honest.route != "gaussian"
    assert one_run(honest, canaries=20_000, trainer=unclipped).is_violation
    assert not one_run(honest, canaries=20_000).is_violation


def test_the_same_seed_gives_the_same_audit():
    first, second = (one_run(claim(4.0), canaries=2000, seed=3).to_dict() for _ in range(2))
    assert first | {"seconds": 0} == second | {"seconds": 0}


def test_an_audit_is_readable_by_people_and_machines():
    found = one_run(claim(4.0), canaries=2000)
    values = json.loads(found.to_json())
    assert values["certified_epsilon"] == pytest.approx(4.0)
    assert values["verdict"] == "consistent" and values["ratio"] == found.ratio
    assert "consistent" in str(found) and f"{found.audited_epsilon:.4g}" in str(found)


@pytest.mark.parametrize("guesses", [0, 2001])
def test_guesses_are_between_one_and_all(guesses):
    with pytest.raises(PlanError, match=r"guesses"):
        one_run(claim(4.0), canaries=2000, guesses=guesses, trainer=simulated())
