"""What the page shows, against the library's own accountants, mechanisms and table."""

from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from unittest.mock import patch

import numpy as np
import pytest

import antiphon as ap
from antiphon.accounting import calibrate
from antiphon.accounting.search.registry import ACCOUNTANTS
from antiphon.certificates import certify
from antiphon.mechanisms.catalogue import buffers_of
from antiphon.reports.explore import Question, answers
from antiphon.reports.explore.answer import ROUTES as NAMED
from antiphon.reports.explore.candidates import candidate, mechanism_of, steps_shown
from antiphon.reports.explore.question import Refused

SMALL = Question(n=600, batch=150, epochs=2, epsilon=2.0, delta=1e-5, lam=0.5)
QUESTIONS = {
    "poisson": SMALL,
    "poisson, replace-one": replace(SMALL, relation="replace-one"),
    "shuffled": replace(SMALL, sampling="shuffled"),
    "shuffled, one epoch": replace(SMALL, sampling="shuffled", epochs=1),
    "balls-in-bins": replace(SMALL, sampling="balls-in-bins"),
    "fixed-size": replace(SMALL, sampling="fixed-size"),
    "fixed-size, add-remove": replace(SMALL, sampling="fixed-size", relation="add-remove"),
    "one-pass": replace(SMALL, sampling="one-pass", epochs=1),
    "full-batch": replace(SMALL, sampling="full-batch", epochs=20),
}


@cache
def parts(name):
    with patch("antiphon.reports.explore.answer._FEW", (0.3, 0.8)):  # for the sake of time
        return [*answers(QUESTIONS[name])]


def rows(name):
    return {part["key"]: part for part in parts(name) if part["kind"] == "row"}


def proved(name):
    return [row for row in rows(name).values() if row["noise"] is not None]


def planned(name, row):
    asked = QUESTIONS[name]
    lam = asked.lam if row["lam"] is None else row["lam"]
    return asked.plan(mechanism_of(row["key"], asked.plan("auto"), lam))


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_named_accountant_proves_every_number_that_is_shown(name):
    asked = QUESTIONS[name]
    shown = [*rows(name).values(), *[part for part in parts(name) if part["kind"] == "lambda"][:2]]
    shown = [part for part in shown if part["noise"] is not None]
    assert len(shown) >= 3
    for part in shown:
        plan = (
            planned(name, part)
            if part["kind"] == "row"
            else asked.plan(ap.mechanisms.LambdaCGD(part["lam"]))
        )
        account = ACCOUNTANTS[part["route"]].account(plan.with_noise(part["noise"]))
        assert account.profile.delta(asked.epsilon) <= asked.delta * (1 + 1e-9)
        assert part["route"] in NAMED


@pytest.mark.parametrize("name", ["poisson", "shuffled", "full-batch"])
def test_the_certificate_of_a_row_keeps_the_budget(name):
    asked = QUESTIONS[name]
    for row in rows(name).values():
        plan = planned(name, row).with_noise(row["noise"])
        assert certify(plan, asked.delta, epsilon=asked.epsilon).epsilon <= asked.epsilon


@pytest.mark.parametrize("name", ["shuffled", "shuffled, one epoch", "one-pass", "full-batch"])
def test_without_monte_carlo_to_gain_the_noise_is_that_of_calibrate(name):
    asked = QUESTIONS[name]
    for row in rows(name).values():
        best = calibrate(planned(name, row), asked.epsilon, asked.delta)
        assert row["noise"] == pytest.approx(best.noise_multiplier, rel=1e-3)


def test_independent_noise_under_poisson_is_that_of_calibrate():
    row = rows("poisson")["independent"]
    best = calibrate(planned("poisson", row), SMALL.epsilon, SMALL.delta)
    assert (row["noise"], row["route"]) == (best.noise_multiplier, "pld")


@pytest.mark.parametrize("name", QUESTIONS)
def test_errors_and_curves_are_the_mechanisms_own(name):
    head = parts(name)[0]
    for row in proved(name):
        plan = planned(name, row)
        mechanism, T = plan.mechanism, plan.steps
        errors = mechanism.errors(T)
        assert row["error_rms"] == pytest.approx(mechanism.error(T))
        assert row["error_max"] == pytest.approx(mechanism.error(T, "max"))
        np.testing.assert_allclose(row["errors"], errors[np.array(head["shown"]) - 1])
        scale = row["noise"] / plan.expected_batch
        assert row["product"] == pytest.approx(scale * mechanism.error(T))
        assert row["product_max"] == pytest.approx(scale * mechanism.error(T, "max"))
        newest_first = mechanism.decoder(T)[-1, ::-1]
        back = row["taken_back"]
        np.testing.assert_allclose(back, -newest_first[1 : len(back) + 1], atol=1e-8)
        assert row["copies"] == buffers_of(mechanism, T)


@pytest.mark.parametrize("name", ["poisson", "shuffled", "one-pass", "full-batch"])
def test_the_python_of_a_row_makes_its_mechanism(name):
    for row in rows(name).values():
        made = eval(row["python"], {"ap": ap})
        made = ap.mechanisms.Independent() if made == "independent" else made
        assert made == planned(name, row).mechanism


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_recommended_row_leaves_the_least_noise(name):
    best = [part for part in parts(name) if part["kind"] == "best"][-1]
    found = rows(name)
    assert best["is_final"]
    assert found[best["key"]]["product"] <= 1.01 * min(row["product"] for row in proved(name))
    points = [part["product"] for part in parts(name) if part["kind"] == "lambda"]
    assert found["best"]["product"] <= min(points)


def test_the_first_and_last_parts_say_so_and_all_rows_end_final():
    for name in QUESTIONS:
        kinds = [part["kind"] for part in parts(name)]
        assert (kinds[0], kinds[-1]) == ("plan", "done")
        assert set(rows(name)) == set(parts(name)[0]["keys"])
        assert all(row["is_final"] for row in rows(name).values())


def test_gain_and_memory_are_named_in_words():
    why = [part["why"] for part in parts("one-pass") if part["kind"] == "best"][-1]
    assert "% less noise in the sums of gradients than independent noise" in why
    assert "of the model in memory" in why
    why = [part["why"] for part in parts("full-batch") if part["kind"] == "best"][-1]
    assert why.startswith("Independent noise")


def test_a_caveat_is_shown_where_quick_proofs_are_loose():
    assert "Monte Carlo" in parts("poisson")[0]["caveat"]
    assert "replace-one" in parts("poisson, replace-one")[0]["caveat"]
    assert parts("one-pass")[0]["caveat"] is None


def test_only_what_no_quick_accountant_bounds_has_no_noise():
    missing = {(name, key) for name in QUESTIONS for key in rows(name)} - {
        (name, row["key"]) for name in QUESTIONS for row in proved(name)
    }
    # Optimised mechanisms under fixed-size batches and add-remove: Monte Carlo only.
    assert missing == {("fixed-size, add-remove", "blt"), ("fixed-size, add-remove", "banded")}


def test_one_step_has_one_row():
    once = [*answers(replace(SMALL, sampling="full-batch", epochs=1))]
    assert once[0]["keys"] == ["independent"]
    assert once[0]["shown"] == [1]


def test_noise_that_has_no_bound_is_null_and_says_why(monkeypatch):
    monkeypatch.setattr("antiphon.reports.explore.answer.routes", lambda plan: (["shuffling"], []))
    row = next(part for part in answers(SMALL) if part["kind"] == "row")
    assert (row["noise"], row["product"]) == (None, None)
    assert row["refusal"].startswith("no quick accountant can bound this plan. shuffling: ")


def test_a_turn_that_is_refused_ends_the_answer():
    taken = []

    @contextmanager
    def turn():
        if len(taken) == 2:
            raise TimeoutError
        taken.append(1)
        yield

    seen = []
    with pytest.raises(TimeoutError):
        seen.extend(answers(SMALL, turn))
    assert len(taken) == 2


def test_an_unknown_mechanism_is_refused():
    with pytest.raises(Refused, match="no mechanism 'tree'"):
        candidate("tree", SMALL.plan("auto"), 0.5)


def test_steps_shown_are_few_and_hold_both_ends():
    assert steps_shown(3) == [1, 2, 3]
    many = steps_shown(10_000)
    assert (many[0], many[-1]) == (1, 10_000)
    assert many == sorted(set(many))
    assert len(many) <= 80
