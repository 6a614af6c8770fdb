"""What the tables of correlated noise show, against the numbers of the specification."""

import math

import pytest

from antiphon.errors import PlanError
from antiphon.mechanisms import Tree
from antiphon.participation import Once
from antiphon_papers.dp_ftrl.experiments import (
    dp_ftrl_table_1,
    dp_ftrl_table_2,
    dp_ftrl_table_3,
    dp_ftrl_table_4,
)


def rows_of(module, configs):
    return [row for config in configs for row in module.run(config)]


@pytest.fixture(scope="module")
def table_1():
    return rows_of(dp_ftrl_table_1, dp_ftrl_table_1.configs("full", 2))


def test_acceptance_dp_ftrl_table_1_powers(table_1):
    found = {row["algorithm"]: row for row in dp_ftrl_table_1.summary(table_1)}
    independent, correlated = found["independent"], found["nu-ftrl"]
    # Independent noise: η d. Correlated noise: η² d_eff, but for logarithms.
    assert independent["power_of_learning_rate"] == pytest.approx(1.0, abs=0.03)
    assert independent["power_of_d"] == pytest.approx(1.0, abs=0.03)
    assert independent["power_of_d_eff"] == pytest.approx(0.0, abs=0.03)
    assert 0.12 < independent["least_constant"] < independent["largest_constant"] < 0.18
    assert 1.6 < correlated["power_of_learning_rate"] < 2.0
    assert correlated["power_of_d"] < 0.3
    assert 0.7 < correlated["power_of_d_eff"] < 1.1
    # Within a small factor of what any noise must have, where independent noise is far from it.
    assert correlated["largest_over_lower_bound"] < 1.45
    assert independent["largest_over_lower_bound"] > 500


def test_no_error_is_below_the_bound(table_1):
    assert all(row["over_lower_bound"] >= 1 - 1e-9 for row in table_1)


def test_acceptance_dp_ftrl_table_2_damping_makes_errors_finite():
    rows = rows_of(dp_ftrl_table_2, dp_ftrl_table_2.configs("full", 1))
    found = {row["algorithm"]: row for row in dp_ftrl_table_2.summary(rows)}
    finite = {name for name, row in found.items() if row["f_infinity_is_finite"]}
    assert set(found) - finite == {"optimal cc", "anti-pgd"}
    # γ_T² grows like T for anti-PGD and like log T / π for Optimal CC.
    assert found["anti-pgd"]["gamma_squared_10000"] == pytest.approx(10_000)
    grown = found["optimal cc"]["gamma_squared_10000"] - found["optimal cc"]["gamma_squared_100"]
    assert grown == pytest.approx(math.log(100) / math.pi, rel=0.01)
    powers = {name: found[name]["power_of_learning_rate"] for name in finite}
    assert powers["independent"] == pytest.approx(1.0, abs=0.05)
    assert powers["anti-pgd, damped"] == pytest.approx(1.5, abs=0.06)
    assert 1.7 < powers["nu-ftrl"] < 2.0
    best = found["best filter, 6 buffers"]
    assert best["largest_over_lower_bound"] < found["nu-ftrl"]["largest_over_lower_bound"]


ORDER = (
    "independent",
    "tree",
    "honaker",
    "full honaker",
    "fft",
    "optimal cc",
    "nu-ftrl",
    "dense",
)  # fmt: skip
LOSSES = (11.335784, 6.002929, 4.650148, 3.102237, 2.746347, 2.668782, 2.625587, 2.524414)


def test_acceptance_dp_ftrl_12_table_3_order_and_losses():
    rows = [dp_ftrl_table_3.run(dp_ftrl_table_3.Config(name, 256))[0] for name in ORDER]
    losses = [row["loss"] for row in rows]
    assert losses == sorted(losses, reverse=True)
    for loss, expected in zip(losses[:-1], LOSSES[:-1], strict=True):
        assert loss == pytest.approx(expected, abs=1e-5)
    # The search for the dense one ends within 1e-4 of the optimum.
    assert LOSSES[-1] - 1e-6 < losses[-1] < LOSSES[-1] * (1 + 1e-4)
    for row in rows:
        assert row["build_seconds"] > 0 and row["step_seconds"] > 0
        assert row["paper_step"] is not None
    assert [row["buffers"] for row in rows if row["mechanism"] == "optimal cc"] == [255]


@pytest.mark.parametrize("T", [1, 5, 8, 100, 257])
def test_trees_in_closed_form_are_those_of_their_matrices(T):
    sensitivity, error = dp_ftrl_table_3.tree_in_closed_form(T)
    assert sensitivity == pytest.approx(Tree().sensitivity(T, Once()))
    assert error == pytest.approx(Tree().error(T))


def test_table_3_has_every_mechanism_at_every_length_it_can():
    configs = dp_ftrl_table_3.configs("full")
    assert {c.steps for c in configs} == {256, 512, 1024, 2048, 4096, 8192, 16_384}
    assert set(ORDER) <= {c.label for c in configs if c.steps == 1024}
    assert {"nu-ftrl", "blt", "tree"} <= {c.label for c in configs if c.steps == 16_384}
    assert "dense" not in {c.label for c in configs if c.steps > 1024}
    with pytest.raises(PlanError, match="no mechanism is called"):
        dp_ftrl_table_3.run(dp_ftrl_table_3.Config("nonsense", 8))


def test_acceptance_dp_ftrl_table_4_corrected_rates():
    rows = rows_of(dp_ftrl_table_4, dp_ftrl_table_4.configs("full", 1))
    for line in dp_ftrl_table_4.summary(rows):
        # The table's rates hold up to a factor of less than two over a grid of 16 problems.
        assert line["largest_over_corrected"] < 2 * line["least_over_corrected"]
        # Its power of d is -min(a, 1), but for logarithms.
        assert line["power_of_d"] == pytest.approx(-min(line["alpha"], 1.0), abs=0.35)
        assert line["power_of_learning_rate"] == pytest.approx(1.0, abs=0.3)
    for row in rows:
        if row["alpha"] > 1:
            assert row["d_eff"] <= row["d_eff_of_table"]


def test_the_row_of_quadratic_decay_has_another_logarithm():
    _, corrected, printed = dp_ftrl_table_4.rates(2.0, 100, 0.01)
    log = math.log(1e4)
    assert printed / corrected == pytest.approx(log / 8)
    _, corrected, printed = dp_ftrl_table_4.rates(1.5, 100, 0.01)
    assert corrected / printed == pytest.approx(1.5)
