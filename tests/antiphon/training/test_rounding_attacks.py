"""Attacks on the rounding of noise: they tell sums apart under naive noise, and guess under ours.

Whoever attacks knows both candidate sums, which differ in one record, and sees one release. Seeds are
fixed; the false-alarm rate that a test states is the share of seeds for which perfect noise would fail it.
"""

import math

import numpy as np
import pytest
import torch
from oracles import naive_noise
from scipy import stats
from torch import nn

import antiphon as ap
from antiphon.mechanisms import Independent
from antiphon.numerics import Generator
from antiphon.numerics.grid import add_noise

SCALE = 50.0
SUMS = (0.0, 0.37)  # of each number, without the record and with it
FAR = {32: 5.15, 64: 5.25}  # radii from which on the words of so many bits are apart


def scores(released, bits, scale=SCALE, sums=SUMS):
    """How far words of radii are from whole numbers, in standard deviations of chance, for each candidate.

    ``released`` has the shape (…, 2, pairs). Chance gives 0 ± 1; the right candidate, under naive noise,
    many more.
    """
    found = []
    for total in sums:
        z = (released.astype(float) - total) / scale
        squared = (z**2).sum(-2)
        far = squared[squared > FAR[bits] ** 2]
        words = np.exp(bits * math.log(2) - far / 2) - 0.5
        off = np.abs(words - np.round(words))
        assert len(off) >= 8
        found.append((0.25 - off.mean()) * math.sqrt(48 * len(off)))
    return found


def ours(seed, total, bits, scale=SCALE):
    """The pairs that are far out among 2^25 numbers, released as a step does."""
    generator, found = Generator.seeded(seed), []
    z = torch.empty(2**20, dtype=torch.float64)
    sums = torch.full_like(z, total, dtype=torch.float32 if bits == 32 else torch.float64)
    out = torch.empty_like(sums)
    for step in range(32):
        add_noise(sums, generator.normal_(z, step), scale, out)
        both = out.view(-1, 2, 256).swapaxes(0, 1).flatten(1)
        found.append(both[:, (both**2).sum(0) > (scale * (FAR[bits] - 0.05)) ** 2])
    return torch.cat(found, 1).numpy()


# Words of radii


@pytest.mark.parametrize("bits", [32, 64])
def test_words_of_naive_noise_tell_the_sum_every_time(bits):
    generator = np.random.default_rng(0)
    for trial in range(20):
        z = naive_noise.pairs(generator, 20, bits, beyond=FAR[bits] + 0.02)
        found = scores(naive_noise.added(SUMS[trial % 2], z, SCALE), bits)
        assert found[trial % 2] > 5
        assert found[trial % 2] > found[1 - trial % 2]


@pytest.mark.parametrize("bits", [32, 64])
def test_words_of_our_noise_tell_nothing(bits):
    """False-alarm rate 5e-4: guesses of 12 releases neither all right nor all wrong, scores within 5."""
    right = 0
    for trial in range(12):
        found = scores(ours(trial, SUMS[trial % 2], bits), bits)
        assert max(map(abs, found)) < 5
        right += found[trial % 2] > found[1 - trial % 2]
    assert 0 < right < 12


def test_without_the_grid_tails_of_64_bits_would_tell_nothing_either():
    """The further bits of small words alone; false-alarm rate 6e-7."""
    z = Generator.seeded(11).normal(torch.empty(2**25, dtype=torch.float64), 0)
    assert abs(scores(z.numpy().reshape(-1, 2, 256), 64, 1.0, (0.0,))[0]) < 5


# Digits that floating point leaves out next to 0


def share_of_coarse_numbers(released):
    """Of numbers near 0, those that are whole multiples of a digit that noise alone falls below."""
    near = released[np.abs(released) < 2.0**-6].astype(float) * 2.0**24
    assert len(near) > 50
    return float((near == np.round(near)).mean())


def test_naive_sums_near_0_have_lost_the_digits_that_noise_alone_has():
    """A sum of 1 and noise near −1 has the digits of 1 (Mironov, 2012)."""
    generator = np.random.default_rng(1)
    for _ in range(10):
        z = naive_noise.pairs(generator, 10_000, 32).ravel()
        without, with_record = (naive_noise.added(total, z, 1.0) for total in (0.0, 1.0))
        assert share_of_coarse_numbers(with_record) == 1
        assert share_of_coarse_numbers(without) < 0.9


def near_points(total, seed, dtype):
    """Points of the grid within 64 of 0 that a release of a million numbers with unit noise has."""
    z = Generator.seeded(seed).normal(torch.empty(2_000_000, dtype=torch.float64), 0)
    out = torch.empty(2_000_000, dtype=dtype)
    add_noise(torch.full((2_000_000,), total, dtype=dtype), z, 1.0, out)
    assert share_of_coarse_numbers(out.numpy()) == 1
    points = out.double() * 2**12
    assert torch.equal(points, points.round())
    return points[points.abs() < 64].long()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("total", [0.0, 1.0, 1 / 3, 1 - 2**-20])
def test_our_sums_reach_the_same_points_whatever_the_sum(total, dtype):
    """No point is missed, nor any low digit preferred; false-alarm rate 1e-6 for each case."""
    points = near_points(total, 3, dtype)
    assert len(points.unique()) == 127
    assert stats.chisquare(torch.bincount(points % 16)[1:].numpy()).pvalue > 1e-6


# A whole run


def test_weights_after_one_private_step_tell_nothing_of_a_record():
    """The final weights of a run of a certified ε of 0.06; false-alarm rate 1e-6."""
    side, rate, n = 3600, 0.1, 5
    model = nn.Linear(side, side, bias=False)
    nn.init.zeros_(model.weight)
    rows = torch.zeros(n, side)
    rows[0] = 10.0
    plan = ap.Plan(n=n, sampling=ap.FullBatch(), steps=1, mechanism=Independent(),
                   noise_multiplier=SCALE, relation="zero-out")  # fmt: skip
    run = ap.make_private(
        model, torch.optim.SGD(model.parameters(), rate), rows, lambda model, x: model(x).sum(),
        plan=plan, delta=1e-5, seed=5,
    ).train(show=False)  # fmt: skip
    run.close()
    released = (-model.weight.detach().double().flatten() / rate * n).numpy()
    pairs = released[: len(released) // 512 * 512].reshape(-1, 2, 256)
    found = scores(pairs, 32, sums=(0.0, 1 / side * (1 - 3e-6)))
    assert max(map(abs, found)) < 5
    points = released / n * 2**9  # the grid of noise 50 / n
    assert np.abs(points - np.round(points)).max() < 0.01
