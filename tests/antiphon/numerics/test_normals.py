import math

import mpmath
import numpy as np
import pytest
from oracles.normals import groups_of, point, uniform
from scipy import stats

from antiphon.numerics import compiled, normals
from antiphon.numerics.normals import SMALL, extended, fill_normals, fill_tails

UNIT = 2.0**-53  # of rounding
RADIUS, COSINE, SINE = 2.5, 3.5, 4.5  # relative errors in these units
ONE = 11188515852577165299  # the word whose radius is 1: u = exp(−1/2)


def pairs(radii, directions):
    """Both normals of each pair of words, before small words get more bits."""
    words = groups_of(radii, directions)
    found = np.empty(len(words))
    fill_normals()(words, found, np.empty(len(words) // 2, np.int64))
    both = found.reshape(-1, 2, 256).swapaxes(0, 1).reshape(2, -1)
    return both[:, : max(np.size(radii), np.size(directions))]


def radii_of(words):
    """A direction of 0 is k = 1, whose cosine rounds to 1."""
    return pairs(words, 0)[0]


def tails(words, more, directions):
    """Both normals of each pair whose first word is small."""
    groups = groups_of(words, directions)
    found = np.zeros(len(groups))
    longer, exponents = np.array(
        [extended(*pair) for pair in zip(words, more, strict=True)]
    ).T.copy()
    fill_tails()(groups, np.arange(len(words)), longer, exponents, found)
    both = found.reshape(-1, 2, 256).swapaxes(0, 1).reshape(2, -1)
    return both[:, : len(words)]


def random_words(count, seed=0):
    return np.random.default_rng(seed).integers(0, 2**64, count, np.uint64)


def words_of_all_sizes(count):
    """Random words, and words close to 0, to 2^64 and to where the exponent of u changes."""
    words = random_words(count)
    few = words >> np.arange(count, dtype=np.uint64) % np.uint64(64)
    ends = [2**e * (2 + third) // 3 for e in range(64) for third in (0, 1, 2)]
    near = [(end + step) % 2**64 for end in ends for step in range(-3, 4)]
    return np.concatenate([words, few, ~few, np.array(near, np.uint64)])


def small_words():
    """Small words of all sizes with further bits of all sizes, the extremes among them."""
    rng = np.random.default_rng(4)
    words = [0] * 140 + [int(w) >> s % 48 for s, w in enumerate(rng.integers(0, SMALL, 200))]
    bits = [int.from_bytes(rng.bytes(16), "little") for _ in words]
    more = [b >> s if s < 128 else s - 128 for s, b in enumerate(bits[:140])] + bits[140:]
    return [*words, 0, SMALL - 1], [*more, 2**128 - 1, 2**128 - 1]


# Against formulas


def test_the_polynomials_are_the_fits_that_the_source_names():
    functions = {
        "_LOG": lambda z: 4 * (mpmath.atanh(mpmath.sqrt(z)) / mpmath.sqrt(z) - 1) / z,
        "_SINE": lambda q: mpmath.sin(mpmath.pi / 4 * mpmath.sqrt(q)) / mpmath.sqrt(q),
        "_COSINE": lambda q: (mpmath.cos(mpmath.pi / 4 * mpmath.sqrt(q)) - 1) / q,
    }
    for (name, function), error in zip(functions.items(), (-54, -58, -62), strict=True):
        given = getattr(normals, name)
        with mpmath.workdps(40):
            high = mpmath.mpf(1) / (25 if name == "_LOG" else 1)
            fit = mpmath.chebyfit(function, [0, high], len(given))
            apart = (
                abs(mpmath.polyval(fit, x) - function(x)) for x in mpmath.linspace(0, high, 300)[1:]
            )
            assert max(apart) < 2.0**error
        assert list(given) == [float(mpmath.nstr(c, 30)) for c in fit]


def test_words_give_radii_of_their_uniforms():
    words = words_of_all_sizes(1000)
    words = words[words >= SMALL]
    with mpmath.workdps(40):
        for word, r in zip(words.tolist(), radii_of(words).tolist(), strict=True):
            exact = mpmath.sqrt(-2 * mpmath.log(uniform(word, number=mpmath.mpf)))
            assert abs(r / exact - 1) < RADIUS * UNIT


def test_small_words_give_radii_of_their_uniforms_with_more_bits():
    words, more = small_words()
    with mpmath.workdps(80):
        for word, bits, r in zip(words, more, tails(words, more, 0)[0].tolist(), strict=True):
            exact = mpmath.sqrt(-2 * mpmath.log(uniform(word, bits, mpmath.mpf)))
            assert abs(r / exact - 1) < RADIUS * UNIT


def test_no_digit_of_a_small_uniform_is_lost():
    """Beyond the 64th digit from the highest 1, down to u = 2^−128."""
    words, more = small_words()
    with mpmath.workdps(80):
        for word, bits in zip(words, more, strict=True):
            full = (mpmath.mpf(word) * 2**128 + bits + 0.5) / mpmath.mpf(2) ** 192
            near = uniform(word, bits, mpmath.mpf)
            assert abs(near / full - 1) <= mpmath.mpf(2) ** -64 or full < mpmath.mpf(2) ** -128
            m, e = extended(word, bits)
            assert -(2**63) <= m < 2**63
            assert (mpmath.mpf(m % 2**64) + 0.5) / mpmath.mpf(2) ** (64 + e) == near


def test_directions_give_points_of_the_circle():
    """With relative precision also next to the axes, for words of all sizes and all eight parts."""
    assert radii_of(ONE) == 1
    words = words_of_all_sizes(200)
    parts = [0, 1, 2**63, 2**62, 3 * 2**62 + 1]
    words = np.concatenate([words, *(words ^ np.uint64(part) for part in parts)])
    with mpmath.workdps(40):
        functions = mpmath.cos, mpmath.sin, mpmath.pi / 4
        for word, *found in zip(words.tolist(), *pairs(ONE, words), strict=True):
            exact = point(word, *functions)
            for a, b in zip(found, exact, strict=True):
                allowed = COSINE if abs(b) > 0.7072 else SINE
                assert abs(float(a) / b - 1) < allowed * UNIT


def test_a_number_is_as_near_to_an_exact_normal_as_the_docstring_says():
    """Over all corners of the cells of u and t: exact normals are made of points within."""
    radii = words_of_all_sizes(150)
    radii = np.concatenate([radii[radii >= SMALL], ~(2 ** np.arange(1, 50, dtype=np.uint64))])
    directions = np.resize(words_of_all_sizes(100), len(radii)) & np.uint64(2**62 - 2)
    both = pairs(radii, directions).T
    with mpmath.workdps(50):
        two, worst = mpmath.mpf(2), 0.0
        for w, d, found in zip(radii.tolist(), directions.tolist(), both.tolist(), strict=True):
            for u in (w, w + 1):
                if u == 2**64:
                    continue
                r = mpmath.sqrt(-2 * mpmath.log(u / two**64))
                if not 2.0**-20 <= r <= 13.3:
                    continue
                off = two**-65 * mpmath.exp(r * r / 2) / r
                for k in (d, d + 2):
                    t = mpmath.pi / 4 * k / two**62
                    for one, z in zip(found, (r * mpmath.cos(t), r * mpmath.sin(t)), strict=True):
                        allowed = 8 * UNIT * abs(z) + abs(z) * off / r + two**-62 * r
                        worst = max(worst, float(abs(one - z) / allowed))
        assert 0.2 < worst < 1


def test_the_extreme_words_give_finite_numbers_other_than_0():
    top = 2**64 - 1
    radii = np.repeat(np.array([SMALL, top // 2, top // 2 + 1, top - 1, top], np.uint64), 4)
    directions = np.array([0, 1, top // 4, top] * 5, np.uint64)
    size = np.abs(pairs(radii, directions))
    assert size.min() > 2.0**-96
    assert radii_of(top) == 2.0**-32
    least = np.abs(tails([0, 0], [0, 2**128 - 1], np.array([0, 0], np.uint64)))
    assert least[0, 0] == pytest.approx(math.sqrt(386 * math.log(2)), rel=1e-15)
    assert least[0, 0] < 16.36
    assert np.isfinite(least).all()


# Symmetry, rounding, groups


def test_signs_and_places_change_with_one_bit_each_and_nothing_else_does():
    radii, directions = random_words(10_000, seed=1), words_of_all_sizes(1000)[:10_000]
    radii = radii[: len(directions)]
    first, second = pairs(radii, directions)
    for bit, expected in ((63, (-first, second)), (62, (first, -second))):
        assert np.array_equal(pairs(radii, directions ^ np.uint64(1 << bit)), expected)
    swapped = pairs(radii, directions ^ np.uint64(1))
    assert np.array_equal(np.abs(swapped), np.abs([second, first]))
    assert np.array_equal(np.signbit(swapped), np.signbit([first, second]))


def horner(coefficients, x):
    y = coefficients[0]
    for c in coefficients[1:]:
        y = y * x + c
    return y


def fused_horner(coefficients, x):
    """What a compiler would make of it that fuses a product and a sum."""
    y = np.longdouble(coefficients[0])
    for c in coefficients[1:]:
        y = (y * x + c).astype(np.float64).astype(np.longdouble)
    return y.astype(np.float64)


def rounded_one_by_one(radii, directions, horner):
    """The same operations by NumPy, one array at a time; cosine and sine without signs."""
    high = (radii >> np.uint64(11)).astype(float)
    rest = ((radii % np.uint64(2**11)).astype(float) + 0.5) * 2.0**-11
    f = high + rest
    rest = (high - f) + rest
    m, e = np.frexp(f)
    n = 53 - np.where(m < 4 / 3 / 2, e - 1, e)
    y = (np.ldexp(f, n - 52) - 2) + np.ldexp(rest, n - 52)
    s = y / (4 + y)
    large = n.astype(float) * 1.3862943611198906
    total = large - y
    r = np.sqrt(total + (((large - total) - y) + s * (y - s * s * horner(normals._LOG, s * s))))
    k = ((directions | np.uint64(1)) % np.uint64(2**62)).astype(float) * 2.0**-62
    cosine, sine = (horner(c, k * k) for c in (normals._COSINE, normals._SINE))
    return r * (1 + k * k * cosine), r * (k * sine)


def test_each_operation_is_rounded_on_its_own_and_a_fused_one_would_be_noticed():
    radii = words_of_all_sizes(2**16)
    directions = (
        random_words(len(radii), seed=2) // np.uint64(8) * np.uint64(2)
    )  # no signs, no swaps
    found = pairs(radii, directions)
    assert np.array_equal(found, rounded_one_by_one(radii, directions, horner))
    if np.finfo(np.longdouble).nmant >= 63:
        fused = rounded_one_by_one(radii, directions, fused_horner)
        assert (found != fused).sum() > 1000


def test_an_array_may_end_within_a_group():
    words, spare = random_words(2048).view(np.int64), np.empty(1024, np.int64)
    whole = np.empty(2048)
    fill_normals()(words, whole, spare)
    for size in (0, 1, 255, 256, 300, 511, 512, 513, 1024, 1300):
        part = np.full(2048, 7.0)
        fill_normals()(words[: -(-size // 512) * 512], part[:size], spare)
        assert np.array_equal(part[:size], whole[:size])
        assert (part[size:] == 7).all()


def test_small_words_are_found_and_their_pairs_alone_are_written_again():
    words = random_words(2048, seed=6) | np.uint64(2**63)
    places = {
        0: 0,
        255: 255,
        513: 257,
        1535 - 256: 512 + 255,
    }  # of radii; the numbers of their pairs
    for place in places:
        words[place] = SMALL - 1
    words[1536 + 7] = SMALL  # not small
    words[300] = 1  # a direction
    found, drawn = np.empty(1024, np.int64), np.empty(2048)
    assert fill_normals()(words.view(np.int64), drawn, found) == len(places)
    assert found[: len(places)].tolist() == list(places.values())
    again = drawn[:1300].copy()
    longer, exponents = np.array([extended(SMALL - 1, 5)] * len(places)).T.copy()
    fill_tails()(words.view(np.int64), found[: len(places)], longer, exponents, again)
    moved = np.flatnonzero(again != drawn[:1300])
    assert set(moved.tolist()) <= {p + half for p in places for half in (0, 256)}
    assert len(moved) >= 3  # the last pair has its second number beyond the end


# The law of a pair


def test_radius_and_angle_are_uniform_and_independent_and_a_lost_swap_is_noticed():
    """False-alarm rate 1e-6: a chi-square test of 8 × 64 cells of equal probability."""
    radii, directions = random_words((2, 2**20), seed=3)

    def p_value(directions):
        a, b = pairs(radii, directions)
        ring = np.floor(8 * np.exp(-(a**2 + b**2) / 2)).astype(int)
        part = np.floor(64 * (np.arctan2(b, a) / math.tau % 1)).astype(int)
        return stats.chisquare(np.bincount(64 * ring + part, minlength=512)).pvalue

    assert p_value(directions) > 1e-6
    assert p_value(directions & ~np.uint64(1)) < 1e-6


# Compilation


def no_place(monkeypatch, tmp_path):
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])


def no_room(monkeypatch, tmp_path):
    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("numba.core.caching.Cache.save_overload", fail)


@pytest.mark.parametrize("trouble", [no_place, no_room])
def test_without_a_cache_the_function_is_compiled_in_memory(trouble, monkeypatch, tmp_path):
    words, spare = random_words(512).view(np.int64), np.empty(256, np.int64)
    found, expected = np.empty((2, 512))
    fill_normals()(words, expected, spare)
    trouble(monkeypatch, tmp_path)
    again = compiled.compiled(normals._normals, "int64(int64[::1], float64[::1], int64[::1])")
    again(words, found, spare)
    assert np.array_equal(found, expected)
