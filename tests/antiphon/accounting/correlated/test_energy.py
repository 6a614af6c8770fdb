"""The bound conditioned on participations, against enumeration, the specification and sampling."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, norm

from antiphon.accounting.correlated.energy import EnergyLaw, binomial_delta, binomial_law
from antiphon.accounting.correlated.lambda_energy import lambda_cgd_delta, lambda_cgd_law
from antiphon.accounting.correlated.sampled_energy import Bernoulli, energies
from antiphon.accounting.independent.gaussian import gaussian_delta, gaussian_mu
from antiphon.errors import PlanError
from antiphon.mechanisms import LambdaCGD

EPSILONS = (0.5, 1.0, 2.0, 8.0)


def law(lam, side="upper", rate=0.01, steps=1000):
    return lambda_cgd_law(lam, rate, steps, side)


def enumerated(lam, rate, steps):
    """Energies ‖Cy‖² of all 2^T patterns, with their probabilities."""
    y = np.array(list(product([0.0, 1.0], repeat=steps)))
    count = y.sum(1)
    energies = ((y @ LambdaCGD(lam).encoder(steps).T) ** 2).sum(1)
    return EnergyLaw(energies, rate**count * (1 - rate) ** (steps - count))


def divergence(P, Q, epsilon):
    """Hockey-stick divergence of mixtures of unit Gaussians on the line, by quadrature."""
    x = np.linspace(-12, 14, 400_001)
    p, q = (sum(w * norm.pdf(x - m) for w, m in mixture) for mixture in (P, Q))
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum() * (x[1] - x[0]))


# --- Numbers of the specification


def test_acceptance_kan_correlated_11_independent_noise():
    assert binomial_law(0.01, 1000).noise_multiplier(1.0, 1e-5) == pytest.approx(
        13.2082593, abs=1e-6
    )
    assert binomial_law(0.1, 100).noise_multiplier(1.0, 1e-5) == pytest.approx(13.0938912, abs=1e-6)


@pytest.mark.parametrize(("lam", "low", "high"), [(0.5, 15.45, 15.63), (0.9, 34.2, 35.9)])
def test_acceptance_kan_correlated_11_lambda_cgd(lam, low, high):
    upper, lower = (law(lam, side).noise_multiplier(1.0, 1e-5) for side in ("upper", "lower"))
    assert low <= upper <= high
    assert 0.99 * upper <= lower <= upper


def test_acceptance_kan_correlated_11_replace_one_doubles_the_noise():
    for one in (law(0.5), binomial_law(0.01, 1000)):
        assert one.noise_multiplier(1.0, 1e-5, 2.0) == 2 * one.noise_multiplier(1.0, 1e-5)


@pytest.mark.parametrize(("lam", "mean"), [(0.5, 13.594933), (0.9, 61.745762)])
def test_acceptance_kan_correlated_12_mean_energy(lam, mean):
    assert law(lam).mean == pytest.approx(mean, abs=1e-6)
    C = LambdaCGD(lam).encoder(1000)
    drawn = energies(C.T @ C, *Bernoulli(0.01, 1000).draw(np.random.default_rng(1), 8192))
    # Two-sided, false alarm 6e-5; energies 5 % off would be rejected at λ = 0.5.
    assert abs(drawn.mean() - mean) < 4 * drawn.std() / math.sqrt(len(drawn))


def test_acceptance_kan_correlated_12_contiguous_block():
    C = LambdaCGD(0.9).encoder(1000)
    energy = energies(C.T @ C, np.arange(29), np.array([0, 29]))
    assert energy[0] == pytest.approx(1997.253851, abs=1e-6)
    # The same from the increments of the programme, at rate 1 and with nothing after the block.
    whole = lambda_cgd_law(0.9, 1.0, 29).values[0]
    tail = (C[:, :29].sum(1)[29:] ** 2).sum()
    assert whole + tail == pytest.approx(1997.253851, abs=1e-6)


@pytest.mark.parametrize(
    ("lam", "table"),
    [
        (0.0, (24.6448, 13.2083, 7.14445, 2.22839)),
        (0.5, (28.99, 15.55, 8.415, 2.631)),
        (0.9, (65.1, 35.1, 19.1, 6.04)),
    ],
)
def test_acceptance_kan_correlated_table_4_7_row_a(lam, table):
    for epsilon, above in zip(EPSILONS, table, strict=True):
        assert law(lam).noise_multiplier(epsilon, 1e-5) <= above
        assert law(lam).noise_multiplier(epsilon, 1e-5) >= 0.97 * above


def test_acceptance_kan_correlated_table_4_7_in_the_regime_of_theorem_f12():
    found = [law(lam, rate=0.05).noise_multiplier(1.0, 1e-5) for lam in (0.0, 0.5, 0.9)]
    assert found[0] == pytest.approx(27.13, abs=5e-3)
    assert 0.97 * 33.42 < found[1] < 33.42
    assert 0.97 * 90.6 < found[2] < 90.6


def test_acceptance_kan_correlated_9_3_negative_entries_need_absolute_values():
    C = np.array([[1.0, 0.0], [-0.5, 1.0]])
    energy = energies(np.abs(C.T @ C), np.arange(2), np.array([0, 2]))[0]
    # Contributions of opposite sign, which ‖Cy‖ misses, attain it.
    assert math.sqrt(energy) == pytest.approx(1.803, abs=5e-4)
    assert math.sqrt(energy) == pytest.approx(np.linalg.norm(C @ [1, -1]))
    assert np.linalg.norm(C @ [1, 1]) == pytest.approx(1.118, abs=5e-4)


def test_acceptance_kan_correlated_9_3_add_remove_with_fixed_size_needs_amplitude_two():
    # n = 2 and batches of 1: the other record has gradient -1, the one that is added +1. Without it
    # the batch is always -1; with it the sum is +1 half of the time.
    true = divergence([(0.5, 0), (0.5, 2)], [(1, 0)], 1.0)
    assert true == pytest.approx(0.2105, abs=5e-5)
    assert binomial_delta(0.5, 1, 1.0, 1.0, 1.0) == pytest.approx(0.0635, abs=5e-5)
    assert binomial_delta(0.5, 1, 1.0, 1.0, 2.0) >= true


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0])
def test_zero_out_with_fixed_size_batches_is_covered(rate, epsilon):
    """The instance that refutes the printed dominating pair, in both directions."""
    with_record, without = [(1 - rate, 0), (rate, 2)], [(1 - rate, 0), (rate, 1)]
    bound = binomial_delta(rate, 1, 1.0, epsilon)
    assert bound >= divergence(with_record, without, epsilon)
    assert bound >= divergence(without, with_record, epsilon)


# --- Against enumeration


@given(
    st.floats(0.01, 1.0),
    st.floats(0.02, 0.98),
    st.integers(1, 9),
    st.floats(0.3, 5.0),
    st.floats(0.05, 4.0),
)
def test_upper_and_lower_bounds_enclose_all_patterns(lam, rate, steps, noise, epsilon):
    truth = enumerated(lam, rate, steps).delta(noise, epsilon)
    upper, lower = (
        lambda_cgd_law(lam, rate, steps, side).delta(noise, epsilon) for side in ("upper", "lower")
    )
    assert lower * (1 - 1e-12) <= truth <= upper * (1 + 1e-12)


@pytest.mark.parametrize("lam", [0.2, 0.5, 0.9, 0.99, 0.999, 1.0])
@pytest.mark.parametrize("rate", [0.05, 0.3])
def test_bounds_are_close_for_twelve_steps(lam, rate):
    exact, upper, lower = (
        one.noise_multiplier(1.0, 1e-5)
        for one in (
            enumerated(lam, rate, 12),
            law(lam, "upper", rate, 12),
            law(lam, "lower", rate, 12),
        )
    )
    assert exact <= upper <= 1.02 * exact
    assert 0.97 * exact <= lower <= exact


def test_the_mean_energy_of_an_upper_law_is_exact():
    for lam in (0.3, 0.95, 0.999, 1.0):
        exact = enumerated(lam, 0.3, 10).mean
        assert law(lam, "upper", 0.3, 10).mean == pytest.approx(exact, rel=2e-9)
        assert law(lam, "lower", 0.3, 10).mean <= exact


def test_tiny_correlation_equals_the_binomial_sum():
    binomial = binomial_law(0.01, 1000)
    for side in ("upper", "lower"):
        found = law(1e-9, side).noise_multiplier(1.0, 1e-5)
        assert found == pytest.approx(binomial.noise_multiplier(1.0, 1e-5), rel=1e-6)


def test_full_rate_is_one_gaussian_release():
    for lam in (0.0, 0.7, 1.0):
        sensitivity = np.linalg.norm(LambdaCGD(lam).encoder(50).sum(1))
        expected = sensitivity / gaussian_mu(1.0, 1e-5)
        assert law(lam, rate=1.0, steps=50).noise_multiplier(1.0, 1e-5) == pytest.approx(expected)


def test_a_binomial_law_is_what_it_says():
    expected = sum(
        binom.pmf(k, 20, 0.3) * float(gaussian_delta(math.sqrt(k) / 2, 0.7)) for k in range(21)
    )
    assert binomial_delta(0.3, 20, 2.0, 0.7) == pytest.approx(expected, rel=1e-12)


# --- Order and inversion


@pytest.mark.parametrize("lam", [0.0, 0.5])
def test_epsilon_and_noise_invert_delta(lam):
    one = law(lam)
    kappa = one.noise_multiplier(2.0, 1e-6)
    assert one.delta(kappa, 2.0) <= 1e-6 < one.delta(kappa * (1 - 1e-6), 2.0)
    assert one.epsilon(kappa, 1e-6) == pytest.approx(2.0, rel=1e-6)
    assert one.delta(kappa, one.epsilon(kappa, 1e-6)) <= 1e-6


def test_more_steps_rate_or_correlation_never_lower_delta():
    def delta(lam, rate, steps):
        return enumerated(lam, rate, steps).delta(2.0, 1.0)

    base = delta(0.5, 0.2, 8)
    assert base <= min(delta(0.6, 0.2, 8), delta(0.5, 0.3, 8), delta(0.5, 0.2, 9))


def test_delta_falls_with_noise_and_epsilon_and_is_convex_in_the_exponential():
    one = law(0.5)
    kappas = np.geomspace(2, 40, 15)
    deltas = [one.delta(k, 1.0) for k in kappas]
    assert (np.diff(deltas) <= 0).all()
    grid = np.linspace(1.05, 8, 40)  # e^ε
    curve = np.array([binomial_delta(0.1, 50, 2.0, math.log(x)) for x in grid])
    assert (np.diff(curve) <= 0).all()
    assert (np.diff(curve, 2) >= -1e-15).all()


def test_bounds_stay_useful_where_the_profile_is_concave():
    """ε near 0 and large δ, far from any certificate, where a tangent at the mean takes over."""
    exact = enumerated(0.5, 0.5, 10).delta(1.0, 1e-3)
    assert exact <= law(0.5, "upper", 0.5, 10).delta(1.0, 1e-3) <= 1.1 * exact


def test_no_noise_is_needed_beyond_the_probability_of_taking_part():
    """Where δ is near rate × steps the profile is concave at every energy there is."""
    exact, upper = enumerated(0.9, 3e-4, 8), law(0.9, "upper", 3e-4, 8)
    assert upper.delta(1e-3, 1.0) == pytest.approx(1 - (1 - 3e-4) ** 8, rel=1e-9)
    needed = exact.noise_multiplier(0.5, 1e-3)
    assert needed <= upper.noise_multiplier(0.5, 1e-3) <= 1.1 * needed


def test_rates_near_one_cost_no_more_than_rate_one():
    for lam in (0.5, 0.99):
        sure = law(lam, rate=1.0, steps=100).noise_multiplier(1.0, 1e-5)
        assert law(lam, rate=0.999, steps=100).noise_multiplier(1.0, 1e-5) <= sure * (1 + 3e-9)


# --- Refusals


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: binomial_law(0.0, 10), "rate"),
        (lambda: binomial_law(1.1, 10), "rate"),
        (lambda: binomial_law(math.nan, 10), "rate"),
        (lambda: binomial_law(0.1, 0), "at least 1"),
        (lambda: lambda_cgd_law(1.2, 0.1, 10), "λ"),
        (lambda: lambda_cgd_law(math.nan, 0.1, 10), "λ"),
        (lambda: binomial_delta(0.1, 10, 0.0, 1.0), "noise multiplier"),
        (lambda: binomial_delta(0.1, 10, math.nan, 1.0), "noise multiplier"),
        (lambda: binomial_delta(0.1, 10, 1.0, 0.0), "ε"),
        (lambda: binomial_delta(0.1, 10, 1.0, 1.0, -1.0), "amplitude"),
        (lambda: lambda_cgd_delta(0.5, 0.1, 10, 1.0, math.nan), "ε"),
        (lambda: binomial_law(0.1, 10).noise_multiplier(1.0, 0.0), "δ"),
        (lambda: binomial_law(0.1, 10).epsilon(1.0, 1.0), "δ"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(PlanError, match=message):
        call()
