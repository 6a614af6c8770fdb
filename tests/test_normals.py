import math

import mpmath
import numpy as np
import pytest
from oracles.normals import point, uniform
from scipy import stats

from antiphon.normals import _FORMATS, box_muller

UNIT = {32: 2.0**-24, 64: 2.0**-53}  # of rounding
RADIUS, COSINE, SINE = 2.5, 3.5, 4.5  # relative errors in these units
ONE = {32: 2605029369, 64: 11188515852577165299}  # words whose radius is 1: u = exp(−1/2)


def pairs(bits, radii, directions):
    """Both normals of each pair of words; either kind of words may be a single one."""
    words = np.zeros(
        (2, -(-max(np.size(radii), np.size(directions)) // 256) * 256), f"u{bits // 8}"
    )
    for row, some in zip(words, (radii, directions), strict=True):
        row[: np.size(some) if np.ndim(some) else None] = some
    groups = words.reshape(2, -1, 256).swapaxes(0, 1).reshape(-1).view(_FORMATS[bits].word)
    normals = np.empty(len(groups), _FORMATS[bits].real)
    box_muller(bits)(groups, normals)
    both = normals.reshape(-1, 2, 256).swapaxes(0, 1).reshape(2, -1)
    return both[:, : max(np.size(radii), np.size(directions))]


def radii_of(bits, words):
    """A direction of 0 is k = 1, whose cosine rounds to 1."""
    return pairs(bits, words, 0)[0]


def random_words(bits, count, seed=0):
    return np.random.default_rng(seed).integers(0, 2**bits, count, f"u{bits // 8}")


def words_of_all_sizes(bits, count):
    """Random words, and words close to 0, to 2^b and to where the exponent of u changes."""
    words = random_words(bits, count)
    few = words >> np.arange(count, dtype=words.dtype) % words.dtype.type(bits)
    ends = [2**e * (2 + third) // 3 for e in range(bits) for third in (0, 1, 2)]
    near = [(end + step) % 2**bits for end in ends for step in range(-3, 4)]
    return np.concatenate([words, few, ~few, np.array(near, words.dtype)])


def exact_radii(words):
    """Those of short words in double precision, from the nearer end of (0, 1)."""
    w = words.astype(float) + 0.5
    return np.sqrt(-2 * np.where(w < 2**31, np.log(w / 2**32), np.log1p((w - 2**32) / 2**32)))


# Against formulas


@pytest.mark.parametrize("bits", [32, 64])
def test_the_polynomials_are_the_fits_that_the_source_names(bits):
    functions = {
        "log": lambda z: 4 * (mpmath.atanh(mpmath.sqrt(z)) / mpmath.sqrt(z) - 1) / z,
        "sine": lambda q: mpmath.sin(mpmath.pi / 4 * mpmath.sqrt(q)) / mpmath.sqrt(q),
        "cosine": lambda q: (mpmath.cos(mpmath.pi / 4 * mpmath.sqrt(q)) - 1) / q,
    }
    errors = {32: (-19, -28, -32), 64: (-54, -58, -62)}[bits]
    for (name, function), error in zip(functions.items(), errors, strict=True):
        given = getattr(_FORMATS[bits], name)
        with mpmath.workdps(40):
            high = mpmath.mpf(1) / (25 if name == "log" else 1)
            fit = mpmath.chebyfit(function, [0, high], len(given))
            apart = (
                abs(mpmath.polyval(fit, x) - function(x)) for x in mpmath.linspace(0, high, 300)[1:]
            )
            assert max(apart) < 2.0**error
        real = _FORMATS[bits].real
        assert [real(c) for c in given] == [real(mpmath.nstr(c, 30)) for c in fit]


def check_short_radii(words):
    """Errors of the radii of ``words``, and of the law, between the staircase's midpoints."""
    r = radii_of(32, words).astype(float)
    exact = exact_radii(words)
    assert np.abs(r / exact - 1).max() < RADIUS * UNIT[32]
    law = np.abs(np.exp(-(r**2) / 2) - (words + 0.5) / 2.0**32)
    assert law.max() < 2.0**-23 - 2.0**-33
    assert law[r > 5].max(initial=0) < 2.0**-32 - 2.0**-33


def test_short_words_give_radii_of_their_uniforms():
    """A word w stands for the uniform u = (w + 1/2) / 2**32: P(r > x) = exp(−x²/2)."""
    ends = np.arange(2**16, dtype=np.uint32)  # beyond 5 standard deviations there are 16006
    for words in (ends, ~ends, np.arange(0, 2**32, 4099).astype(np.uint32)):
        check_short_radii(words)
    check_short_radii(words_of_all_sizes(32, 2**17))
    assert len(np.unique(radii_of(32, ends[:16_000]))) == 16_000


@pytest.mark.slow
def test_acceptance_every_short_word_gives_the_radius_of_its_uniform():
    block = np.arange(2**15, dtype=np.uint32)  # all arrays stay in the cache
    for start in range(0, 2**32, 2**15):
        check_short_radii(block + np.uint32(start))


def test_long_words_give_radii_of_their_uniforms():
    words = words_of_all_sizes(64, 1000)
    with mpmath.workdps(40):
        for word, r in zip(words.tolist(), radii_of(64, words).tolist(), strict=True):
            exact = mpmath.sqrt(-2 * mpmath.log(uniform(word, 64, mpmath.mpf)))
            assert abs(r / exact - 1) < RADIUS * UNIT[64]


@pytest.mark.parametrize("bits", [32, 64])
def test_directions_give_points_of_the_circle(bits):
    """With relative precision also next to the axes, for words of all sizes and all eight parts."""
    assert radii_of(bits, ONE[bits]) == 1
    words = words_of_all_sizes(bits, 200)
    parts = [0, 1, 2 ** (bits - 1), 2 ** (bits - 2), 3 * 2 ** (bits - 2) + 1]
    words = np.concatenate([words, *(words ^ words.dtype.type(part) for part in parts)])
    with mpmath.workdps(40):
        functions = mpmath.cos, mpmath.sin, mpmath.pi / 4
        for word, *found in zip(words.tolist(), *pairs(bits, ONE[bits], words), strict=True):
            exact = point(word, bits, *functions)
            for a, b in zip(found, exact, strict=True):
                allowed = COSINE if abs(b) > 0.7072 else SINE
                assert abs(float(a) / b - 1) < allowed * UNIT[bits]


def test_points_of_short_words_are_exact_on_a_dense_grid():
    k = np.concatenate([np.arange(1, 2**18, 2), np.arange(1, 2**30, 2**11 + 2)])
    k = np.concatenate([k, 2**30 - k])  # odd, from either end
    t = math.pi / 4 * k / 2**30
    cosine, sine = pairs(32, ONE[32], k - 1).astype(float)
    assert np.abs(cosine / np.cos(t) - 1).max() < COSINE * UNIT[32]
    assert np.abs(sine / np.sin(t) - 1).max() < SINE * UNIT[32]


@pytest.mark.parametrize("bits", [32, 64])
def test_the_extreme_words_give_finite_numbers_other_than_0(bits):
    top = 2**bits - 1
    radii = np.repeat(np.array([0, 1, top // 2, top // 2 + 1, top - 1, top], f"u{bits // 8}"), 4)
    directions = np.array([0, 1, top // 4, top] * 6, f"u{bits // 8}")
    size = np.abs(pairs(bits, radii, directions))
    assert size.max() == pytest.approx(math.sqrt((2 * bits + 2) * math.log(2)), rel=2.0**-23)
    assert size.max() == radii_of(bits, 0)
    assert radii_of(bits, top) == 2.0 ** (-bits / 2)
    assert size.min() > 2.0 ** (-1.5 * bits)


# Symmetry, rounding, groups


@pytest.mark.parametrize("bits", [32, 64])
def test_signs_and_places_change_with_one_bit_each_and_nothing_else_does(bits):
    radii, directions = random_words(bits, 10_000, seed=1), words_of_all_sizes(bits, 1000)[:10_000]
    radii = radii[: len(directions)]
    flip = directions.dtype.type
    first, second = pairs(bits, radii, directions)
    for bit, expected in (
        (bits - 1, (-first, second)),
        (bits - 2, (first, -second)),
    ):
        assert np.array_equal(pairs(bits, radii, directions ^ flip(1 << bit)), expected)
    swapped = pairs(bits, radii, directions ^ flip(1))
    assert np.array_equal(np.abs(swapped), np.abs([second, first]))
    assert np.array_equal(np.signbit(swapped), np.signbit([first, second]))


def horner(coefficients, x):
    y = coefficients[0]
    for c in coefficients[1:]:
        y = y * x + c
    return y


def fused_horner(coefficients, x):
    """What a compiler would make of it that fuses a product and a sum."""
    y = coefficients[0]
    for c in coefficients[1:]:
        y = (np.float64(y) * x + c).astype(x.dtype)
    return y


def rounded_one_by_one(bits, radii, directions, horner):
    """The same operations by NumPy, one array at a time; cosine and sine without signs."""
    real = _FORMATS[bits].real
    log, sine, cosine = (list(map(real, c)) for c in _FORMATS[bits][2:])
    digits = 1 + np.finfo(real).nmant
    low = radii.dtype.type(bits - digits)
    high = (radii >> low).astype(real)
    rest = ((radii % (1 << low)).astype(real) + real(0.5)) * real(2.0 ** -int(low))
    f = high + rest
    rest = (high - f) + rest
    m, e = np.frexp(f)
    n = digits - np.where(m < real(4 / 3) / 2, e - 1, e)
    y = (np.ldexp(f, n - digits + 1) - 2) + np.ldexp(rest, n - digits + 1)
    s = y / (4 + y)
    large = n.astype(real) * real(1.3862943611198906)
    total = large - y
    r = np.sqrt(total + (((large - total) - y) + s * (y - s * s * horner(log, s * s))))
    k = ((directions | 1) % 2 ** (bits - 2)).astype(real) * real(2.0 ** (2 - bits))
    return r * (1 + k * k * horner(cosine, k * k)), r * (k * horner(sine, k * k))


@pytest.mark.parametrize("bits", [32, 64])
def test_each_operation_is_rounded_on_its_own_and_a_fused_one_would_be_noticed(bits):
    radii = words_of_all_sizes(bits, 2**16)
    directions = random_words(bits, len(radii), seed=2) // 8 * 2  # no signs, no swaps
    found = pairs(bits, radii, directions)
    assert found.dtype == _FORMATS[bits].real
    assert np.array_equal(found, rounded_one_by_one(bits, radii, directions, horner))
    if bits == 32:
        fused = rounded_one_by_one(bits, radii, directions, fused_horner)
        assert (found != fused).sum() > 1000


@pytest.mark.parametrize("bits", [32, 64])
def test_an_array_may_end_within_a_group(bits):
    words = random_words(bits, 2048).view(_FORMATS[bits].word)
    whole = np.empty(2048, _FORMATS[bits].real)
    box_muller(bits)(words, whole)
    for size in (0, 1, 255, 256, 300, 511, 512, 513, 1024, 1300):
        part = np.full(2048, 7, whole.dtype)
        box_muller(bits)(words[: -(-size // 512) * 512], part[:size])
        assert np.array_equal(part[:size], whole[:size])
        assert (part[size:] == 7).all()


# The law of a pair


@pytest.mark.parametrize("bits", [32, 64])
def test_radius_and_angle_are_uniform_and_independent_and_a_lost_swap_is_noticed(bits):
    """False-alarm rate 1e-6: a chi-square test of 8 × 64 cells of equal probability."""
    radii, directions = random_words(bits, (2, 2**20), seed=3)

    def p_value(directions):
        a, b = pairs(bits, radii, directions).astype(float)
        ring = np.floor(8 * np.exp(-(a**2 + b**2) / 2)).astype(int)
        part = np.floor(64 * (np.arctan2(b, a) / math.tau % 1)).astype(int)
        return stats.chisquare(np.bincount(64 * ring + part, minlength=512)).pvalue

    assert p_value(directions) > 1e-6
    assert p_value(directions & ~directions.dtype.type(1)) < 1e-6


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
    words, found, expected = np.arange(512, dtype=np.int32), *np.empty((2, 512), np.float32)
    box_muller(32)(words, expected)
    trouble(monkeypatch, tmp_path)
    box_muller.__wrapped__(32)(words, found)
    assert np.array_equal(found, expected)
