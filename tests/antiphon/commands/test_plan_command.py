"""``antiphon plan``: mechanisms beside each other, all certified, and a plan to run."""

import json
import sys

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles.calls import assert_misused, assert_refused, caller

import antiphon as ap
from antiphon.accounting import calibrate
from antiphon.certificates import certify
from antiphon.commands import main
from antiphon.plans import SAMPLINGS, Plan, sampling

EPOCHS = ("--n", 640, "--batch-size", 40, "--epochs", 4, "--epsilon", 2, "--delta", 1e-4)
SHUFFLED = (*EPOCHS, "--sampling", "shuffled", "--relation", "zero-out")
FEW = ("--mechanisms", "independent,blt,tree")


@pytest.fixture
def call(capsys):
    return caller(capsys)


def test_every_row_is_certified_and_the_best_is_recommended(call, tmp_path):
    out, figure = tmp_path / "plan.json", tmp_path / "plan.svg"
    code, shown, err = call("plan", *SHUFFLED, *FEW, "--out", out, "--figure", figure, "--json")
    assert (code, err) == (0, "")
    found = json.loads(shown)
    rows = {row["label"]: row for row in found["rows"]}
    assert set(rows) == {"independent", "blt", "tree"}
    for row in rows.values():
        mechanism = json.dumps({**found["plan"], "mechanism": row["mechanism"]})
        plan = Plan.from_json(mechanism).with_noise(row["noise"])
        assert certify(plan, 1e-4).epsilon <= 2 * (1 + 1e-9)
        assert row["is_certified"] and row["product"] == row["noise"] * row["error"]
    best = min(rows.values(), key=lambda row: row["product"])
    assert [row["label"] for row in rows.values() if row["is_recommended"]] == [best["label"]]
    assert best["label"] == "blt" and rows["independent"]["buffers"] == 0 < best["buffers"]
    plan = Plan.from_json(out.read_text())
    assert plan == Plan.from_json(json.dumps(found["plan"]))
    assert plan.steps == 64 and plan.sampling == sampling.ShuffledEpochs(40)
    assert plan.noise_multiplier == best["noise"]
    assert figure.read_text().startswith("<?xml")


def test_the_table_marks_the_recommended_one(call, tmp_path):
    out = tmp_path / "plan.json"
    code, shown, err = call("plan", *SHUFFLED, *FEW, "--out", out)
    assert (code, err) == (0, "")
    (line,) = (line for line in shown.splitlines() if "recommended" in line)
    assert "blt (recommended)" in line and shown.splitlines()[-1] == f"plan: {out}"
    assert_refused(call("plan", *SHUFFLED, *FEW, "--out", out), "exists already")
    figure = tmp_path / "plan.svg"
    figure.write_text("mine")
    forced = ("plan", *SHUFFLED, *FEW, "--figure", figure)
    assert_refused(call(*forced), "plan.svg exists already: give --force")
    assert call(*forced, "--out", out, "--force")[0] == 0 and figure.read_text() != "mine"


def test_quick_leaves_monte_carlo_out_and_certifies_all_that_it_ranks(call, monkeypatch):
    def fail(*arguments, **options):
        raise AssertionError("Monte Carlo was asked")

    module = sys.modules["antiphon.accounting.search.calibration"]
    monkeypatch.setattr(module, "estimated_noise", fail)
    monkeypatch.setattr(module, "least_noise", fail)
    options = ("--n", 1000, "--rate", 0.5, "--steps", 4, "--epsilon", 1, "--delta", 1e-4)
    code, out, err = call("plan", *options, "--quick", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert len(found["rows"]) > 2 and all(row["is_certified"] for row in found["rows"])
    plan = Plan.from_json(json.dumps(found["plan"]))
    assert plan == calibrate(plan, 1.0, 1e-4, quick=True)
    for row in found["rows"]:
        values = json.dumps({**found["plan"], "mechanism": row["mechanism"]})
        again = calibrate(Plan.from_json(values), 1.0, 1e-4, quick=True).noise_multiplier
        assert row["noise"] >= again * (1 - 3e-4)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("poisson", (), sampling.Poisson(0.125)),
        ("cyclic-poisson", ("--cycle", 4), sampling.CyclicPoisson(0.5, 4)),
        ("fixed-size", (), sampling.FixedSize(8)),
        ("reshuffled", (), sampling.ShuffledEpochs(8, reshuffle=True)),
        ("balls-in-bins", (), sampling.BallsInBins(8)),
        ("one-pass", (), None),
    ],
)
def test_samplings_have_their_names(call, name, options, expected, monkeypatch):
    asked = []

    def stop(plan, *others, **more):
        asked.append(plan)
        raise KeyboardInterrupt

    monkeypatch.setattr("antiphon.accounting.compare", stop)
    size = ("--n", 64, "--batch-size", 8, "--epochs", 2, "--epsilon", 2)
    result = call("plan", *size, "--sampling", name, *options, "--relation", "zero-out")
    if expected is None:
        assert_refused(result, "16 were asked for")
        return
    assert result[0] == 130
    (plan,) = asked
    assert (plan.sampling, plan.steps, plan.expected_batch) == (expected, 16, 8)


class Stopped(Exception):
    """Instead of minutes of calibration."""


def planned(n, batch_size, name):
    """The plan of `antiphon plan`, before its noise."""
    asked = []

    def stop(plan, *others, **more):
        asked.append(plan)
        raise KeyboardInterrupt

    size = () if name == "full-batch" else ("--batch-size", batch_size)
    words = ("--n", n, *size, "--epochs", 2, "--epsilon", 2, "--sampling", name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("antiphon.accounting.compare", stop)
        assert main([str(word) for word in ("plan", *words, "--relation", "zero-out")]) == 130
    return asked[0]


def run(n, batch_size, name):
    """The plan of `make_private` for the same words, before its noise."""

    def stop(recipe):
        raise Stopped(recipe.plan)

    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped) as stopped:
        patch.setattr("antiphon.training.run.recipe.Recipe.certified", stop)
        ap.make_private(
            model, optimizer, (torch.zeros(n, 1),), lambda model, x: model(x).sum(),
            epsilon=2.0, epochs=2, batch_size=batch_size, sampling=name, relation="zero-out",
        )  # fmt: skip
    return stopped.value.args[0]


@settings(deadline=None)
@given(st.sampled_from(SAMPLINGS), st.data())
def test_what_is_planned_is_what_runs(name, data):
    assume(name not in ("cyclic-poisson", "one-pass"))  # no run by name; of no two epochs
    n = data.draw(st.integers(1, 2000))
    batch_size = data.draw(st.integers(1, n))
    assert planned(n, batch_size, name) == run(n, batch_size, name)


def test_a_thousand_records_in_batches_of_300_fall_into_four_bins():
    found = planned(1000, 300, "balls-in-bins")
    assert found == run(1000, 300, "balls-in-bins")
    assert (found.sampling, found.steps) == (sampling.BallsInBins(4), 8)


def test_the_help_names_every_sampling(capsys):
    with pytest.raises(SystemExit):
        main(["plan", "--help"])
    shown = "".join(capsys.readouterr().out.split())  # lines break at hyphens
    assert f"drawn:{','.join(SAMPLINGS[:-1])}or{SAMPLINGS[-1]}(poisson)" in shown


def test_delta_is_a_power_of_n_unless_given(call):
    full = ("--n", 100, "--sampling", "full-batch", "--steps", 3, "--epsilon", 1)
    code, out, _ = call("plan", *full, "--mechanisms", "independent", "--json")
    assert code == 0 and json.loads(out)["delta"] == 100**-1.1


def test_what_cannot_be_certified_is_one_line(call, tmp_path):
    shuffled = (*EPOCHS, "--sampling", "shuffled")
    assert_refused(call("plan", *shuffled, *FEW), "no accountant", "relation='zero-out'")
    unknown = ("--mechanisms", "independent,bolt")
    assert_refused(call("plan", *SHUFFLED, *unknown), "called 'bolt'; there are independent")
    figure = tmp_path / "no" / "plan.svg"
    assert_refused(call("plan", *SHUFFLED, "--figure", figure), "no such folder")


def test_a_mechanism_that_is_refused_leaves_the_others(call):
    fixed = ("--n", 64, "--batch-size", 8, "--steps", 4, "--epsilon", 2, "--sampling", "fixed-size")
    fixed = (*fixed, "--quick")
    code, out, _ = call("plan", *fixed, "--mechanisms", "independent,tree", "--json")
    found = json.loads(out)
    assert code == 0 and [row["label"] for row in found["rows"]] == ["independent"]
    assert "no accountant" in found["refused"]["tree"]
    shown = call("plan", *fixed, "--mechanisms", "independent,tree")[1]
    assert "not tree:" in shown


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--n", 10, "--steps", 1), "--epsilon"),
        (("--n", 10, "--steps", 1, "--epsilon", 1), "needs --batch-size or --rate"),
        (("--n", 10, "--steps", 1, "--epsilon", 1, "--batch-size", 11), "larger than the 10 units"),
        (("--n", 10, "--steps", 1, "--epsilon", 1, "--rate", 1.5), "must be in (0, 1]; got 1.5"),
        ((*EPOCHS, "--sampling", "weighted"), "sampling is 'poisson', 'cyclic-poisson'"),
        ((*EPOCHS, "--sampling", "cyclic-poisson", "--cycle", 17), "a cycle of at most 16"),
        (("--n", 10, "--epsilon", 1, "--batch-size", 2), "--steps --epochs is required"),
        ((*EPOCHS, "--rate", 1), "not allowed with"),
        ((*EPOCHS, "--cycle", 2), "belong together"),
        ((*EPOCHS, "--mechanism", "blt"), "unrecognized arguments: --mechanism"),
        (("--n", 0, "--steps", 1, "--epsilon", 1), "at least 1"),
        ((*EPOCHS, "--sampling", "full-batch"), "no --batch-size"),
        ((*EPOCHS, "--figure", "plan.txt"), "does not end in"),
    ],
)
def test_wrong_usage_is_one_line(capsys, options, words):
    assert_misused(capsys, ("plan", *options), words)
