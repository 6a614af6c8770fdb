"""The strongly convex bound: its cone program, certification, sign and optimum."""

import itertools
import math

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import minimize

from antiphon.certificates import certify
from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import BLT, Banded, BandedInverse, Independent, LambdaCGD, NuFTRL
from antiphon_papers import dp_ftrl
from antiphon_papers.dp_ftrl import Descent, Multiplier
from antiphon_papers.dp_ftrl.theory import cone
from antiphon_papers.dp_ftrl.theory.cone import (
    _Found,
    _Program,
    _projected,
    _solve,
    cone_rows,
    solve_cone,
)
from antiphon_papers.dp_ftrl.theory.frequency import response_of, warped_grid
from antiphon_papers.dp_ftrl.theory.multipliers import lags_for
from antiphon_papers.dp_ftrl.theory.strongly_convex import _sag

EASY = {"learning_rate": 1.0, "condition_number": 10.0}

# DP-SGD, ν = ημ, best ν, optimised; and what quadratics alone need: the first two, and any noise.
FIGURE_3 = {
    (0.1, 10): (1.0243, 0.15142, 0.1508, 0.15044, 0.5032, 0.047029, 0.047011),
    (0.1, 100): (21.306, 1.8806, 1.766, 1.7434, 5.0035, 0.084015, 0.083983),
    (0.1, 1000): (380.2, 24.06, 20.98, 19.91, 50.005, 0.13185, 0.1318),
    (1.0, 10): (13.442, 10.049, 9.510, 9.3267, 5.6648, 3.0418, 2.8715),
    (1.0, 100): (255.25, 143.03, 124.2, 116.2, 50.722, 6.1416, 5.8125),
    (1.0, 1000): (4365.4, 1960.0, 1541.0, 1350.5, 500.75, 10.337, 9.864),
}


@pytest.fixture(scope="module")
def optimized():
    return dp_ftrl.optimized_ftrl(**EASY, terms=600)


@pytest.mark.parametrize(("eta", "kappa"), FIGURE_3)
def test_acceptance_dp_ftrl_17_figure_3_given_noise(eta, kappa):
    run = {"learning_rate": eta, "condition_number": kappa}
    independent, correlated, *_, sgd_limit, nu_limit, any_limit = FIGURE_3[eta, kappa]
    for mechanism, value, limit in (
        (Independent(), independent, sgd_limit),
        (NuFTRL(eta / kappa), correlated, nu_limit),
    ):
        found = dp_ftrl.noise_gain(mechanism, **run)
        assert found.value == pytest.approx(value, rel=2e-3)
        assert found.margin > 0 and found.gap < 1e-4
        needed = dp_ftrl.quadratic_gains(mechanism, **run)
        assert needed == pytest.approx((limit, any_limit), rel=2e-4)
        assert found.value >= needed[0] >= needed[1]


@pytest.mark.parametrize(
    ("eta", "kappa"),
    [pytest.param(*key, marks=pytest.mark.slow if key != (1.0, 10) else ()) for key in FIGURE_3],
)
def test_acceptance_dp_ftrl_17_figure_3_slow_optimised_noise(eta, kappa):
    run = {"learning_rate": eta, "condition_number": kappa}
    independent, correlated, best, optimised, *_ = FIGURE_3[eta, kappa]
    tolerance = 0.02 if kappa == 1000 else 0.01
    nu, _ = dp_ftrl.best_strongly_convex_nu(**run)
    found = dp_ftrl.noise_gain(NuFTRL(nu), **run).value
    assert found == pytest.approx(best, rel=tolerance)
    optimum = dp_ftrl.optimized_ftrl(**run)
    assert optimum.gain.value == pytest.approx(optimised, rel=tolerance)
    assert optimum.gain.margin > 0
    assert optimum.gain.value < found * 1.001 < correlated * 1.002 < independent


def test_acceptance_dp_ftrl_17_static_multiplier_and_lags():
    found = [dp_ftrl.noise_gain(Independent(), lags=n, **EASY).value for n in (0, 1, 2, 4, 16)]
    assert found[0] == pytest.approx(16.1264, abs=2e-3)
    assert found[-1] == pytest.approx(13.442, abs=2e-3)
    # Lags 1, then 1 and 30, and so on: each set contains the one before it.
    frequencies, means = warped_grid(0.1, 300)
    nested = [
        solve_cone(Descent(1.0, 0.1), frequencies, means, lags).value
        for lags in ((), (1,), (1, 2), (1, 2, 3, 5), (1, 2, 3, 5, 8, 13))
    ]
    assert all(b <= a * (1 + 1e-5) for a, b in itertools.pairwise(nested))


def test_acceptance_dp_ftrl_17_correlated_noise():
    found = dp_ftrl.noise_gain(NuFTRL(0.1), **EASY)
    assert found.value == pytest.approx(10.049, abs=1e-2)
    assert found.sought == pytest.approx(found.value, rel=1e-3)


def test_acceptance_dp_ftrl_18_sign_of_the_multiplier():
    path = np.array([1.0, -2.0] * 10)
    slopes = np.where(path > 0, path, 0.1 * path)
    run = {"weights": [1.0, 1.0], "mu": 0.1, "smoothness": 1.0}
    assert dp_ftrl.multiplier_sum(path, slopes, sign=1, **run) == pytest.approx(-0.81)
    assert dp_ftrl.multiplier_sum(path, slopes, sign=-1, **run) == pytest.approx(0.81)


def test_multipliers_of_the_right_sign_never_fail():
    rng = np.random.default_rng(0)
    for _ in range(200):
        path = rng.normal(size=16)
        left, right = rng.uniform(0.1, 1.0, 2)
        slopes = np.where(path > 0, right * path, left * path)
        tail = rng.dirichlet(np.ones(6))
        run = {"weights": [1.0, *tail], "mu": 0.1, "smoothness": 1.0}
        assert dp_ftrl.multiplier_sum(path, slopes, sign=-1, **run) >= -1e-12


def test_the_cone_program_is_as_a_general_optimiser_solves_it():
    # Without cones: y eliminated, a smooth function of the multiplier, by sequential quadratic programs.
    descent, lags = Descent(1.0, 0.2), (1, 3)
    frequencies, means = warped_grid(descent.width, 60)

    def parts(x):
        t = np.outer(frequencies, lags)
        u = x[0] - np.cos(t) @ (x[1:3] + x[3:5])
        v = -np.sin(t) @ (x[1:3] - x[3:5])
        return u, cone_rows(descent, u, v, frequencies)

    def value(x):
        u, (X, real, imag) = parts(x)
        if X.min() <= 0:
            return 1e6
        return float(means @ np.maximum((real**2 + imag**2) / X - 2 * u, 0.0))

    constraints = [
        {"type": "ineq", "fun": lambda x: x[0] - x[1:].sum()},
        {"type": "ineq", "fun": lambda x: parts(x)[1][0].min() - 1e-6},
    ]
    start = np.array([20.0, 0.1, 0.1, 0.1, 0.1])
    bounds = [(0.0, None)] * 5
    general = minimize(value, start, method="SLSQP", bounds=bounds, constraints=constraints)
    found = solve_cone(descent, frequencies, means, lags)
    assert found.value == pytest.approx(general.fun, rel=1e-4)
    u, v = found.multiplier.parts(frequencies)
    X, real, imag = cone_rows(descent, u, v, frequencies)
    own = float(means @ np.maximum((real**2 + imag**2) / X - 2 * u, 0.0))
    assert found.value == pytest.approx(own, rel=1e-12)


@pytest.mark.parametrize(
    ("eta", "kappa"),
    [
        (0.1, 10),
        (0.1, 1000),
        (0.1, 1e4),
        (1.0, 1000),
        (1.0, 1e4),
        (0.001, 2),
        (1.0, 1.01),
        (1.99, 10),
    ],
)
@pytest.mark.parametrize("noise", ["independent", "nu"])
def test_the_cone_program_is_solved_at_all_scales(eta, kappa, noise):
    descent = Descent(eta, 1 / kappa)
    frequencies, means = warped_grid(descent.width, 400)
    mechanism = Independent() if noise == "independent" else NuFTRL(min(0.9, descent.width))
    weights = means * dp_ftrl.power_spectrum(mechanism, frequencies)
    found = solve_cone(descent, frequencies, weights, lags_for(descent))
    assert 0 <= found.gap <= 5e-6 * found.value
    assert found.value > weights @ descent.quadratic_response(frequencies)


def test_the_inequality_that_is_solved_is_the_printed_one():
    rng = np.random.default_rng(0)
    frequencies = np.linspace(0.01, np.pi, 100)
    for eta, mu in rng.uniform((0.05, 0.05), (1.9, 0.9), (50, 2)):
        descent = Descent(eta, mu)
        weights = tuple(rng.dirichlet(np.ones(4)) * 50)
        multiplier = Multiplier(60.0, (1, 3), weights[:2], weights[2:])
        u, v = multiplier.parts(frequencies)
        X, real, imag = cone_rows(descent, u, v, frequencies)
        away = (1 - np.exp(1j * frequencies)) / eta - (1 + mu) / 2
        E = 1 + u * (1 - mu) ** 2 / 2
        y = (E + np.abs(E - 1j * (1 - mu) * v * away) ** 2 / X) / np.abs(away) ** 2
        np.testing.assert_allclose((real**2 + imag**2) / X - 2 * u, y, rtol=1e-8, atol=1e-8)


def test_the_lower_bound_holds_whatever_the_dual_variables():
    rng = np.random.default_rng(0)
    descent = Descent(1.0, 0.1)
    frequencies, means = warped_grid(descent.width, 60)
    program = _Program(descent, frequencies, means, (1, 2, 5))
    found = program.search()
    value = program.value(_projected(found, program.lags))
    best = program.lower_bound(found.dual)
    assert value * (1 - 1e-6) < best <= value
    for _ in range(300):
        scale = 10 ** rng.uniform(-6, 2)
        moved = tuple(part * (1 + scale * rng.normal(size=60)) for part in found.dual)
        assert program.lower_bound(moved) <= value
    nothing = np.zeros(60)
    middle = means @ dp_ftrl.Descent(1.0, 0.1).quadratic_response(frequencies)
    assert 0 < program.lower_bound((nothing, nothing, nothing)) < middle


def test_what_the_solver_leaves_just_outside_becomes_a_valid_multiplier():
    forward, backward = np.array([0.7, -1e-9]), np.array([-1e-12, 0.3 + 1e-9])
    nothing = np.zeros(1)
    found = _Found(1.0, forward, backward, (nothing, nothing, nothing), 1)
    multiplier = _projected(found, (1, 2))
    assert multiplier.forward == (0.7, 0.0) and multiplier.backward == (0.0, 0.3 + 1e-9)
    assert multiplier.constant == pytest.approx(1.0) and multiplier.constant > 1


def test_searches_that_fail_are_refused(monkeypatch):
    descent, frequencies = Descent(1.0, 0.1), np.array([0.1, 1.0])
    x = cp.Variable()
    with pytest.raises(UnsupportedError, match="the solver calls it infeasible"):
        _solve(cp.Problem(cp.Minimize(x), [x >= 1, x <= 0]))
    with pytest.raises(UnsupportedError, match="X is not positive"):
        _Program(descent, frequencies, np.ones(2), ()).value(Multiplier(1.0, (), (), ()))
    monkeypatch.setattr(cone, "_GAP", -1.0)
    with pytest.raises(UnsupportedError, match="from the best"):
        solve_cone(descent, frequencies, np.ones(2), (1,))


def test_one_fourier_transform_gives_the_parts_of_a_multiplier():
    multiplier = Multiplier(2.0, (1, 5), (0.3, 0.2), (0.1, 0.4))
    for direct, quick in zip(
        multiplier.parts(np.linspace(0, np.pi, 65)), multiplier.uniform_parts(64), strict=True
    ):
        np.testing.assert_allclose(quick, direct, atol=1e-13)


def test_a_multiplier_that_proves_nothing_is_refused():
    descent = Descent(1.0, 0.1)
    with pytest.raises(UnsupportedError, match="does not prove a bound"):
        dp_ftrl.certified_gain(descent, Multiplier(1.0, (), (), ()), np.ones_like)
    value, margin, _ = dp_ftrl.certified_gain(descent, Multiplier(8.0, (), (), ()), np.ones_like)
    assert value > 16.12 and margin > 0


def test_between_frequencies_x_sags_by_no_more_than_is_allowed_for():
    descent, multiplier = Descent(1.0, 0.1), Multiplier(8.0, (1, 40), (1.0, 2.0), (0.5, 1.0))
    grid = np.linspace(0, np.pi, 129)
    sag = _sag(descent, multiplier, grid)

    def X(frequencies):
        return cone_rows(descent, *multiplier.parts(frequencies), frequencies)[0]

    ends = np.minimum(X(grid)[1:], X(grid)[:-1])
    below = []
    for share in np.linspace(0.05, 0.95, 19):
        below.append(ends - X(grid[:-1] + share * np.diff(grid)))
    assert (np.max(below, axis=0) <= sag).all()
    assert np.max(below) > 0.1 * sag.max() > 0  # it is needed, and not far too large


def test_spectra_too_narrow_to_be_seen_are_refused():
    with pytest.raises(UnsupportedError, match="frequencies would be needed"):
        dp_ftrl.noise_gain(BLT((0.1,), (1 - 1e-7,)), **EASY)


def test_the_margin_is_below_the_smallest_x_of_a_finer_grid():
    found = dp_ftrl.noise_gain(NuFTRL(0.1), **EASY)
    frequencies = np.random.default_rng(0).uniform(0, np.pi, 20_000)
    u, v = found.multiplier.parts(frequencies)
    X, _, _ = cone_rows(Descent(1.0, 0.1), u, v, frequencies)
    assert found.margin <= X.min()
    assert found.margin == pytest.approx(X.min(), rel=0.05)


def test_the_bound_holds_for_quadratics_and_for_a_function_with_two_slopes():
    # The printed prefactor is below the exact error of θ²/2; the corrected one is not.
    run = {"learning_rate": 0.1, "condition_number": 10.0}
    gain = dp_ftrl.noise_gain(Independent(), **run).value
    exact = dp_ftrl.mean_error(Independent(), learning_rate=0.1)
    assert exact == pytest.approx(0.013158, abs=1e-6)
    assert dp_ftrl.theorem_3_1_printed(gain, learning_rate=0.1) < exact
    bound = dp_ftrl.strongly_convex_bound(Independent(), learning_rate=0.1, strong_convexity=0.1)
    assert bound == pytest.approx(gain / 4)
    assert exact < bound
    # Slope 1 right and 0.1 left of the optimum, ν-FTRL: E θ² over 4000 chains.
    rng, eta, T = np.random.default_rng(0), 1.0, 400
    beta, theta = NuFTRL(0.1).inverse_column(T), np.zeros(4000)
    z, square = rng.normal(size=(T, 4000)), []
    for t in range(T):
        noise = beta[: t + 1] @ z[t::-1]
        theta = theta - eta * (np.where(theta > 0, theta, 0.1 * theta) + noise)
        square.append(np.mean(theta**2))
    gamma2 = dp_ftrl.nu_energy(0.1)
    simulated = gamma2 * np.mean(square[100:])
    proved = dp_ftrl.noise_gain(NuFTRL(0.1), **EASY).value
    assert simulated < proved


def test_the_bound_scales_with_its_units():
    run = {"strong_convexity": 0.1, "learning_rate": 0.5}
    one = dp_ftrl.strongly_convex_bound(NuFTRL(0.1), **run)
    larger = dp_ftrl.strongly_convex_bound(NuFTRL(0.1), dimension=3, clip_norm=2.0, rho=0.5, **run)
    assert larger == pytest.approx(24 * one, rel=1e-4)
    # Twice the smoothness at half the rate: gradients of the same size move half as far.
    scaled = dp_ftrl.strongly_convex_bound(
        NuFTRL(0.1), smoothness=2.0, strong_convexity=0.2, learning_rate=0.25
    )
    assert scaled == pytest.approx(one / 2, rel=1e-4)
    noisy = dp_ftrl.strongly_convex_bound(NuFTRL(0.1), gradient_noise=0.5, **run)
    plain = dp_ftrl.strongly_convex_bound(NuFTRL(0.1), gradient_noise=0.0, **run)
    alone = 0.5**2 / 2 * dp_ftrl.noise_gain(
        Independent(), learning_rate=0.5, condition_number=10.0
    ).value  # fmt: skip
    assert plain < noisy
    # One multiplier for both noises cannot beat the best for each.
    assert noisy >= (plain + alone) * (1 - 1e-3)


def test_optimised_noise_falls_in_every_round_and_from_any_start(optimized):
    rounds = optimized.rounds
    assert all(b <= a * (1 + 1e-6) for a, b in itertools.pairwise(rounds))
    other = dp_ftrl.optimized_ftrl(start=Independent(), terms=64, **EASY)
    assert other.gain.value == pytest.approx(optimized.gain.value, rel=2e-4)


def test_optimised_noise_runs_and_is_certified(optimized):
    buffered = optimized.filter.buffered(4)
    exact = optimized.filter.mechanism(60)
    for mechanism in (buffered, exact):
        gain = dp_ftrl.noise_gain(mechanism, **EASY).value
        assert gain == pytest.approx(optimized.gain.value, rel=1e-3)
        plan = dp_ftrl.private_plan(mechanism, 60, rho=0.5)
        assert certify(plan, delta=1e-5).epsilon == pytest.approx(4.37717810, abs=1e-5)
    best, _ = dp_ftrl.best_strongly_convex_nu(**EASY)
    assert optimized.gain.value < dp_ftrl.noise_gain(NuFTRL(best), **EASY).value


def test_power_spectra_are_those_of_the_decoders():
    frequencies = np.array([0.0, 0.3, 2.0, math.pi])
    z = np.exp(1j * np.outer(frequencies, np.arange(800)))
    for mechanism in (
        Independent(),
        LambdaCGD(0.7),
        NuFTRL(0.1),
        BLT((0.3, 0.1), (0.4, 0.9)),
        BandedInverse((1.0, -0.5, 0.1)),
    ):
        expected = np.abs(z @ mechanism.inverse_column(800)) ** 2
        found = dp_ftrl.power_spectrum(mechanism, frequencies)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    with pytest.raises(UnsupportedError, match="not known in closed form"):
        dp_ftrl.power_spectrum(Banded((1.0, 0.5)), frequencies)


def test_the_response_keeps_its_digits():
    values, w = np.array([1.0, 1e-3]), np.array([1e-9, 0.1, 3.0])
    direct = sum(v / np.abs(1 - 0.1 * v - np.exp(1j * w)) ** 2 for v in values)
    np.testing.assert_allclose(response_of(values, 0.1, w)[1:], direct[1:], rtol=1e-12)
    assert response_of(values, 0.1, w)[0] == pytest.approx(1 / 0.01 + 1e-3 / 1e-8)


@pytest.mark.parametrize(
    ("learning_rate", "condition_number", "message"),
    [(2.5, 10.0, "diverges"), (1.0, 1.0, "condition number"), (1.0, math.inf, "condition number")],
)
def test_descents_that_diverge_are_refused(learning_rate, condition_number, message):
    with pytest.raises(PlanError, match=message):
        dp_ftrl.noise_gain(
            Independent(), learning_rate=learning_rate, condition_number=condition_number
        )


def test_multipliers_that_are_none_are_refused():
    with pytest.raises(PlanError, match="at most its constant"):
        Multiplier(1.0, (1,), (0.8,), (0.4,))
    with pytest.raises(PlanError, match="two weights"):
        Multiplier(1.0, (1, 2), (0.1,), (0.1,))
    with pytest.raises(PlanError, match="one gradient for each"):
        dp_ftrl.multiplier_sum([1.0], [1.0, 2.0], [1.0], mu=0.1, smoothness=1.0)
    with pytest.raises(PlanError, match="strictly between 0 and 1"):
        Descent(1.0, 1.0)
