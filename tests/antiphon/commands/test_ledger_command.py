"""``antiphon ledger``: create, spend, show; what is damaged is refused."""

import json
import warnings
from dataclasses import replace

import pytest
from oracles.calls import assert_misused, assert_refused, caller
from oracles.targets import CERTIFICATE, PLAN

from antiphon.certificates import Ledger

QUIET = replace(PLAN, noise_multiplier=30.0)
BUDGET = ("--epsilon", 1, "--delta", 1e-5)


@pytest.fixture
def call(capsys):
    return caller(capsys)


@pytest.fixture
def plan(tmp_path):
    (tmp_path / "plan.json").write_text(QUIET.to_json())
    return tmp_path / "plan.json"


@pytest.fixture
def ledger(tmp_path, call):
    path = tmp_path / "ledger"
    assert call("ledger", path, "create", *BUDGET, "--data", "people [2024]")[0] == 0
    return path


def test_a_user_creates_spends_and_sees_what_is_left(call, ledger, plan):
    code, out, err = call("ledger", ledger, "spend", plan, "--note", "first [model]")
    assert (code, err) == (0, "")
    assert "first [model]" in out and QUIET.hash[:8] in out and "data:   people [2024]" in out
    code, out, err = call("ledger", ledger, "--json")
    found, own = json.loads(out), Ledger(ledger)
    assert (code, err) == (0, "")
    assert (found["spent_epsilon"], found["left_mu"]) == (own.spent(), own.left())
    assert (found["epsilon"], found["delta"], found["relation"]) == (1, 1e-5, "add-remove")
    assert found["entries"][0]["note"] == "first [model]"
    assert found["entries"][0]["plans"] == [json.loads(QUIET.to_json())]
    assert call("ledger", ledger, "show", "--json")[1] == out


def test_a_new_ledger_is_empty(call, ledger):
    code, out, err = call("ledger", ledger)
    assert (code, err) == (0, "")
    assert "budget: ε = 1, δ = 1e-05, add-remove, filter gdp" in out
    assert "spent:  ε = 0 in 0 entries" in out and "┃" not in out


def test_what_does_not_fit_is_refused_and_not_entered(call, ledger, plan, tmp_path):
    loud = tmp_path / "loud.json"
    loud.write_text(CERTIFICATE.to_json())
    assert_refused(call("ledger", ledger, "spend", loud), "is left of the budget")
    assert_refused(call("ledger", ledger, "spend", plan, plan), "one run at a time")
    other = tmp_path / "other.json"
    other.write_text(replace(QUIET, relation="zero-out").to_json())
    assert_refused(call("ledger", ledger, "spend", other), "this ledger is for add-remove")
    forged = tmp_path / "forged.json"
    forged.write_text(replace(CERTIFICATE, epsilon=0.01).to_json())
    assert_refused(call("ledger", ledger, "spend", forged), "claims ε = 0.01, but only")
    assert Ledger(ledger).entries() == ()


@pytest.mark.parametrize("filter", ["rdp", "pld"])
def test_other_filters_add_up_in_their_way(call, plan, tmp_path, filter):
    path = tmp_path / "other"
    options = (*BUDGET, "--filter", filter, "--relation", "add-remove")
    assert call("ledger", path, "create", *options)[0] == 0
    plans = (plan, plan) if filter == "pld" else (plan,)
    code, out, _ = call("ledger", path, "spend", *plans)
    assert code == 0 and ("ε = " if filter == "pld" else "Rényi") in out
    assert Ledger(path).spent() > 0


def test_a_ledger_that_was_changed_or_is_none_is_refused(call, ledger, plan, tmp_path):
    assert call("ledger", ledger, "spend", plan)[0] == 0
    whole = ledger.read_bytes()
    ledger.write_bytes(whole.replace(b'"mu"', b'"um"'))
    assert_refused(call("ledger", ledger), "line 2 of", "changed or damaged")
    ledger.write_bytes(whole[:20])
    assert_refused(call("ledger", ledger), "no complete first line")
    assert_refused(call("ledger", plan), "is not a ledger")
    assert_refused(call("ledger", tmp_path / "none"), "there is no ledger at", "create")
    assert_refused(call("ledger", tmp_path / "none", "spend", plan), "there is no ledger at")
    assert_refused(call("ledger", plan, "create", *BUDGET), "exists already")


def test_a_line_that_a_crash_cut_short_is_reported_and_set_aside(call, ledger, plan):
    call("ledger", ledger, "spend", plan)
    ledger.write_bytes(ledger.read_bytes()[:-9])
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        code, _, err = call("ledger", ledger, "spend", plan)
    assert code == 0 and err.startswith("antiphon: warning: the last line") and err.count("\n") == 1
    assert len(Ledger(ledger).entries()) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "FILE"),
        (("l", "create"), "create needs --epsilon and --delta"),
        (("l", "create", "--epsilon", 1), "create needs --epsilon and --delta"),
        (("l", "show", "--epsilon", 1), "--epsilon belongs to create"),
        (("l", "spend"), "spend needs a PLAN"),
        (("l", "show", "plan.json"), "spend needs a PLAN"),
        (("l", "--note", "x"), "--note belongs to spend"),
        (("l", "burn"), "invalid choice"),
    ],
)
def test_wrong_usage_is_one_line(capsys, options, words):
    assert_misused(capsys, ("ledger", *options), words)
