"""Printed theorems: their numbers, the conditions they drop, and the truth beside them."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from antiphon.accounting.correlated.energy import binomial_law
from antiphon.accounting.independent.clones import clones_delta
from antiphon.accounting.independent.gaussian import gaussian_epsilon, gaussian_mu
from antiphon.errors import PlanError
from antiphon_papers.cnn import cnn_lemma_39
from antiphon_papers.common.printed import PrintedTheoremWarning
from antiphon_papers.dp_ftrl.printed import bun_steinke_epsilon, sharp_zcdp_epsilon
from antiphon_papers.kan_gd.printed import kan_block_constants, theorem_4_14
from antiphon_papers.kan_sgd.printed import theorem_d9, theorem_f12
from antiphon_papers.relu import clones_epsilon, relu_theorem_1, relu_theorem_3, threshold_zcdp


def quiet(theorem, *args, **kwargs):
    """The result, whether or not it warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrintedTheoremWarning)
        return theorem(*args, **kwargs)


# --- Correlated noise on sampled batches


@pytest.mark.parametrize(
    ("epsilon", "noise"), [(0.5, 7.03182668), (1, 3.73063163), (2, 1.99381245), (8, 0.60022907)]
)
def test_acceptance_kan_correlated_9_gaussian_noise(epsilon, noise):
    assert 1 / gaussian_mu(epsilon, 1e-5) == pytest.approx(noise, abs=1e-8)


@pytest.mark.parametrize(("lam", "noise"), [(0, 96.053999), (0.5, 192.107998), (0.9, 960.539989)])
def test_acceptance_kan_correlated_10_theorem_f12(lam, noise):
    result = theorem_f12(lam, 0.05, 1000, 1.0, 1e-5)
    assert result.noise == pytest.approx(noise, abs=1e-6)
    assert result.conditions_hold
    assert result.is_confirmed
    assert "upper bound" in result.accountant


def test_acceptance_kan_correlated_10_theorem_f12_warns_of_few_epochs():
    with pytest.warns(PrintedTheoremWarning, match=r"36\.618218, not 10"):
        result = theorem_f12(0.0, 0.01, 1000, 1.0, 1e-5)
    assert not result.conditions_hold
    assert result.noise == pytest.approx(53.8246, abs=5e-5)


@pytest.mark.parametrize(
    ("lam", "constant", "noises"),
    [
        (0.0, 8, (107.649, 53.8246, 26.9123, 6.72808)),
        (0.5, 8, (215.298, 107.649, 53.8246, 13.4562)),
        (0.9, 8, (1076.49, 538.246, 269.123, 67.2808)),
        (0.9, 2, (538.246, 269.123, 134.562, 33.6404)),
    ],
)
def test_acceptance_kan_correlated_table_4_7_theorem_f12(lam, constant, noises):
    relation = "replace-one" if constant == 8 else "zero-out"
    for epsilon, noise in zip((0.5, 1.0, 2.0, 8.0), noises, strict=True):
        result = quiet(theorem_f12, lam, 0.01, 1000, epsilon, 1e-5, relation, constant)
        assert result.noise == pytest.approx(noise, rel=1e-5)


def test_theorem_f12_names_every_failed_condition():
    with pytest.warns(PrintedTheoremWarning):
        result = theorem_f12(0.0, 0.01, 1000, 2.0, 1e-5, "replace-one", 2)
    assert len(result.failed) == 3
    assert result.true_delta == binomial_law(0.01, 1000).delta(result.noise, 2.0, 2.0)


def test_the_epoch_condition_of_theorem_f12_matters():
    """With one and a tenth of an epoch the count exceeds its bound more often than δ/2 allows."""
    for epochs, tail in [(1.0, 1.003e-5), (0.1, 1.54e-4), (10.0, 2.1e-7)]:
        law = binomial_law(epochs / 1000, 1000)
        limit = epochs + math.sqrt(3 * epochs * math.log(2 / 1e-5))
        beyond = law.probabilities[law.values > limit].sum()
        assert beyond == pytest.approx(tail, rel=2e-2)
        assert (beyond > 5e-6) == (epochs <= 1)


@pytest.mark.parametrize(
    ("rate", "true", "claimed"), [(0.01, 1.692727e-4, 2.732009e-9), (0.5, 5.869208e-2, 2.886762e-2)]
)
def test_acceptance_kan_correlated_18_fixed_size_batches_refute_theorem_f8(rate, true, claimed):
    """All others have gradient -1, the record +1, its ghost 0; noise 1, one step, ε = 1."""

    def divergence(with_record, without):
        def excess(x):
            def density(means):
                return (1 - rate) * norm.pdf(x) + rate * norm.pdf(x - means)

            return density(with_record) - math.e * density(without)

        cut = brentq(excess, 0, 30)  # the ratio crosses e once: a quadratic, or a line, in exp(x)

        def above(mean):
            return (1 - rate) * norm.sf(cut) + rate * norm.sf(cut - mean)

        return above(with_record) - math.e * above(without)

    assert divergence(2, 1) == pytest.approx(true, rel=1e-6)
    assert divergence(1, 0) == pytest.approx(claimed, rel=1e-5)
    assert true > claimed
    assert binomial_law(rate, 1).delta(1.0, 1.0) >= true


@pytest.mark.parametrize(
    ("epsilon", "noise", "holds"),
    [(0.5, 12.270511, True), (1, 6.200110, True), (2, 3.163912, True), (8, 0.880708, False)],
)
def test_acceptance_kan_correlated_20_theorem_d9(epsilon, noise, holds):
    result = quiet(theorem_d9, 10_000, 100, 1000, epsilon, 1e-5)
    assert result.noise == pytest.approx(noise, abs=1e-6)
    assert result.conditions_hold == result.is_confirmed == holds


@pytest.mark.parametrize("delta", [1e-5, 1e-6])
def test_acceptance_kan_correlated_20_theorem_d9_at_low_rates_and_in_corollary_5_5(delta):
    """Corollary 5.5 at n = 1e6 and γ = 1: B = T = 1000, δ = 1/n. The spec's lower bounds: 12.8, 12.1."""
    with pytest.warns(PrintedTheoremWarning, match="low-sampling regime"):
        result = theorem_d9(1_000_000, 1000, 1000, 1.0, delta)
    assert result.noise == pytest.approx({1e-5: 0.62001, 1e-6: 0.6768}[delta], abs=5e-5)
    assert not result.conditions_hold
    assert result.true_epsilon > 12


def test_theorem_d9_on_full_batches_is_plain_gaussian_with_slack():
    result = theorem_d9(500, 500, 100, 1.0, 1e-5)
    assert result.true_epsilon == gaussian_epsilon(20 / result.noise, 1e-5) < 0.5
    assert result.accountant.endswith("exact")


# --- Full-batch KAN


@pytest.mark.parametrize(
    ("epsilon", "delta", "steps", "mu", "true", "proved", "holds"),
    [
        (2, 5e-5, 1, 0.5635114275, 7.10226e-5, "2.841", False),
        (2, 5e-5, 4, 0.534849, 3.0958e-5, "2.659", False),
        (2, 5e-5, 64, 0.4885973067, 6.08128e-6, "2.384", True),
        (2, 5e-5, 100, 0.4822175216, 4.69592e-6, "2.348", True),
        (1, 1e-5, 1, 0.2751776510, 1.53126e-5, "1.462", False),
        (2, 1e-10, 100, 0.3631913918, 3.04178e-9, "2.630", False),
        (2, 1e-10, 10_000, 0.338403, 2.49e-10, "2.415", False),
    ],
)
def test_acceptance_kan_dpgd_table_4_2(epsilon, delta, steps, mu, true, proved, holds):
    with pytest.warns(PrintedTheoremWarning, match=f"prove ε = {proved}"):
        measured = theorem_4_14(steps, epsilon, delta, is_norm_measured=True)
    assert math.sqrt(2 * steps) / measured.noise == pytest.approx(mu, abs=5e-7)
    assert measured.true_delta == pytest.approx(true, rel=2e-3 if true < 1e-9 else 2e-5)
    assert quiet(theorem_4_14, steps, epsilon, delta).is_confirmed == holds
    # Four steps hold only if nothing of δ is spent on c(0).
    assert measured.is_confirmed == (holds or steps == 4)


def test_acceptance_kan_dpgd_7_constants():
    forms = ("main text", "proof of 4.14", "proof of D.12", "corrected")
    found = [kan_block_constants(form, 32, 8, 1.0, 5e-5) for form in forms]
    expected = [99045.2274, 112885.9493, 227277.8145, 101012.3620]
    np.testing.assert_allclose([c for c, _ in found], expected, atol=5e-5)
    np.testing.assert_allclose([c for _, c in found], 28.4444444, atol=5e-8)


@pytest.mark.parametrize(
    ("n", "steps", "form", "first", "second"),
    [
        (20_000, 100, "printed", 0.3263200768, 0.0055300078),
        (20_000, 64, "printed", 0.2576473615, 0.0043662405),
        (20_000, 100, "corrected", 0.3826557633, 0.0064212521),
        (12_665, 100, "printed", 0.5074475100, 0.0086159865),
        (12_665, 100, "corrected", 0.5910742579, 0.0099383928),
    ],
)
def test_acceptance_kan_dpgd_8_noise(n, steps, form, first, second):
    noise = quiet(theorem_4_14, steps, 2.0, 1 / n, form).noise
    constants = kan_block_constants(
        "main text" if form == "printed" else "corrected", 32, 8, 1.0, 1 / n
    )
    scales = [noise * math.sqrt(c / 2) / n for c in constants]
    np.testing.assert_allclose(scales, [first, second], atol=5e-10)


def test_acceptance_kan_dpgd_11_corrected_form():
    result = theorem_4_14(100, 2.0, 5e-5, "corrected")
    assert result.conditions_hold
    assert result.true_epsilon == pytest.approx(1.5266914, abs=5e-8)
    measured = theorem_4_14(100, 2.0, 5e-5, "corrected", is_norm_measured=True)
    assert measured.true_epsilon == pytest.approx(1.4519031, abs=5e-8)
    # By Rényi divergence of order λ it is exactly ε, for every number of steps.
    for steps in (1, 7, 1000):
        z = theorem_4_14(steps, 2.0, 5e-5, "corrected").noise
        order = 1 + 2 * math.log(2 / 5e-5) / 2.0
        renyi = 2 * steps * order / (2 * z**2) + math.log(2 / 5e-5) / (order - 1)
        assert renyi == pytest.approx(2.0, rel=1e-12)
    # And the printed form catches up after 2/δ steps.
    assert theorem_4_14(40_000, 2.0, 5e-5).noise == pytest.approx(
        theorem_4_14(40_000, 2.0, 5e-5, "corrected").noise, rel=1e-12
    )


@pytest.mark.parametrize(
    ("radius", "cubic", "epsilon", "digits"),
    [
        (1000, False, 13.774, 3),
        (1, False, 1.200, 3),
        (1, True, 0.39257, 5),
        (2000, True, 3.1239, 4),
    ],
)
def test_acceptance_kan_dpgd_12_main_text_constant_is_wrong_in_the_radius(
    radius, cubic, epsilon, digits
):
    n, m, p, steps = 20_000, 32, 8, 100
    z = quiet(theorem_4_14, steps, 2.0, 5e-5).noise
    C1, C2 = kan_block_constants("main text", m, p, radius, 5e-5)
    # Sensitivities with ‖c(0)‖ = 16, with coordinate bounds, or the cubic splines' vector norms.
    H, slope = (
        (math.sqrt(0.5), 2.25346955) if cubic else (2 / 3 * math.sqrt(p), 5 / 3 * math.sqrt(p))
    )
    first = 2 * H * slope * (16 + radius) / (n * math.sqrt(m))
    parts = [first / (z * math.sqrt(C1 / 2) / n), 2 * H / n / (z * math.sqrt(C2 / 2) / n)]
    mu = math.sqrt(steps * sum(x**2 for x in parts))
    assert round(gaussian_epsilon(mu, 5e-5), digits) == epsilon


# --- ReLU regression


def test_acceptance_relu_1_noise_multipliers():
    first, second = relu_theorem_3(0.5, 1e-5, 8), relu_theorem_3(0.5, 1e-5, 8, "second")
    assert 1 / gaussian_mu(0.5, 1e-5) == pytest.approx(7.0318266756, abs=5e-9)
    assert second.noise == pytest.approx(19.1941036488, abs=5e-10)
    assert first.noise == pytest.approx(13.8638669728, abs=5e-10)
    log = math.log(1e5)
    best = (math.sqrt(log + 0.5) + math.sqrt(log)) / 0.5
    assert best == pytest.approx(13.7180739108, abs=5e-10)
    assert bun_steinke_epsilon(best**-2, 1e-5) == pytest.approx(0.5, abs=1e-10)
    assert first.conditions_hold and second.conditions_hold


@pytest.mark.parametrize(("levels", "threshold"), [(8, 0.178498), (10, 0.176323)])
def test_acceptance_relu_2_the_larger_block_counts(levels, threshold):
    result = relu_theorem_3(0.5, 1e-5, levels, "second")
    assert gaussian_epsilon(1 / result.noise, 1e-5) == pytest.approx(0.167390, abs=5e-7)
    assert result.true_epsilon == pytest.approx(threshold, abs=5e-7)


@given(st.floats(0.1, 100), st.integers(1, 40))
def test_acceptance_relu_3_threshold(f, levels):
    assert threshold_zcdp(f, levels) == pytest.approx((levels + 1) / (2 * levels * f**2))
    assert threshold_zcdp(f, levels, "fixed") == pytest.approx(1 / (2 * f**2))
    with pytest.raises(PlanError, match="Without a level"):
        threshold_zcdp(f, 0)


def test_acceptance_relu_8_passes():
    delta = 16512**-1.1
    once = relu_theorem_3(0.5, delta, 10, "second")
    assert once.noise == pytest.approx(18.489372, abs=1e-5)
    assert gaussian_epsilon(1 / once.noise, delta) == pytest.approx(0.16190, abs=5e-6)
    assert gaussian_epsilon(math.sqrt(500) / once.noise, delta) == pytest.approx(5.2253, abs=1e-3)
    with pytest.warns(PrintedTheoremWarning, match="one pass, not in 500"):
        many = relu_theorem_3(0.5, delta, 10, "second", passes=500)
    assert many.true_epsilon > 5.2253
    assert not many.is_confirmed


@pytest.mark.parametrize(
    ("records", "second", "first", "tight"),
    [
        (3918, (170.652, 42.663, 17.065), (121.000, 30.497, 12.394), (44.1227, 13.1515, 5.83625)),
        (16512, (184.894, 46.223, 18.489), (131.045, 32.989, 13.376), (53.2812, 15.2635, 6.63614)),
        (29386, (190.302, 47.575, 19.030), (134.861, 33.937, 13.750), (56.7294, 16.0624, 6.93982)),
    ],
)
def test_theorem_3_asks_for_three_times_the_noise(records, second, first, tight):
    delta = records**-1.1
    for i, epsilon in enumerate((0.05, 0.2, 0.5)):
        assert relu_theorem_3(epsilon, delta, 10, "second").noise == pytest.approx(
            second[i], abs=6e-4
        )
        assert relu_theorem_3(epsilon, delta, 10).noise == pytest.approx(first[i], abs=6e-4)
        assert 1 / gaussian_mu(epsilon, delta) == pytest.approx(tight[i], rel=5e-6)


@pytest.mark.parametrize(
    ("records", "regime"), [(3918, "0.0666"), (16512, "0.0351"), (29386, "0.0271")]
)
def test_theorem_1_warns_outside_its_regime(records, regime):
    assert f"{math.sqrt(math.log(records**2.1) / records):.4f}" == regime
    with pytest.warns(PrintedTheoremWarning, match=r"order of 0\.\d+ or less, not 0\.5"):
        outside = relu_theorem_1(records, 0.5, records**-1.1)
    assert len(outside.failed) == 2
    assert not outside.is_confirmed
    inside = quiet(relu_theorem_1, records, float(regime) / 2, records**-1.1)
    assert inside.failed == ("the theorem leaves its constant open; 1 was taken",)
    # With the constant 1, far more is proved than it claims, up to the end of its regime.
    assert inside.true_epsilon < inside.claimed_epsilon / 5
    assert quiet(relu_theorem_1, records, float(regime), records**-1.1).is_confirmed


def test_theorem_1_at_sixteen_thousand_records():
    result = quiet(relu_theorem_1, 16512, 0.5, 16512**-1.1)
    assert result.noise == pytest.approx(0.317, abs=5e-4)
    # All others have gradient -1, the record +1 or -1. False alarms: 1e-6 by Hoeffding's inequality.
    rng, sigma, gains = np.random.default_rng(0), 2 * result.noise, []
    for _ in range(20):
        z = sigma * rng.standard_normal((200, 16512))
        z[:, 0] += 2
        ratio = np.exp((2 * z - 2) / sigma**2).mean(axis=1)
        gains.append(np.maximum(1 - math.exp(0.5) / ratio, 0).mean())
    reached = np.mean(gains)
    assert reached == pytest.approx(0.055, abs=0.015)
    assert reached - math.sqrt(math.log(1e6) / (2 * 20 * 200)) > 16512**-1.1
    assert result.true_delta > reached


@pytest.mark.parametrize("records", [2, 200, 16512])
@pytest.mark.parametrize("constant", [0.3, 1.0, 4.0])
def test_theorem_1_is_never_charged_more_than_without_shuffling(records, constant):
    result = quiet(relu_theorem_1, records, 0.2, 1e-5, constant)
    assert result.true_epsilon <= gaussian_epsilon(1 / result.noise, 1e-5) + 2e-9
    assert quiet(relu_theorem_1, 1, 0.2, 1e-5).true_epsilon == pytest.approx(
        gaussian_epsilon(1 / quiet(relu_theorem_1, 1, 0.2, 1e-5).noise, 1e-5)
    )


def test_acceptance_relu_6_the_closed_form_of_the_clones():
    assert clones_epsilon(10**4, 1.0, 1e-6) == pytest.approx(0.21402565, abs=5e-9)
    for local_epsilon in (0.1, 0.5, 1.0, 2.0, 3.0, 3.7):
        closed = clones_epsilon(10**4, local_epsilon, 1e-6)
        assert clones_delta(10**4, local_epsilon, closed) < 1e-6
    with pytest.raises(PlanError, match="at most"):
        clones_epsilon(10**4, 3.8, 1e-6)


@pytest.mark.parametrize(
    ("records", "noise"),
    [(3918, (45.4, 13.9, 6.63)), (16512, (28.7, 9.50, 4.85)), (29386, (24.0, 8.21, 4.31))],
)
def test_acceptance_relu_6_noise_by_the_closed_form(records, noise):
    delta = records**-1.1
    for i, epsilon in enumerate((0.05, 0.2, 0.5)):
        largest = math.log(records / (16 * math.log(4 / delta)))

        def excess(e, epsilon=epsilon):
            return clones_epsilon(records, e, delta / 2) - epsilon

        local = largest if excess(largest) < 0 else brentq(excess, 1e-9, largest)
        share = (math.exp(epsilon) + 1) * (1 + math.exp(-local) / 2) * records
        found = 2 / gaussian_mu(local, delta / 2 / share)
        assert found == pytest.approx(noise[i], rel=5e-3)


# --- Two-layer CNN

CNN = {"noise": 0.01, "n": 1000, "width": 100, "steps": 20_000, "signal": 1.0, "dimension": 2000}


@pytest.mark.parametrize(
    ("patch", "A", "order", "epsilon"),
    [
        (0.1, 124, 1.31374523, 201.808817),
        (0.3, 1084, 1.10611416, 1314.055495),
        (0.5, 3004, 1.06374381, 3386.972804),
    ],
)
def test_acceptance_cnn_12_lemma_39(patch, A, order, epsilon):
    with pytest.warns(PrintedTheoremWarning, match="nothing is clipped"):
        result = cnn_lemma_39(**CNN, patch=patch, delta=1e-5)
    assert result.true_epsilon == math.inf and result.true_delta == 1.0
    assert result.claimed_epsilon == pytest.approx(epsilon, abs=5e-7)
    assert order * A + math.log(2e5) / (order - 1) == pytest.approx(epsilon, abs=5e-6)
    assert not result.is_confirmed
    assert len(result.failed) == 2


@pytest.mark.parametrize(
    ("patch", "replace", "zero"),
    [(0.1, 334.914006, 108.646), (0.3, 2441.478131, 681.478), (0.5, 6468.292236, 1734.790)],
)
def test_acceptance_cnn_14_exact_answer(patch, replace, zero):
    forms = {"patch": patch, "delta": 1e-5, "of_model_records": True}
    exact = cnn_lemma_39(**CNN, **forms, form="exact")
    assert exact.conditions_hold
    assert "conditional, no differential privacy" in exact.accountant
    assert exact.true_epsilon == exact.claimed_epsilon == pytest.approx(replace, rel=1e-8)
    zero_out = cnn_lemma_39(**CNN, **forms, form="exact", relation="zero-out")
    assert zero_out.true_epsilon == pytest.approx(zero, abs=5e-4)
    corrected = cnn_lemma_39(**CNN, **forms, form="corrected")
    assert corrected.conditions_hold and corrected.is_confirmed
    # For zero-out the printed constant is twice too large, hence true.
    assert cnn_lemma_39(**CNN, **forms, relation="zero-out").is_confirmed


@pytest.mark.parametrize(
    ("patch", "printed", "exact"),
    [(0.1, 23.60, 32.36), (0.3, 105.64, 169.93), (0.5, 235.84, 403.66)],
)
def test_lemma_39_at_an_early_stop(patch, printed, exact):
    stop = CNN | {"steps": 1000, "of_model_records": True}
    result = quiet(cnn_lemma_39, **stop, patch=patch, delta=1e-5)
    assert result.claimed_epsilon == pytest.approx(printed, abs=5e-3)
    assert result.true_epsilon == pytest.approx(exact, abs=5e-3)


# --- Concentrated privacy


@pytest.mark.parametrize(
    ("rho", "delta", "old", "sharp", "exact", "replace"),
    [
        (0.1, 1e-5, 2.24596603, 1.91423883, 1.76005715, 3.84861028),
        (0.5, 1e-5, 5.29852591, 4.72838698, 4.37717810, 9.99725615),
        (1.0, 1e-5, 7.78614042, 7.07719670, 6.57297007, 15.45615582),
        (0.05, 1e-6, 1.71225814, 1.47159475, 1.36757148, 2.92160059),
    ],
)
def test_acceptance_dp_ftrl_15_conversions(rho, delta, old, sharp, exact, replace):
    assert bun_steinke_epsilon(rho, delta) == pytest.approx(old, abs=1e-7)
    assert sharp_zcdp_epsilon(rho, delta) == pytest.approx(sharp, abs=1e-7)
    assert gaussian_epsilon(math.sqrt(2 * rho), delta) == pytest.approx(exact, abs=1e-7)
    assert gaussian_epsilon(math.sqrt(8 * rho), delta) == pytest.approx(replace, abs=1e-7)


@pytest.mark.parametrize(
    ("epsilon", "mu", "rho"),
    [
        (1, 0.26805112, 0.03055660),
        (2, 0.50155169, 0.10825636),
        (4, 0.92493090, 0.37314398),
        (8, 1.66603060, 1.22971453),
        (10, 2.00044562, 1.78269562),
        (20, 3.44778345, 5.39203804),
    ],
)
def test_acceptance_dp_ftrl_15_inverse(epsilon, mu, rho):
    assert gaussian_mu(epsilon, 1e-5) == pytest.approx(mu, abs=1e-7)
    assert sharp_zcdp_epsilon(rho, 1e-5) == pytest.approx(epsilon, abs=1e-6)


@given(st.floats(1e-6, 1e3), st.floats(-14, -0.1).map(lambda x: 10**x))
def test_acceptance_dp_ftrl_15_order(rho, delta):
    exact = gaussian_epsilon(math.sqrt(2 * rho), delta)
    sharp, old = sharp_zcdp_epsilon(rho, delta), bun_steinke_epsilon(rho, delta)
    assert exact <= sharp * (1 + 1e-9) + 1e-12
    assert sharp <= old * (1 + 1e-9)


# --- Refusals


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theorem_f12(1.0, 0.1, 10, 1.0, 1e-5), "λ"),
        (lambda: theorem_f12(0.5, 0.0, 10, 1.0, 1e-5), "rate"),
        (lambda: theorem_f12(0.5, 0.1, 10, 0.0, 1e-5), "ε"),
        (lambda: theorem_f12(0.5, 0.1, 10, 1.0, 1.0), "δ"),
        (lambda: theorem_f12(0.5, 0.1, 10, 1.0, 1e-5, "add-remove"), "add-remove"),
        (lambda: theorem_d9(10, 11, 10, 1.0, 1e-5), "batch"),
        (lambda: theorem_d9(10, 1, 0, 1.0, 1e-5), "steps"),
        (lambda: theorem_4_14(0, 1.0, 1e-5), "steps"),
        (lambda: theorem_4_14(1, math.nan, 1e-5), "ε"),
        (lambda: kan_block_constants("corrected", 32, 8, 0.0, 1e-5), "radius"),
        (lambda: relu_theorem_3(1.0, 1e-5, 0), "levels"),
        (lambda: relu_theorem_3(1.0, 1e-5, 3, passes=0), "passes"),
        (lambda: relu_theorem_1(100, 1.0, 1e-5, constant=0.0), "constant"),
        (lambda: cnn_lemma_39(**{**CNN, "noise": 0.0}, patch=0.1, delta=1e-5), "noise"),
        (lambda: cnn_lemma_39(**CNN, patch=math.nan, delta=1e-5), "patch"),
        (lambda: bun_steinke_epsilon(0.0, 1e-5), "ρ"),
        (lambda: sharp_zcdp_epsilon(1.0, 0.0), "δ"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(PlanError, match=message):
        call()
