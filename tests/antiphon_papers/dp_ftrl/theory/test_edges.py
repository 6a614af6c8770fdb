"""Where the formulas of correlated noise end: noise that grows, narrow peaks, lost digits, bad input."""

import math

import mpmath
import numpy as np
import pytest

from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import BLT, Independent
from antiphon_papers import dp_ftrl
from antiphon_papers.common.condition import Condition
from antiphon_papers.dp_ftrl.theory.elliptic import nu_integral
from antiphon_papers.dp_ftrl.theory.frequency import noise_fades, warped_grid

GROWING = BLT((1.6,), (0.5,))
RUN = {"spectrum": [1.0, 0.5], "learning_rate": 0.1}


def test_a_blt_whose_noise_grows_is_told_from_one_whose_noise_fades():
    rng = np.random.default_rng(0)
    for _ in range(200):
        count = rng.integers(1, 4)
        blt = BLT(tuple(rng.uniform(0.01, 1.2, count)), tuple(rng.uniform(0.05, 0.95, count)))
        a, x = np.array(blt.scales), np.array(blt.decays)
        margin = (a / (1 + x)).sum() - 1
        if abs(margin) > 0.05:
            assert noise_fades(blt) == (margin < 0)
            beta = np.abs(blt.inverse_column(500))
            assert (beta[-1] < 1e-2) == (margin < 0)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: dp_ftrl.f_infinity(GROWING, **RUN),
        lambda: dp_ftrl.two_sided(GROWING, **RUN),
        lambda: dp_ftrl.filter_error(GROWING, **RUN),
        lambda: dp_ftrl.mean_error(GROWING, learning_rate=0.1),
        lambda: dp_ftrl.noise_gain(GROWING, learning_rate=0.5, condition_number=10.0),
        lambda: dp_ftrl.quadratic_gains(GROWING, learning_rate=0.5, condition_number=10.0),
        lambda: dp_ftrl.strongly_convex_bound(GROWING, learning_rate=0.5, strong_convexity=0.1),
    ],
)
def test_noise_that_grows_has_no_stationary_error(ask):
    finite = dp_ftrl.expected_excess(GROWING, 300, start=[0.0, 0.0], **RUN)
    assert finite[-1] > 1e20
    with pytest.raises(UnsupportedError, match="grows"):
        ask()


def test_a_fitted_blt_fades():
    """Of a response with a steep peak: the mean of |B|² alone would take zeros within the unit circle."""
    for power in (2, 4, 6):
        for buffers in (1, 2, 6):
            blt = dp_ftrl.fit_blt(
                lambda w, p=power: 1 / np.abs(1 - 0.9 * np.exp(1j * w)) ** p, 0.1, buffers
            )
            assert noise_fades(blt) and np.abs(blt.inverse_column(2000)[-1]) < 1e-6


def test_a_multiplier_whose_x_nearly_vanishes_is_refused():
    """A trapezoidal sum that steps over a pole of 1/X would be seven times too small."""
    weight = 0.9547846574470334
    multiplier = dp_ftrl.Multiplier(19.09569314894067, (397,), (weight,), (weight,))
    with pytest.raises(UnsupportedError, match="too close to 0"):
        dp_ftrl.certified_gain(dp_ftrl.Descent(1.9, 0.5), multiplier, np.ones_like)


@pytest.mark.parametrize(("eta", "kappa"), [(0.1, 100.0), (1.0, 100.0)])
def test_the_optimised_gain_is_that_of_its_own_noise(eta, kappa):
    found = dp_ftrl.optimized_ftrl(learning_rate=eta, condition_number=kappa)
    frequencies = np.linspace(0, np.pi, (1 << 19) + 1)
    psi = np.sqrt(found.filter.response(frequencies))
    mean = (psi.sum() - (psi[0] + psi[-1]) / 2) / (len(psi) - 1)
    assert found.gain.value == pytest.approx(mean**2, rel=1e-9)
    assert found.filter.value == found.gain.value


def test_lower_bounds_hold_near_the_largest_stable_learning_rate():
    for eta in (1.5, 1.9, 1.9999, 1.999999):
        # ν = 2 - η: noise √(1 + (1-ν)z) is the best there, as that of ν-FTRL is at small η.
        nu = 2 - eta
        best = nu_integral(nu, nu) / (2 * math.pi)
        found = dp_ftrl.smallest_filter_error(spectrum=[1.0], learning_rate=eta)
        assert found == pytest.approx(best**2, rel=1e-9)
    for eta in (2.0, 5.0):
        with pytest.raises(PlanError, match="below 2, or descent diverges"):
            dp_ftrl.smallest_filter_error(spectrum=[1.0], learning_rate=eta)


def test_a_grid_may_be_dense_at_both_ends():
    frequencies, weights = warped_grid(1e-5, far=1e-6)
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    for centre, width in ((0.0, 1e-5), (math.pi, 1e-6)):
        z = (1 - width) * np.exp(1j * (frequencies - centre))
        exact = 1 / (1 - (1 - width) ** 2)
        assert weights @ (1 / np.abs(1 - z) ** 2) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("a", [0.5, 0.3, 1e-6])
@pytest.mark.parametrize("ratio", [0.5, 1e-2, 1e-4, 1e-8, 1e-12])
def test_integrals_keep_their_digits_where_b_is_far_below_a(a, ratio):
    b = a * ratio
    with mpmath.workdps(40):
        modulus = (mpmath.mpf(a) / (2 - mpmath.mpf(a))) ** 2
        shape = (mpmath.mpf(a) * (1 - mpmath.mpf(b) / 2) / (b * (1 - mpmath.mpf(a) / 2))) ** 2
        third = mpmath.elliprf(0, modulus, 1)
        third += (1 - shape) / 3 * mpmath.elliprj(0, modulus, 1, shape)
        exact = float(
            2 * mpmath.mpf(a) ** 2 / (mpmath.mpf(b) ** 2 * (1 - mpmath.mpf(a) / 2)) * third
        )
    assert nu_integral(a, b) == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dp_ftrl.strongly_convex_bound(
            Independent(), learning_rate=0.1, strong_convexity=0.1, clip_norm=math.nan), "clip_norm"),
        (lambda: dp_ftrl.independent_rate(**RUN, clip_norm=-1.0), "clip_norm"),
        (lambda: dp_ftrl.nu_bound(0.01, **RUN, clip_norm=math.nan), "clip_norm"),
        (lambda: dp_ftrl.theorem_2_2_printed(**RUN, clip_norm=0.0), "clip_norm"),
        (lambda: dp_ftrl.advise(10, spectrum=[1.0, 0.5], start=[1.0]), "one finite number for each of 2"),
        (lambda: dp_ftrl.advise(10, spectrum=[1.0], start=[1.0], learning_rates=[]), "is empty"),
        (lambda: dp_ftrl.advise(2000, spectrum=[1.0], start=[1.0], learning_rates=[50.0]), "not finite"),
        (lambda: dp_ftrl.noise_gain(
            Independent(), learning_rate=0.1, condition_number=10.0, lags=-1), "number of lags"),
        (lambda: dp_ftrl.Multiplier(math.nan, (), (), ()), "add up to at most its constant"),
        (lambda: dp_ftrl.Multiplier(1.0, (-3,), (0.1,), (0.1,)), "lags are whole numbers above 0"),
        (lambda: dp_ftrl.theorem_d11(
            5, stationary=-1.0, excess=1.0, smallest=0.1, largest=1.0, learning_rate=0.1,
            radius_squared=3.0), "stationary"),
        (lambda: dp_ftrl.theorem_d11(
            5, stationary=1.0, excess=1.0, smallest=2.0, largest=1.0, learning_rate=0.1,
            radius_squared=3.0), "cannot be above the largest"),
        (lambda: dp_ftrl.ftrl(
            dp_ftrl.MeanProblem(), Independent(), 3, 0.5, noise_multiplier=0.0, start=[math.inf]),
         "one finite number"),
        (lambda: dp_ftrl.filter_against(np.zeros_like, 0.1), "positive and finite at every frequency"),
        (lambda: dp_ftrl.power_law(3, math.nan), "exponent must be finite"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(PlanError, match=message):
        call()


def test_a_strict_condition_fails_at_its_limit():
    assert Condition.at_most("x <= 2", 2.0, 2.0).holds
    assert not Condition.at_most("x < 2", 2.0, 2.0, strictly=True).holds
