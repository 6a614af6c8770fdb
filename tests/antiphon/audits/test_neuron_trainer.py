"""The audit of one ReLU neuron: near a tight ε where it is honest, and an alarm where a rule is broken.

False alarms: each verdict accuses an honest run with probability at most 0.001; seeds are fixed.
"""

from dataclasses import replace
from functools import partial
from types import FunctionType
from unittest.mock import patch

import numpy as np
import pytest
from oracles.mutants import STRICT, Mutant

import antiphon as ap
from antiphon.accounting import gaussian_mu
from antiphon.audits import canaries, one_run, play, train_neuron, two_world, worst_case
from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import Independent, LambdaCGD, Tree
from antiphon.plans import Block
from antiphon.training.neuron import descent
from antiphon.training.neuron import neuron_kernel as kernel

DELTA = 16_512**-1.1


def claim(epsilon=8.0, delta=DELTA, **options):
    """One step of batch 32, as of DP-MBGLMtron, unless told otherwise."""
    values = {"n": 32, "sampling": ap.OnePass(32), "steps": 1, "mechanism": Independent(),
              "relation": "replace-one", "clip_norm": 4.743} | options  # fmt: skip
    return ap.certify(ap.calibrate(ap.Plan(**values), epsilon, delta), delta)


# Broken parts.


def stretched(X, y, rows, w, clip_norm, is_gradient, out):
    """Directions "clipped" by max{1, s/‖v‖}, as printed: long ones stay, short ones are stretched."""
    for i in rows:
        v = (max(X[i] @ w, 0.0) - y[i]) * X[i]
        norm = np.linalg.norm(v)
        if norm > 0:
            out += v * max(1.0, clip_norm / norm)


def max_clip(certificate, instance, seed, **options):
    """The real loop of steps, interpreted, with another clip."""
    broken = {**vars(kernel), "_add_directions": stretched}
    steps = FunctionType(kernel.run_steps.py_func.__code__, broken)
    with patch.object(descent, "run_steps", steps):
        return train_neuron(certificate, instance, seed, **options)


def half_the_noise(certificate, instance, seed, **options):
    """Noise f s for a sensitivity of 2 s: the factor 2 of replace-one is forgotten."""
    plan = certificate.plan
    other = replace(certificate, plan=plan.with_noise(plan.known_noise() / 2))
    return train_neuron(other, instance, seed, **options)


def passes(times):
    """The pass is repeated, certified as one."""

    def run(certificate, instance, seed):
        plan = certificate.plan
        again = replace(
            plan, sampling=ap.ShuffledEpochs(plan.sampling.batch), steps=times * plan.steps
        )
        return train_neuron(replace(certificate, plan=again), instance, seed)

    return run


def one_pass():
    return claim(n=12, sampling=ap.OnePass(4), steps=3)


MUTANTS = {
    m.rule: m
    for m in [
        Mutant("max in place of min", "two-world", claim, max_clip, train_neuron, runs=200),
        Mutant("no factor 2 for replace-one", "two-world", claim, half_the_noise, train_neuron, runs=600),
        Mutant("a second pass", "two-world", one_pass, passes(2), train_neuron, runs=600),
        Mutant("fifty passes", "two-world", one_pass, passes(50), train_neuron, runs=45),
    ]
}  # fmt: skip


@pytest.mark.parametrize("rule", MUTANTS)
def test_a_broken_neuron_is_caught(rule):
    assert MUTANTS[rule].is_caught(MUTANTS[rule].trainer)


@pytest.mark.parametrize("rule", MUTANTS)
def test_the_honest_neuron_passes_where_a_broken_one_is_caught(rule):
    assert not MUTANTS[rule].is_caught(MUTANTS[rule].honest)


@pytest.mark.slow
def test_acceptance_relu_22_a_correct_step_audits_near_its_epsilon_and_broken_ones_beyond():
    # 0.94 of ε is expected, with a standard deviation of 0.024.
    tight = claim(2.0)
    assert tight.plan.known_noise() / 2 == pytest.approx(1.903, abs=1e-3)
    found = two_world(tight, runs=40_000, trainer=train_neuron)
    assert 1.8 <= found.audited_epsilon <= 2.0 and found.verdict == "consistent"
    halved = two_world(tight, runs=8000, trainer=half_the_noise)
    assert halved.audited_epsilon > 4 and halved.is_violation
    wild = two_world(tight, runs=3000, trainer=partial(max_clip, long=100.0))
    assert wild.audited_epsilon > 40 and wild.is_violation


@pytest.mark.parametrize("direction", ["glmtron", "sgd"])
@pytest.mark.parametrize("options", [
    {"sampling": ap.FullBatch(), "steps": 5, "relation": "add-remove"},
    {"sampling": ap.OnePass(4), "steps": 8, "mechanism": Tree(), "clip_norm": 1e-3},
    {"sampling": ap.OnePass(4), "steps": 8, "mechanism": LambdaCGD(0.9), "clip_norm": 50.0},
])  # fmt: skip
def test_streams_are_clipped_sums_and_the_plans_noise(options, direction):
    quiet = claim(n=32, **options)
    quiet = replace(quiet, plan=quiet.plan.with_noise(1e-7))
    coins = np.arange(32) % 3 == 0
    instance = canaries(quiet.plan, coins)
    found = train_neuron(quiet, instance, 4, direction=direction)
    expected = np.zeros((quiet.plan.steps, 32))
    for step, rows in enumerate(found.rows):
        expected[step, instance.place[rows]] = instance.size[rows]
    for stream in found.streams:
        np.testing.assert_allclose(stream, expected, atol=1e-5)
    assert expected.any()


@pytest.mark.parametrize("mechanism", [Independent(), Tree(), LambdaCGD(0.9)])
def test_scores_of_honest_runs_have_the_certified_mu(mechanism):
    tight = claim(6.0, n=16, sampling=ap.OnePass(4), steps=4, mechanism=mechanism)
    worlds = play(tight, 250, trainer=train_neuron)
    mu = gaussian_mu(6.0, DELTA)
    signs = np.where(worlds.is_in, 1.0, -1.0)
    z = signs * worlds.scores
    seen = z.mean() / (mu**2 / 2)  # a record of the middle has a smaller energy than the worst one
    assert 0.4 < seen < 1.15
    assert z.std() ** 2 == pytest.approx(2 * z.mean(), rel=0.45)  # five standard errors


def test_one_run_has_room_for_some_hundred_canaries():
    found = one_run(claim(8.0, n=400, sampling=ap.FullBatch(), relation="zero-out"), canaries=400,
                    trainer=train_neuron, verdict_confidence=STRICT)  # fmt: skip
    assert 0 < found.ratio < 1 and not found.is_violation


def test_what_cannot_be_audited_is_refused():
    tight = claim()
    with pytest.raises(UnsupportedError, match="has blocks"):
        blocks = replace(tight.plan, blocks=(Block("first", 1.0, 9.0),), noise_multiplier=None)
        train_neuron(replace(tight, plan=blocks), worst_case(tight.plan, True), 0)
    with pytest.raises(UnsupportedError, match="too many"):
        many = claim(n=5000, sampling=ap.FullBatch(), relation="zero-out")
        train_neuron(many, canaries(many.plan, np.ones(5000, bool)), 0)
    with pytest.raises(PlanError, match="longer than the clip norm"):
        train_neuron(tight, worst_case(tight.plan, True), 0, long=0.5)
