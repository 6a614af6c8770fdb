"""The trainer that is attacked releases what its transcript says, and honest scores have their law."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import kstest

import antiphon as ap
from antiphon.audits import Attack, canaries, train, worst_case, worst_row
from antiphon.audits.lookup import Lookup
from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import BLT, Banded, Independent, LambdaCGD, NuFTRL, Tree
from antiphon.numerics import Generator
from antiphon.plans import Block, Draws, Recorded
from antiphon.training.run import VOTE, VOTES

MECHANISMS = {
    "independent": Independent(),
    "λ-CGD": LambdaCGD(0.9),
    "ν-FTRL": NuFTRL(0.05),
    "tree": Tree(),
    "banded": Banded((1.0, 0.5, 0.25)),
    "BLT": BLT((0.4, 0.2), (0.9, 0.5)),
}


def certificate(**options):
    values = {"n": 50, "sampling": ap.FullBatch(), "steps": 6, "mechanism": LambdaCGD(0.9),
              "noise_multiplier": 3.0} | options  # fmt: skip
    return ap.certify(ap.Plan(**values), 1e-5)


def test_without_noise_to_speak_of_the_streams_are_the_clipped_sums():
    claim = certificate(sampling=ap.Poisson(0.5), mechanism=Independent(), clip_norm=0.3)
    quiet = replace(claim, plan=claim.plan.with_noise(1e-6))
    coins = np.array([True, False, True, True, False])
    instance = canaries(quiet.plan, coins)
    transcript = train(quiet, instance, 5)
    expected = np.zeros((6, 5))
    for step, rows in enumerate(transcript.rows):
        expected[step, np.flatnonzero(coins)[rows]] = 1.0
    assert 0 < expected.sum() < 18
    for stream in transcript.streams:
        np.testing.assert_allclose(stream, expected, atol=1e-3)


def test_the_noise_is_that_of_the_mechanism():
    claim = certificate(relation="zero-out")
    instance = canaries(claim.plan, np.zeros(20, dtype=bool))
    noise = np.concatenate(train(claim, instance, 7).streams, 1)
    generator = Generator.seeded(7).spawn("noise")
    z = np.array([generator.normal([torch.zeros(41)], t)[0].numpy()[:40] for t in range(6)])
    expected = 3.0 * claim.plan.mechanism.decoder(6) @ z
    np.testing.assert_allclose(noise, np.sqrt(2) * expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", MECHANISMS)
def test_acceptance_dp_ftrl_16_scores_are_normal_with_the_certified_mu(name):
    # Kolmogorov-Smirnov on 4,000 canaries; false alarms at 1e-4 for each of two samples.
    claim = certificate(mechanism=MECHANISMS[name], noise_multiplier=6.0)
    coins = np.arange(4000) % 2 == 0
    instance = canaries(claim.plan, coins)
    scores = Attack(claim).scores(instance, train(claim, instance, 11))
    mechanism = claim.plan.known_mechanism()
    mu = float(mechanism.sensitivity(6, claim.plan.participation)) / 6.0
    for sample, mean in ((scores[coins], mu**2 / 2), (scores[~coins], -(mu**2) / 2)):
        assert kstest((sample - mean) / mu, "norm").pvalue > 1e-4
        assert kstest((sample - mean) / (1.3 * mu), "norm").pvalue < 1e-4  # a wrong scale is seen


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize(
    "sampling",
    [
        ap.OnePass(50),
        ap.ShuffledEpochs(100, reshuffle=True),
        ap.FullBatch(),
    ],
)
def test_scores_of_known_batches_have_the_means_of_their_energies(sampling, relation):
    claim = certificate(n=300, sampling=sampling, relation=relation, noise_multiplier=8.0)
    assert Attack(claim).is_gaussian
    coins = np.arange(300) % 2 == 0
    instance = canaries(claim.plan, coins)
    attack, transcript = Attack(claim), train(claim, instance, 3)
    seen = attack._seen(instance, transcript, 0)
    amplitude = claim.plan.amplitude
    energy = amplitude**2 * ((attack._encoder @ seen) ** 2).sum(0) / 64
    signs = np.where(coins, 1.0, -1.0)
    scores = attack.scores(instance, transcript)
    # Standardised, 300 normal numbers: Kolmogorov-Smirnov at 1e-4.
    assert kstest((scores - signs * energy / 2) / np.sqrt(energy), "norm").pvalue > 1e-4


def test_blocks_are_weighed_by_their_precision():
    blocks = (Block("first", 0.5, 9.0), Block("deep.second", 2.0, 12.0))
    claim = certificate(blocks=blocks, noise_multiplier=None)
    coins = np.arange(3000) % 2 == 0
    instance = canaries(claim.plan, coins)
    scores = Attack(claim).scores(instance, train(claim, instance, 4))
    mechanism = claim.plan.known_mechanism()
    mu = float(mechanism.sensitivity(6, claim.plan.participation)) * (9.0**-2 + 12.0**-2) ** 0.5
    assert kstest((scores[coins] - mu**2 / 2) / mu, "norm").pvalue > 1e-4


def test_votes_on_the_clip_norm_are_read_off_its_path():
    blocks = (Block("gradient", 1.0, 5.0), Block(VOTES, VOTE, 1e-3))
    claim = certificate(mechanism=Independent(), blocks=blocks, noise_multiplier=None, steps=4)
    for is_in in (True, False):
        instance = worst_case(claim.plan, is_in)
        votes = train(claim, instance, 4).votes
        # A ghost is always there and votes the other way.
        np.testing.assert_allclose(votes[:, 0], is_in - 1.0, atol=0.02)


def test_users_are_canaries_as_a_whole():
    claim = certificate(unit="user", noise_multiplier=1e-4, mechanism=Independent())
    found = train(claim, canaries(claim.plan, np.array([True, False, True])), 0)
    np.testing.assert_allclose(found.streams[1], np.tile([1.0, 0.0, 1.0], (6, 1)), atol=1e-2)
    assert [rows.tolist() for rows in found.rows] == [[0, 1]] * 6


@pytest.mark.parametrize("is_in", [True, False])
@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_the_others_of_a_fixed_size_batch_give_the_record_away(relation, is_in):
    plan = ap.Plan(n=6, sampling=ap.FixedSize(2), steps=40, mechanism=Independent(), relation=relation,
                   noise_multiplier=1e-6)  # fmt: skip
    quiet = replace(certificate(), plan=plan)
    instance = worst_case(quiet.plan, is_in)
    transcript = train(quiet, instance, 1)
    shown = transcript.streams[0][:, 0] - instance.others
    took_part = np.array([0 in rows for rows in transcript.rows])
    assert 0 < took_part.sum() < 40
    with_it = instance.present if is_in else instance.absent
    np.testing.assert_allclose(shown, with_it * took_part, atol=1e-3)
    assert with_it == (2.0 if is_in else {"zero-out": 1.0, "replace-one": 0.0}[relation])


def test_more_canaries_than_rows_are_refused():
    plan = ap.Plan(
        n=10, sampling=ap.FixedSize(2), steps=1, mechanism=Independent(), relation="zero-out"
    )
    with pytest.raises(UnsupportedError, match="no more canaries than the plan's 10"):
        canaries(plan, np.zeros(11, dtype=bool))


def test_a_data_set_without_any_canary_is_still_one():
    claim = certificate()
    instance = canaries(claim.plan, np.zeros(3, dtype=bool))
    assert np.isfinite(Attack(claim).scores(instance, train(claim, instance, 0))).all()


def test_in_a_recorded_schedule_the_most_exposed_row_is_attacked():
    batches = ((0, 1), (1, 2), (2, 3), (1, 3))
    plan = ap.Plan(n=4, sampling=Recorded(batches), steps=4, mechanism=LambdaCGD(0.9),
                   relation="zero-out", noise_multiplier=2.0)  # fmt: skip
    row, claim = worst_row(plan), ap.certify(plan, 1e-5)
    assert row == 1  # takes part in steps 0, 1 and 3
    instance = worst_case(plan, True, row)
    score = Attack(claim).scores(instance, train(claim, instance, 0))
    mu = float(plan.mechanism.sensitivity(4, plan.participation)) / 2
    assert abs(float(score[0]) - mu**2 / 2) < 5 * mu
    assert worst_row(claim.plan) == 1 and worst_row(certificate().plan) == 0


@pytest.mark.parametrize("sampling", [ap.Poisson(0.3), ap.FixedSize(4), ap.BallsInBins(3)])
def test_the_transcript_has_the_batches_that_were_drawn(sampling):
    plan = ap.Plan(n=12, sampling=sampling, steps=6, mechanism=Independent(), relation="zero-out",
                   noise_multiplier=1.0)  # fmt: skip
    instance = canaries(plan, np.ones(12, dtype=bool))
    found = train(replace(certificate(), plan=plan), instance, 8).rows
    draws = Draws(sampling, 12, Generator.seeded(8).spawn("sampling"))
    assert [rows.tolist() for rows in found] == [draws.rows(t).tolist() for t in range(6)]


def test_batches_of_fixed_size_keep_their_rows_under_add_remove():
    plan = ap.Plan(
        n=10, sampling=ap.FixedSize(2), steps=2, mechanism=Independent(), noise_multiplier=1.0
    )
    instance = canaries(plan, np.arange(10) % 2 == 0)
    assert len(instance.place) == 10
    assert len(train(replace(certificate(), plan=plan), instance, 0).rows) == 2


def test_blocks_are_layers_of_any_depth():
    model = Lookup(3, ("a.b", "a", "c"))
    assert [name for name, _ in model.named_parameters()] == ["a.weight", "a.b.weight", "c.weight"]
    for name in ("", "forward"):
        with pytest.raises(UnsupportedError, match="no layer can be called"):
            Lookup(3, (name,))


@pytest.mark.parametrize(("epsilon", "error"), [(0.0, PlanError), (np.inf, PlanError)])
def test_a_claim_without_a_positive_finite_epsilon_is_refused(epsilon, error):
    with pytest.raises(error, match="positive, finite ε"):
        Attack(replace(certificate(), epsilon=epsilon))


def test_plans_too_long_to_decode_are_refused():
    claim = certificate()
    long = replace(claim, plan=replace(claim.plan, steps=9000))
    with pytest.raises(UnsupportedError, match="at most 8192; the plan has 9000"):
        Attack(long)
