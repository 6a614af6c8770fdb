"""Sums and noise on the public grid: exactly those points, and with Gaussian probabilities."""

import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.grid import on_grid, spacing_of
from oracles.normals import groups_of

from antiphon.numerics import Generator
from antiphon.numerics.grid import add_noise, spacing
from antiphon.numerics.normals import fill_normals

LONG = (torch.float32, torch.float64)
SHORT = (torch.float16, torch.bfloat16)


def noisy(sums, z, scale=1.0, dtype=None, **options):
    out = torch.empty(sums.shape, dtype=dtype or sums.dtype)
    add_noise(sums, z, scale, out, **options)
    return out


def normals(count, seed=0):
    return Generator.seeded(seed).normal(torch.empty(count, dtype=torch.float64), 0)


@given(st.floats(1e-30, 1e30), st.sampled_from(LONG))
def test_the_grid_is_a_power_of_two_near_a_4096th_of_the_noise(deviation, dtype):
    step = spacing(deviation, dtype)
    assert math.frexp(step)[0] == 0.5
    assert 2**-13 < step / deviation <= 2**-12
    assert step == spacing_of(deviation)


@pytest.mark.parametrize(
    "dtype, least",
    [(torch.float16, 2.0**-24), (torch.bfloat16, 2.0**-133), (torch.float32, 2.0**-149),
     (torch.float64, 2.0**-1022)],
)  # fmt: skip
def test_no_grid_is_finer_than_its_type(dtype, least):
    assert spacing(1e-320, dtype) == spacing(0.0, dtype) == least
    assert torch.tensor(least, dtype=dtype) > 0


@given(
    st.lists(st.floats(-1e9, 1e9, width=32), min_size=1, max_size=9),
    st.floats(1e-5, 1e5),
    st.sampled_from([0.25, 1.0, 3.0]),
    st.sampled_from([(a, b) for a in LONG for b in LONG]),
)
def test_a_release_is_the_nearest_point_of_the_grid_in_exact_arithmetic(sums, scale, unit, types):
    given_type, found_type = types
    total, z = torch.tensor(sums, dtype=given_type), normals(len(sums))
    found = noisy(total, z, scale, found_type, deviation=scale * unit)
    expected = torch.from_numpy(on_grid(total, z, scale, unit))
    assert torch.equal(found, expected.to(found_type))


@pytest.mark.parametrize("dtype", SHORT)
def test_short_types_get_the_grid_rounded_once_more(dtype):
    sums, z = torch.linspace(-3, 3, 1000).to(dtype), normals(1000)
    expected = torch.from_numpy(on_grid(sums.double(), z, 0.5)).to(torch.float32).to(dtype)
    assert torch.equal(noisy(sums, z, 0.5), expected)


def test_zero_has_no_sign():
    """The sign of a zero would tell on which side of it the sum lies."""
    sums = torch.tensor([-0.4, 0.4, -0.4, 0.4, -0.0, 0.0]) * 2**-12
    z = torch.tensor([0.2, 0.09, -0.09, -0.2, -0.1, 0.1], dtype=torch.float64) * 2**-12
    for out in (noisy(sums, z), noisy(sums.double(), z)):
        assert not out.any()
        assert not torch.signbit(out).any()


def test_sums_far_beyond_the_noise_and_non_finite_ones_stay_what_they_are():
    sums = torch.tensor([1e30, -1e300, 2.0**60, math.inf, -math.inf, math.nan], dtype=torch.float64)
    for scale in (1.0, 1e-310):
        torch.testing.assert_close(
            noisy(sums, normals(6), scale), sums, rtol=0, atol=0, equal_nan=True
        )


def test_huge_noise_stays_finite():
    found = noisy(torch.ones(100, dtype=torch.float64), normals(100), 1e300)
    torch.testing.assert_close(found, 1e300 * normals(100), rtol=0, atol=1e300 * 2**-12)


def test_views_take_their_numbers_where_they_are_and_nothing_else_is_written():
    out, sums, z = (
        torch.full((6, 8), 7.0),
        torch.arange(48.0).view(8, 6).t(),
        normals(48).view(6, 8),
    )
    add_noise(sums[:, ::2], z[:, :4], 1.0, out[:, 1::2])
    assert torch.equal(out[:, 1::2], noisy(sums[:, ::2].contiguous(), z[:, :4].contiguous()))
    assert (out[:, ::2] == 7).all()
    again = z.clone()
    add_noise(sums.double(), again, 1.0, again)
    assert torch.equal(again, noisy(sums.double(), z))


def test_overwriting_what_autograd_has_saved_is_noticed():
    x, weight = torch.ones(3, requires_grad=True), torch.ones(3)
    loss = (x * weight).sum()
    add_noise(weight, normals(3), 1.0, weight)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


# The probability of a cell

ETA = mpmath.mpf(2) ** -53


def error(z):
    return 11 * ETA * abs(z) + mpmath.mpf(2) ** -57


def mass(low, high):
    """The normal probability of an interval, without cancellation."""
    if low < 0 < high:
        return mass(0, high) + mass(0, -low)
    low, high = sorted((abs(low), abs(high)))
    return (mpmath.erfc(low / mpmath.sqrt(2)) - mpmath.erfc(high / mpmath.sqrt(2))) / 2


def shells(ends):
    """An upper bound on the probability of radii below 2^−5 whose cell the digits of u leave open."""
    two = mpmath.mpf(2)
    one_end = sum(4 * two ** (j - 64) * two**-j / (2 * mpmath.pi) for j in range(5, 32)) + two**-65
    return one_end * sum(abs(end) < two**-4 for end in ends)


def beyond(z):
    """P(r > 13.3), given one of its coordinates."""
    return mpmath.erfc(mpmath.sqrt((mpmath.mpf("13.3") ** 2 - z * z) / 2))


@pytest.mark.parametrize("width", [2.0**-13, 2.0**-12.5, 2.0**-12])
def test_no_cell_within_11_is_further_from_its_gaussian_probability_than_stated(width):
    """What rounding can move across the ends of a cell, added up in 60 digits."""
    tight = 0
    with mpmath.workdps(60):
        for middle in np.concatenate([np.linspace(0, 11 - width, 400), np.arange(9) * width / 8]):
            low = mpmath.mpf(middle) - mpmath.mpf(width) / 2
            high = low + mpmath.mpf(width)
            exact = mass(low, high)
            left_out = shells((low, high)) + exact * beyond(high)
            most = mass(low - error(low), high + error(high)) + left_out
            least = mass(low + error(low), high - error(high)) - left_out
            ratio = max(mpmath.log(most / exact), -mpmath.log(least / exact))
            stated = mpmath.mpf(2) ** -35 * (abs(high) + mpmath.mpf(2) ** -7)
            assert ratio <= stated
            tight += ratio > stated / 3
    assert tight > 10 or width > 2.0**-13


def test_what_is_left_out_is_as_unlikely_as_stated():
    with mpmath.workdps(60):
        assert mpmath.exp(-(mpmath.mpf(13) ** 2) / 2) < mpmath.mpf(2) ** -121
        assert mpmath.exp(-(mpmath.mpf("13.3") ** 2) / 2) < mpmath.mpf(2) ** -127
        # A pair of cells next to 0: four edges, of which two can come near to it.
        near = sum(2 * mpmath.mpf(2) ** -62 for _ in range(12, 32)) + 4 * mpmath.mpf(2) ** -62
        area = mpmath.mpf(2) ** -26
        assert (near + mpmath.pi * mpmath.mpf(2) ** -64) / area < 0.8 * mpmath.mpf(2) ** -30
        tau, numbers, failure = mpmath.mpf(2) ** -31, mpmath.mpf(10) ** 10, mpmath.mpf(10) ** -15
        total = 2 * tau**2 * numbers + 2 * tau * mpmath.sqrt(numbers * mpmath.log(1 / failure))
        assert total < 6e-4


def first_word(direction, sums, scale, is_there):
    """The least word of a radius at which a condition on what is released holds; it holds from there on."""
    low, high = 2**48, 2**64  # the condition fails at the first, holds at the last
    while high - low > 1:
        words = [low + (high - low) * i // 257 for i in range(1, 257)]
        z = np.empty(512)
        groups = groups_of(np.array(words, np.uint64), np.uint64(direction))
        groups[256:] = np.uint64(direction).view(np.int64)
        fill_normals()(groups, z, np.empty(256, np.int64))
        out = torch.empty(256, dtype=torch.float64)
        total = torch.full((256,), sums, dtype=torch.float64)
        add_noise(total, torch.from_numpy(z[:256]), scale, out)
        holds = is_there(out.numpy()).tolist()
        place = holds.index(True) if True in holds else 256
        low = words[place - 1] if place else low
        high = words[place] if place < 256 else high
    return high


@pytest.mark.parametrize("direction", [2**61 + 12345678, 123 << 50, 2**62 - 2])
@pytest.mark.parametrize("sums, scale", [(0.0, 1.0), (0.3, 0.7), (1e6 / 3, 1.9)])
def test_words_that_give_a_cell_are_as_many_as_its_gaussian_probability_says(
    direction, sums, scale
):
    """All words of a radius, counted by bisection, for one direction at a time."""
    step = spacing(scale, torch.float64)
    with mpmath.workdps(60):
        cosine = mpmath.cos(mpmath.pi / 4 * ((direction | 1) % 2**62) / mpmath.mpf(2) ** 62)
        for away in (0.5, 1.0, 2.0, 3.0):
            k = round((sums + away * scale) / step)
            ends = [(mpmath.mpf(k + half) * step - sums) / scale for half in (-0.5, 0.5)]
            exact = [mpmath.exp(-((end / cosine) ** 2) / 2) for end in ends]
            # Smaller words have larger radii: the release falls as the word grows.
            words = [
                first_word(direction, sums, scale, lambda out, q=q: out <= q * step)
                for q in (k, k - 1)
            ]
            count, probability = words[1] - words[0], exact[0] - exact[1]
            stated = 2.0**-35 * (away + 1) / float(cosine) ** 2
            assert abs(mpmath.log(count / mpmath.mpf(2) ** 64 / probability)) <= stated
