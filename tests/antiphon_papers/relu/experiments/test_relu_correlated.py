import numpy as np
import pytest

from antiphon.certificates import certify
from antiphon.errors import PlanError
from antiphon_papers.relu.experiments.relu_correlated import (
    MECHANISMS,
    Config,
    configs,
    plan_of,
    run,
    summary,
)


def risks(mechanism, steps=250, rate=0.06, epsilon=0.2, seeds=8):
    return [run(Config(mechanism, steps, rate, epsilon, seed))[0]["risk"] for seed in range(seeds)]


def test_optimised_noise_beats_tree_noise_at_equal_budget():
    tree, dense, nu = (risks(name) for name in ("tree", "dense", "nu-ftrl"))
    for better in (dense, nu):
        gap = np.array(tree) - better  # the same data sets
        assert gap.mean() > 3 * gap.std() / np.sqrt(len(gap))
    assert np.mean(dense) < np.mean(tree) / 2


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_has_the_same_certified_epsilon(mechanism):
    plan = plan_of(Config(mechanism, 50, 0.3, 0.5, 0, 4000))
    assert certify(plan, 4000**-1.1).epsilon == pytest.approx(0.5, rel=1e-6)


def test_the_best_rate_of_each_mechanism_is_marked():
    rows = [
        {"steps": 5, "epsilon": 0.5, "mechanism": m, "learning_rate": r, "risk": abs(r - best) + 0.1,
         "privacy_risk": 0.1, "loss_over_bound": 2.0}
        for m, best in (("tree", 0.1), ("dense", 0.3)) for r in (0.1, 0.3)
    ]  # fmt: skip
    best = {row["mechanism"]: row["learning_rate"] for row in summary(rows) if row["is_best"]}
    assert best == {"tree": 0.1, "dense": 0.3}


def test_the_full_preset_has_both_numbers_of_steps():
    assert {c.steps for c in configs("full")} == {500, 16_000}
    assert all(c.mechanism != "dense" for c in configs("full") if c.steps > 1000)
    with pytest.raises(PlanError, match="mechanism is one of"):
        run(Config("white", 50, 0.3, 0.5, 0))
