import math

import mpmath as mp
import numpy as np
import pytest
from oracles.series import nu_autocorrelation

from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import NuFTRL
from antiphon.numerics import multiply
from antiphon.participation import FixedEpochs, MinSeparation, Once


@pytest.mark.parametrize("nu", [0.0, 0.01, 0.5, 0.99])
def test_columns_are_the_binomial_series(nu, T=30):
    column, inverse = NuFTRL(nu).column(T), NuFTRL(nu).inverse_column(T)
    for t in range(T):
        sign = (-1) ** t * (1 - nu) ** t
        assert column[t] == pytest.approx(float(sign * mp.binomial(-0.5, t)), rel=1e-12)
        assert inverse[t] == pytest.approx(float(sign * mp.binomial(0.5, t)), rel=1e-12)


def test_optimal_cc_is_the_square_root_of_prefix_sums(T=600):
    column = NuFTRL(0.0).column(T)
    np.testing.assert_allclose(multiply(column, column), 1.0, rtol=1e-12)


@pytest.mark.parametrize("nu", [0.3, 0.01, 1e-3])
@pytest.mark.parametrize(
    "participation", [Once(), FixedEpochs(3, 7), MinSeparation(2, 20)], ids=repr
)
def test_endlessly_many_steps_give_the_integral_over_the_circle(nu, participation):
    steps = participation.densest(100)
    lags = [abs(s - t) for s in steps for t in steps]
    square = sum(lags.count(lag) * nu_autocorrelation(nu, lag) for lag in set(lags))
    found = NuFTRL(nu).sensitivity(math.inf, participation)
    assert found == pytest.approx(float(mp.sqrt(square)), rel=1e-12)


@pytest.mark.parametrize("nu", [1e-2, 1e-4, 1e-7])
@mp.workdps(40)
def test_large_lags_and_small_damping_keep_their_digits(nu):
    lags = [1, 10, 100, 101, 342, 5000]
    found = NuFTRL(nu)._autocorrelation(np.array(lags, dtype=float))
    keep, half = 1 - mp.mpf(nu), mp.mpf(1) / 2
    for lag, value in zip(lags, found, strict=True):
        series = mp.hyp2f1(half, lag + half, lag + 1, keep**2)
        expected = keep**lag * mp.binomial(2 * lag, lag) / mp.mpf(4) ** lag * series
        assert value == pytest.approx(float(expected), rel=1e-8, abs=1e-300)


def test_optimal_cc_has_no_limit():
    with pytest.raises(UnsupportedError, match="Optimal CC"):
        NuFTRL(0.0).sensitivity(math.inf, Once())


def test_damping_scales_one_fit_for_all():
    plain, damped = NuFTRL(0.0).buffered(500, 4), NuFTRL(0.2).buffered(500, 4)
    np.testing.assert_allclose(damped.scales, 0.8 * np.array(plain.scales), rtol=1e-15)
    np.testing.assert_allclose(damped.decays, 0.8 * np.array(plain.decays), rtol=1e-15)
    relative = [b.column(500) / NuFTRL(nu).column(500) for b, nu in ((plain, 0.0), (damped, 0.2))]
    # Damped columns fall below the range of floats after some 3000 steps, not before 500.
    np.testing.assert_allclose(relative[0], relative[1], rtol=1e-9)


@pytest.mark.parametrize("T", [1, 2, 5, 12, 60])
def test_buffered_is_exact_under_many_participations_and_anytime(T):
    buffered = NuFTRL(0.0).buffered(T)
    assert buffered.sensitivity(T, FixedEpochs(1 + (T > 3), 3)).is_exact
    assert buffered.sensitivity(math.inf, MinSeparation(2, 3)).is_exact


def test_buffered_needs_a_buffer():
    with pytest.raises(PlanError, match="at least one term"):
        NuFTRL(0.1).buffered(100, buffers=0)
