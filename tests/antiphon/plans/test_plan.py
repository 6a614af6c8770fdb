"""Plans: frozen, hashable, and back from JSON."""

import json
import math
from dataclasses import replace

import pytest

import antiphon as ap
from antiphon.errors import PlanError
from antiphon.mechanisms import Independent, NuFTRL, Restarted, Tree
from antiphon.participation import FixedEpochs, MinSeparation, Once, Reshuffled
from antiphon.plans import Block, GaussianRelease, PureRelease

SAMPLINGS = [
    ap.Poisson(rate=0.01),
    ap.FixedSize(batch=10),
    ap.ShuffledEpochs(batch=10),
    ap.ShuffledEpochs(batch=10, reshuffle=True),
    ap.BallsInBins(bins=5),
    ap.CyclicPoisson(rate=0.1, cycle=5),
    ap.FullBatch(),
    ap.OnePass(batch=10),
    ap.Recorded(tuple((i, i + 1) for i in range(20))),
]


def make(**changes):
    values = {"n": 1000, "sampling": ap.Poisson(0.01), "steps": 20, "mechanism": Tree()}
    return ap.Plan(**{**values, **changes})


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_a_plan_survives_json_and_keeps_its_hash(sampling):
    plan = make(
        sampling=sampling,
        mechanism=Restarted(NuFTRL(0.1), 2),
        relation="zero-out",
        noise_multiplier=1.1,
        blocks=(Block("w", 1.0, 2.0),),
        extra=(GaussianRelease(0.1, "a bound"), PureRelease(0.2)),
    )
    again = ap.Plan.from_json(plan.to_json())
    assert again == plan
    assert again.hash == plan.hash
    assert hash(again) == hash(plan)


def test_auto_survives_json():
    assert ap.Plan.from_json(make(mechanism="auto").to_json()).mechanism == "auto"


def test_independent_noise_has_its_name_as_in_make_private():
    named = make(mechanism="independent", noise_multiplier=1.0)
    assert named == make(mechanism=Independent(), noise_multiplier=1.0)
    assert named.known_mechanism() == Independent() and replace(named, steps=21).steps == 21
    written = json.dumps({**json.loads(named.to_json()), "mechanism": "independent"})
    assert ap.Plan.from_json(written) == named


def test_every_field_changes_the_hash():
    base = make(noise_multiplier=1.0)
    others = [
        replace(base, n=1001),
        replace(base, steps=21),
        replace(base, clip_norm=2.0),
        replace(base, relation="zero-out"),
        replace(base, noise_multiplier=1.5),
        replace(base, unit="user"),
        replace(base, sampling=ap.Poisson(0.02)),
        replace(base, mechanism=NuFTRL(0.1)),
        replace(base, extra=(PureRelease(0.1),)),
        replace(base, blocks=(Block("w", 1.0, 1.0),)),
    ]
    assert len({plan.hash for plan in (base, *others)}) == len(others) + 1


def test_patterns_follow_the_sampling():
    assert make(sampling=ap.Poisson(0.01)).participation == MinSeparation(20, 1)
    assert make(sampling=ap.FullBatch()).participation == MinSeparation(20, 1)
    assert make(sampling=ap.OnePass(50)).participation == Once()
    assert make(sampling=ap.BallsInBins(5)).participation == FixedEpochs(4, 5)
    assert make(sampling=ap.CyclicPoisson(0.1, 6)).participation == FixedEpochs(4, 6)
    assert make(sampling=ap.ShuffledEpochs(100)).participation == FixedEpochs(2, 10)
    assert make(sampling=ap.ShuffledEpochs(300)).participation == FixedEpochs(5, 4)
    assert make(sampling=ap.ShuffledEpochs(100, reshuffle=True)).participation == Reshuffled(2, 10)
    assert make(sampling=ap.ShuffledEpochs(10)).participation == FixedEpochs(1, 20)


def test_the_divisor_is_public():
    sizes = [make(sampling=s).expected_batch for s in SAMPLINGS]
    assert sizes == pytest.approx([10, 10, 10, 10, 200, 20, 1000, 10, 2])


def test_noise_scale_needs_noise():
    with pytest.raises(PlanError, match="calibrate"):
        _ = make().noise_scale
    assert make(noise_multiplier=2.0, clip_norm=0.5).noise_scale == 1.0
    with pytest.raises(PlanError, match="still 'auto'"):
        make(mechanism="auto").known_mechanism()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 0}, "n must be a whole number"),
        ({"steps": 0}, "steps must be a whole number"),
        ({"clip_norm": 0.0}, "clip_norm must be positive"),
        ({"clip_norm": math.nan}, "clip_norm must be positive"),
        ({"noise_multiplier": 0.0}, "noise_multiplier must be positive"),
        ({"noise_multiplier": math.inf}, "noise_multiplier must be positive"),
        ({"relation": "swap"}, "add-remove, zero-out, replace-one"),
        ({"unit": "row"}, "'example' or 'user'"),
        (
            {"mechanism": "tree"},
            r"'auto', 'independent' or .*; got 'tree'.*mechanism_of\(name, plan",
        ),
        ({"sampling": ap.FixedSize(2000)}, "cannot be drawn from 1000"),
        ({"sampling": ap.ShuffledEpochs(2000)}, "larger than the 1000 records"),
        ({"sampling": ap.OnePass(500)}, "has 2 steps; 20 were asked for"),
        ({"sampling": ap.BallsInBins(50)}, "do not complete one epoch"),
        ({"sampling": ap.CyclicPoisson(0.5, 50)}, "do not complete one cycle"),
    ],
)
def test_a_plan_that_cannot_run_is_refused(changes, message):
    with pytest.raises(PlanError, match=message):
        make(**changes)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, math.nan])
def test_a_rate_that_is_no_probability_is_refused(rate):
    with pytest.raises(PlanError, match=r"in \(0, 1\]"):
        ap.Poisson(rate)
    with pytest.raises(PlanError, match=r"in \(0, 1\]"):
        ap.CyclicPoisson(rate, 3)


@pytest.mark.parametrize("kind", [ap.FixedSize, ap.ShuffledEpochs, ap.OnePass, ap.BallsInBins])
def test_an_empty_batch_or_bin_is_refused(kind):
    with pytest.raises(PlanError, match="at least 1"):
        kind(0)


@pytest.mark.parametrize("event", [lambda: GaussianRelease(0.0), lambda: PureRelease(math.nan)])
def test_a_release_without_a_cost_is_refused(event):
    with pytest.raises(PlanError, match="positive and finite"):
        event()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "JSON object"),
        ("{}", "not a plan"),
        (
            json.dumps({**json.loads(make().to_json()), "sampling": {"kind": "lottery"}}),
            "'kind' out of",
        ),
        (json.dumps({**json.loads(make().to_json()), "surprise": 1}), "not a plan"),
        (json.dumps({**json.loads(make().to_json()), "extra": [{"kind": "x"}]}), "an event needs"),
    ],
)
def test_broken_json_is_refused(text, message):
    with pytest.raises(PlanError, match=message):
        ap.Plan.from_json(text)


def test_a_recorded_schedule_protects_every_unit_by_its_own_batches():
    schedule = ap.Recorded([[0, 1], [1, 2], [], [1]])
    plan = ap.Plan(
        n=5, sampling=schedule, steps=4, mechanism=Tree(), noise_multiplier=3.0, relation="zero-out"
    )
    assert plan.expected_batch == 1.25
    assert plan.participation.patterns == ((0,), (0, 1, 3), (1,))
    assert ap.certify(plan, 1e-3).route == "gaussian"
    everyone = replace(plan, sampling=ap.FullBatch())
    assert ap.certify(plan, 1e-3).epsilon < ap.certify(everyone, 1e-3).epsilon


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([[0, 0]], "twice"),
        ([[-1]], "negative"),
        ([[0.5]], "whole"),
        ([[]], "not empty"),
        ([[0], [1], [2]], "3 batches"),
        ([[0], [99]], "row 99"),
    ],
)
def test_bad_schedules_are_refused(batches, message):
    with pytest.raises(PlanError, match=message):
        ap.Plan(n=5, sampling=ap.Recorded(batches), steps=2, mechanism=Tree())


def test_a_release_for_other_neighbours_is_refused():
    event = GaussianRelease(0.1, "bounds of the columns", "add-remove")
    plan = ap.Plan(n=100, sampling=ap.FullBatch(), steps=2, mechanism=Tree(), extra=(event,))
    assert ap.Plan.from_json(plan.to_json()) == plan
    with pytest.raises(PlanError, match=r"bounds of the columns was released .* under add-remove"):
        replace(plan, relation="replace-one")
    anywhere = replace(plan, extra=(PureRelease(0.1, "a count"),), relation="replace-one")
    assert anywhere.extra[0].relation is None
    with pytest.raises(PlanError, match="relation"):
        GaussianRelease(0.1, "bounds", "neighbours")
