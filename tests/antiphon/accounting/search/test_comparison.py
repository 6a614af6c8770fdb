import json

import pytest

from antiphon.accounting import compare
from antiphon.accounting.search.comparison import mechanism_names
from antiphon.certificates import certify
from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms.catalogue import buffers_of
from antiphon.plans import OnePass, Plan, Poisson

EPSILON, DELTA = 2.0, 1e-4
ONCE = Plan(n=640, sampling=OnePass(10), steps=64, mechanism="auto", relation="zero-out")


@pytest.fixture(scope="module")
def ranked():
    return compare(ONCE, EPSILON, DELTA)


def test_rows_are_certified_and_in_order(ranked):
    products = [row.product for row in ranked.rows]
    assert products == sorted(products) and len(products) >= 4
    for row in ranked.rows:
        plan = Plan(**{**vars(ONCE), "mechanism": row.mechanism, "noise_multiplier": row.noise})
        assert row.is_certified and certify(plan, DELTA).epsilon <= EPSILON * (1 + 1e-9)
        assert row.error == row.mechanism.error(64)
        assert row.buffers == buffers_of(row.mechanism, 64)
    assert ranked.recommended is ranked.rows[0]
    assert ranked.plan.mechanism == ranked.rows[0].mechanism
    assert ranked.plan.noise_multiplier == ranked.rows[0].noise


def test_it_prints_exports_and_draws(ranked):
    assert "(recommended)" in str(ranked) and "≈" not in str(ranked)
    values = json.loads(ranked.to_json())
    assert [row["is_recommended"] for row in values["rows"]].count(True) == 1
    right = ranked.plot().axes[1]
    assert "noise multiplier" in right.get_ylabel() and len(right.lines) == len(ranked.rows)
    for line, row in zip(right.lines, ranked.rows, strict=True):
        assert line.get_label() == row.label
        assert line.get_ydata() == pytest.approx(row.noise * row.mechanism.errors(64))


def test_mechanisms_are_asked_for_by_name_once_each():
    asked = []
    found = compare(ONCE, EPSILON, DELTA, ["tree", "blt", "tree"], announce=asked.append)
    assert asked == ["tree", "blt"] and {row.label for row in found.rows} == {"tree", "blt"}
    assert {"independent", "nu-ftrl-5-buffers", "full-honaker"} <= {*mechanism_names(ONCE)}


def test_estimates_are_marked_where_monte_carlo_would_certify(monkeypatch):
    from antiphon.accounting.search.auto import Candidate, Choice
    from antiphon.mechanisms import Independent, LambdaCGD

    plan = Plan(n=1000, sampling=Poisson(0.5), steps=4, mechanism=Independent(), noise_multiplier=3)
    rows = (
        Candidate("λ", LambdaCGD(0.5), 0.1, 4.0),
        Candidate("independent", Independent(), 1.0, 2.0, 3.0),
    )
    choice = Choice(plan, rows)
    monkeypatch.setattr(
        "antiphon.accounting.search.comparison.choose_mechanism", lambda *asked, **how: choice
    )
    found = compare(plan, 1.0, DELTA)
    first = found.rows[0]
    assert (first.label, first.is_certified, first.noise) == ("λ", False, 4.0)
    assert found.recommended.label == "independent" and found.plan.noise_multiplier == 3.0
    assert "≈ 4" in str(found)


def test_unknown_names_and_plans_that_no_accountant_bounds_are_refused():
    with pytest.raises(PlanError, match="no mechanism is called 'oak'; there are independent"):
        compare(ONCE, EPSILON, DELTA, ["oak"])
    moved = Plan(n=640, sampling=OnePass(10), steps=64, mechanism="auto")
    with pytest.raises(UnsupportedError, match=r"no accountant.*gaussian, pld.*: OnePass"):
        compare(moved, EPSILON, DELTA, ["independent"])


def test_of_named_mechanisms_only_the_best_may_be_certified_by_monte_carlo(monkeypatch):
    """Its failure probability covers that one choice, not one for each name."""
    from antiphon.accounting.search import comparison

    calibrate, asked = comparison.calibrate, []

    def counted(plan, epsilon, delta, *, quick=False):
        asked.append((plan.mechanism, quick))
        return calibrate(plan, epsilon, delta, quick=True)

    monkeypatch.setattr(comparison, "calibrate", counted)
    plan = Plan(n=1000, sampling=Poisson(0.2), steps=4, mechanism="auto")
    found = compare(plan, 2.0, DELTA, ["lambda-cgd", "blt", "tree", "independent"])
    assert len(found.rows) == 4 and len(asked) <= 5
    assert [quick for _, quick in asked[:4]] == [True] * 4
