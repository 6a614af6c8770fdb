"""Conditions, times and privacy statements on two-layer CNNs against the specification's numbers."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from antiphon.accounting import gaussian_epsilon, gaussian_mu
from antiphon.errors import PlanError, UnsupportedError
from antiphon_papers import cnn
from antiphon_papers.cnn import Setting, TwoLayerCNN, signal_patches

FIGURE = Setting()
PAIR = signal_patches(2, 4, spread=1.0, seed=0)


def by_name(conditions):
    return {condition.name: condition for condition in conditions}


# --- Conditions


def test_condition_1_fails_by_the_specifications_factors():
    found = by_name(cnn.condition_1(FIGURE))
    assert found["item 3, d"].limit == pytest.approx(5.2e32, rel=0.01)
    assert found["item 3, d"].factor == pytest.approx(2.6e29, rel=0.01)
    assert found["item 6, η"].limit == pytest.approx(0.002) and not found["item 6, η"].holds
    assert found["item 2, 1/SNR (logarithms hidden)"].holds
    low, proof = (
        found[f"item 5, σ₀ from below{end}"].limit for end in ("", ", as the proof needs it")
    )
    assert proof == pytest.approx(100 * low)
    assert not found["item 5, σ₀ from above"].holds


def test_condition_2_fails_by_the_specifications_factors():
    found = by_name(cnn.condition_2(FIGURE))
    assert found["item 3, d"].limit == pytest.approx(1.8e15, rel=0.01)
    assert found["item 6, η from below"].limit == pytest.approx(5e6)
    assert found["item 6, η from above"].limit == pytest.approx(100)
    assert found["item 2, 1/SNR"].limit == pytest.approx(0.00447, rel=1e-3)
    assert found["item 2, 1/SNR"].value == pytest.approx(22.4, rel=2e-3)
    assert found["item 7, σ_b"].limit == pytest.approx(4.7e-6, rel=0.01)


def test_item_6_leaves_a_step_size_exactly_where_it_says_so():
    for knee in (1e-6, 1e-4, 4.4e-4, 4.6e-4, 1e-2):
        for constant in (1.0, 3.0):
            setting = dataclasses.replace(FIGURE, knee=knee)
            found = by_name(cnn.condition_2(setting, constant=constant))
            window = found["item 6, η from below"].limit <= found["item 6, η from above"].limit
            assert window == found["item 6, κ² for which some η is left"].holds


def test_a_larger_constant_only_makes_conditions_harder():
    for conditions in (cnn.condition_1, cnn.condition_2):
        easy, hard = (conditions(FIGURE, constant=c) for c in (1.0, 10.0))
        assert all(
            a.holds or not b.holds for a, b in zip(easy, hard, strict=True) if "κ = O" not in a.name
        )


def test_what_the_proofs_use_is_explicit():
    beta, zeta, start = cnn.proof_conditions(FIGURE)
    alpha = 4 * 100 * math.log(20_000)
    assert zeta.value == pytest.approx(8 * 1000 * math.sqrt(math.log(6e6 / 0.01) / 2000) * alpha)
    assert start.limit == pytest.approx(8 * zeta.value / math.sqrt(500))
    bound = 2 * 2 * 0.007 * math.sqrt(500 * math.log(12 * 1e5 / 0.01))
    assert beta.value == pytest.approx(bound) and not any(c.holds for c in (beta, zeta, start))


def test_records_and_starts_of_the_figure_hold_what_lemmas_7_11_and_13_say():
    data = signal_patches(300, 2000, spread=0.5, seed=0)
    torch.manual_seed(0)
    model = TwoLayerCNN(2000, 100).double()
    for condition in (*cnn.data_checks(data), *cnn.start_checks(model, data)):
        assert condition.holds, str(condition)
    with torch.no_grad():
        model.filters.weight.mul_(3)
    assert not by_name(cnn.start_checks(model, data))["largest ‖w‖²"].holds
    long = dataclasses.replace(data, noise=2 * data.noise)
    assert not by_name(cnn.data_checks(long))["largest ‖ξ_i‖²"].holds
    tilted = dataclasses.replace(data, noise=data.noise + 0.01 * data.signal)
    assert not by_name(cnn.data_checks(tilted))["|⟨ξ_i, μ⟩|, relative: rounding"].holds
    one_sided = dataclasses.replace(data, y=np.ones(300))
    assert not by_name(cnn.data_checks(one_sided))["records of the rarer label"].holds


# --- Times and bounds


def test_times_of_theorem_1():
    found = cnn.theorem_1(FIGURE, loss=0.1)
    first = 0.1**2 * 100 * 1000 / (0.1 * 0.007 * 500**1.5)
    assert found.first == pytest.approx(first)
    assert found.second - found.first == pytest.approx(7.2e6)
    assert found.horizon - found.first == pytest.approx(100**3 * 1000 / (0.1 * 0.1))
    assert found.loss_floor == pytest.approx(0.156631, abs=5e-7) and found.error_floor == 0.11
    assert not found.is_covered and 12 * (math.e - 1) < 36


@pytest.mark.parametrize(
    ("knee", "scale", "expected"), [(0.1, 0.007, 3717.113), (0.05, 0.002, 937.53)]
)
def test_acceptance_cnn_19_escape_time(knee, scale, expected):
    setting = dataclasses.replace(FIGURE, knee=knee, scale=scale)
    t = cnn.escape_time(setting, delta=0.01)
    assert t == pytest.approx(expected, abs=0.006)
    spread = math.sqrt(scale**2 + (0.1 * 0.01) ** 2 * t)
    # The largest of m walks: 100 000 draws, five standard errors are 0.0011.
    rng, late = np.random.default_rng(0), 0
    for _ in range(20):
        late += int((spread * rng.standard_normal((5000, 100)).max(axis=1) <= knee).sum())
    assert late / 100_000 == pytest.approx(0.005, abs=0.001)


def test_acceptance_cnn_19_without_noise_nothing_escapes_unless_it_is_out():
    quiet = dataclasses.replace(FIGURE, noise=0.0)
    assert cnn.escape_time(quiet) == math.inf
    assert cnn.escape_time(dataclasses.replace(quiet, scale=1.0)) == 0.0
    assert cnn.escape_time(dataclasses.replace(FIGURE, m=1)) == math.inf


def test_theorem_2_has_the_constant_of_its_proof_and_says_that_it_is_not_proved():
    setting = dataclasses.replace(FIGURE, steps=10_000_000)
    escaped = cnn.escape_time(setting)
    found = cnn.theorem_2(setting, at=escaped + 1000)
    assert found.value == pytest.approx(24 * 1000 * 100**2 / (0.1 * 500 * 1000))
    assert not found.is_guarantee and found.is_vacuous
    assert cnn.theorem_2(setting, at=10.0).value == math.inf
    assert cnn.theorem_2(setting, loss=0.2).value == pytest.approx(0.2)


def test_signal_growth_follows_its_recursions():
    """c₁, c₂ and T₂ from Lemma 15, once simulated and once in closed form."""
    found = cnn.signal_growth(FIGURE)
    assert found.c1 == pytest.approx(3 * 0.1 * 1000 / 1e5)
    assert found.c2 == pytest.approx(0.1 * 500 / (12 * 1000 * 1e4))
    g = found.c1 / found.c2
    assert g == pytest.approx(36 * 100 * 1000 / 500)
    escaped = cnn.escape_time(FIGURE)
    near = escaped + math.log(2) * math.exp(found.c1) * (escaped + 1 / found.c1)
    assert found.after == pytest.approx(near, rel=1e-3)
    assert found.mean_gamma == pytest.approx(1000 * math.exp(-0.003) / (144 * 100 * 1000), rel=1e-3)


def test_the_bound_on_test_error_is_one_for_the_figure_and_is_called_vacuous():
    found = cnn.fresh_error_bound(FIGURE)
    assert found.value == 1.0 and found.is_vacuous and not found.is_guarantee
    assert "rate" in found.verdict
    easy = Setting(
        d=10**9, n=100, m=1, spread=1e-5, scale=1e-4, noise=1e-6, step_size=0.01, steps=10
    )
    assert cnn.fresh_error_bound(easy).value < 0.5


def test_the_rule_of_thumb_depends_on_neither_the_steps_nor_the_width():
    values = {cnn.margin_to_noise(dataclasses.replace(FIGURE, m=m, steps=10), 2.0) for m in (5, 50)}
    assert max(values) == pytest.approx(min(values))
    assert max(values) == pytest.approx(0.303 * 2.0 * 1000 / FIGURE.inverse_snr**2, rel=2e-3)


def test_the_reference_point_classifies_every_record_by_its_noise():
    data = signal_patches(12, 4000, spread=0.5, seed=0)
    start = 0.01 * np.random.default_rng(0).standard_normal((6, 4000))
    found = cnn.reference_filters(start, data, loss=0.1)
    height = 4 * 3 * 3 * math.log(6 / 0.1)
    products = (found - start) @ data.noise.T
    own = np.repeat([1.0, -1.0], 3)[:, None] == data.y
    # Noise patches are nearly orthogonal: 12 of them in 4000 dimensions.
    assert np.abs(products[own] / height - 1).max() < 0.2
    assert np.abs(products[~own]).max() < 0.2 * height
    alone = signal_patches(1, 9, spread=1.0, seed=0)
    exact = cnn.reference_filters(np.zeros((2, 9)), alone, loss=0.1) @ alone.noise[0]
    assert exact[0 if alone.y[0] > 0 else 1] == pytest.approx(4 * 3 * math.log(60))


def test_gd_stays_below_the_average_loss_bound():
    setting = Setting(d=400, n=10, m=8, spread=0.5, steps=400, step_size=0.5, noise=0.0)
    data = signal_patches(10, 400, spread=0.5, seed=0)
    run = cnn.Dynamics(cnn.Span(data), setting, seed=0)
    target = cnn.reference_filters(run.weight, data, loss=0.1)
    for _ in range(400):
        if run.first_noise is None:
            run.step()
    assert run.first_noise is not None
    distance = float(np.linalg.norm(run.weight - target))
    losses = [run.step().loss for _ in range(300)]
    bound = cnn.average_loss_bound(distance, step_size=0.5, steps=300, loss=0.1)
    assert np.mean(losses) <= bound


def iterate(x, change, steps):
    for _ in range(steps):
        x = x + change(x)
    return x


def test_acceptance_cnn_18_lemma_15():
    x = iterate(0.0, lambda v: 0.1 * math.exp(-v), 1000)
    low, high = cnn.lemma_15(0.1, 1.0, 0.0, 1000)
    assert x == pytest.approx(4.6174207, abs=5e-8) and low == pytest.approx(4.6151205, abs=5e-8)
    assert low <= x <= high


def hitting(x0, v, eta, q):
    x, t = x0, 0
    while x < v:
        x, t = x + eta * x ** (q - 1), t + 1
    return t


@pytest.mark.parametrize(
    ("x0", "q", "v", "eta", "time"), [(0.01, 3, 0.02, 0.01, 5001), (0.1, 4, 10.0, 0.01, 5007)]
)
def test_acceptance_cnn_18_lower_bound_of_lemma_14_is_false_as_printed(x0, q, v, eta, time):
    assert hitting(x0, v, eta, q) == time
    printed = 1 / (1.1 ** (q - 1) * eta * x0 ** (q - 2)) - math.log(v / x0) / 1.1 ** (q - 2)
    assert printed > time
    found = cnn.lemma_14(x0, v, step_size=eta, slowest=1.0, fastest=1.0, q=q, zeta=0.1)
    assert found.lower is None and found.upper >= time


@pytest.mark.parametrize("x0", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("q", [2.5, 3, 4])
@pytest.mark.parametrize("zeta", [0.1, 0.5, 2.0])
def test_acceptance_cnn_18_lemma_14_holds_where_it_is_given(x0, q, zeta):
    for v in (1.2 * x0, 3 * x0, 2.0):
        time = hitting(x0, v, 0.02, q)
        found = cnn.lemma_14(x0, v, step_size=0.02, slowest=1.0, fastest=1.0, q=q, zeta=zeta)
        assert time <= found.upper
        assert found.lower is None or found.lower <= time
        proved = (1 + zeta) ** (q - 1) * (1 - (x0 / v) ** (q - 2)) >= q - 2
        assert proved == (found.lower is not None)


# --- Privacy


def test_acceptance_cnn_13_exact_gaussian():
    for mu, epsilon in ((1.0, 4.377178), (0.5, 1.993091), (2.0, 9.997256)):
        assert gaussian_epsilon(mu, 1e-5) == pytest.approx(epsilon, abs=5e-7)
    for epsilon, mu in ((8.0, 1.666031), (1.0, 0.268051), (2.0, 0.501552)):
        assert gaussian_mu(epsilon, 1e-5) == pytest.approx(mu, abs=5e-7)


@pytest.mark.parametrize(
    ("spread", "A", "printed", "exact"),
    [
        (0.1, 124, 201.808817, 334.914006),
        (0.3, 1084, 1314.055495, 2441.478131),
        (0.5, 3004, 3386.972804, 6468.292236),
    ],
)
def test_acceptance_cnn_12_and_14_lemma_39_printed_and_exact(spread, A, printed, exact):
    found = cnn.lemma_39(dataclasses.replace(FIGURE, spread=spread), 1e-5)
    assert found.printed.claimed_epsilon == pytest.approx(printed, abs=5e-7)
    assert A + 2 * math.sqrt(A * math.log(2e5)) == pytest.approx(printed, abs=5e-7)
    assert found.exact.claimed_epsilon == pytest.approx(exact, abs=5e-7)
    assert not found.printed.is_confirmed and found.corrected.is_confirmed
    mu = (
        cnn.joint_sensitivity(n=1000, m=100, signal=1.0, longest=math.sqrt(1.5 * spread**2 * 2000))
        * math.sqrt(20_000)
        / 0.01
    )
    assert gaussian_epsilon(mu, 1e-5) == pytest.approx(exact, abs=5e-7)


@pytest.mark.parametrize(
    ("m", "n", "signal2", "energy", "A"), [(10, 10_000, 1.0, 100.0, 0.1), (5, 500, 2.0, 80.0, 0.8)]
)
def test_acceptance_cnn_16_theorem_3_substituted(m, n, signal2, energy, A):
    base = Setting(m=m, n=n, signal=math.sqrt(signal2), d=100, spread=math.sqrt(energy / 100))
    found = cnn.theorem_3(base, 1e-5)
    assert pytest.approx(A) == found.A and found.rate_mu == pytest.approx(math.sqrt(2 * A))
    assert pytest.approx(A) == cnn.theorem_3(dataclasses.replace(base, step_size=3.0), 1e-5).A
    scaled = dataclasses.replace(base, signal=7 * base.signal, spread=7 * base.spread)
    again = cnn.theorem_3(scaled, 1e-5)
    assert pytest.approx(A) == again.A and again.rate_epsilon == pytest.approx(found.rate_epsilon)
    # The printed number is not even the same for rescaled data.
    assert again.printed_epsilon == pytest.approx(found.printed_epsilon / 49)
    assert found.label == "as printed, incorrect" and found.printed_epsilon < found.rate_epsilon
    assert found.rate_epsilon <= found.epsilon_bound
    run = dataclasses.replace(base, noise=found.noise, steps=max(1, round(found.steps)))
    assert cnn.lemma_39(run, 1e-5, relation="zero-out").exact.true_epsilon > found.rate_epsilon
    assert cnn.advised_noise(base) == pytest.approx(found.noise)


def test_acceptance_cnn_17_epsilon_does_not_fall_like_A():
    ratios = [
        gaussian_epsilon(math.sqrt(2 * A), 1e-5) / (A * math.log(2e5)) for A in (1e-2, 1e-3, 1e-4)
    ]
    assert ratios == pytest.approx([4.0715, 11.608, 32.763], rel=2e-5)


def test_random_dp_takes_the_exact_radius_and_both_relations():
    one, zero = (cnn.random_dp(FIGURE, 1e-5, relation=r) for r in ("replace-one", "zero-out"))
    assert one.longest**2 / 0.25 == pytest.approx(2382.84, abs=0.005)
    assert one.mu > zero.mu and one.epsilon > zero.epsilon > 1000
    assert one.longest < math.sqrt(1.5 * 500)
    rng = np.random.default_rng(0)  # χ² of 1999 degrees is nearly normal: its 1e-3 radius, by draws
    loose = cnn.random_dp(dataclasses.replace(FIGURE, n=1), 1e-5, miss=2e-3).longest
    share = (np.sqrt(rng.chisquare(1999, 100_000)) * 0.5 > loose).mean()
    assert share == pytest.approx(1e-3, abs=5e-4)


def test_realised_numbers_are_labelled_and_smaller_than_the_worst_case():
    setting = Setting(d=120, n=40, m=8, spread=0.5, noise=0.05, steps=200, step_size=0.5)
    run = cnn.simulate(setting, seed=0, draws=10).dynamics
    found = run.realised
    assert "not a guarantee" in found.label and "not for release" in found.label
    assert found.mu.max() <= found.largest
    worst = cnn.random_dp(setting, 1e-5, relation="zero-out").mu
    assert found.largest < worst and found.described_epsilon(1e-5) == gaussian_epsilon(
        found.largest, 1e-5
    )


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: cnn.condition_1(Setting(q=2.0)), PlanError, "q above 2"),
        (lambda: cnn.condition_2(FIGURE, delta=0.0), PlanError, "probability"),
        (lambda: cnn.condition_2(FIGURE, constant=0.0), PlanError, "constant must be"),
        (lambda: cnn.escape_time(FIGURE, delta=1.0), PlanError, "probability"),
        (
            lambda: cnn.average_loss_bound(1.0, step_size=1.0, steps=0.0, loss=1.0),
            PlanError,
            "steps",
        ),
        (
            lambda: cnn.reference_filters(np.zeros((2, 3)), PAIR, loss=1.0),
            PlanError,
            "start has shape",
        ),
        (lambda: cnn.theorem_1(FIGURE, loss=0.0), PlanError, "loss must be"),
        (lambda: cnn.lemma_15(0.0, 1.0, 0.0, 1), PlanError, "c1 must be"),
        (lambda: cnn.lemma_15(1.0, 1.0, -1.0, 1), PlanError, "not negative"),
        (
            lambda: cnn.lemma_14(1.0, 0.5, step_size=1.0, slowest=1, fastest=1, q=3, zeta=1.0),
            PlanError,
            "target > start",
        ),
        (lambda: cnn.random_dp(Setting(noise=0.0), 1e-5), UnsupportedError, "has no ε"),
        (lambda: cnn.lemma_39(Setting(noise=0.0), 1e-5), UnsupportedError, "has no ε"),
        (lambda: cnn.random_dp(FIGURE, 1e-5, miss=0.0), PlanError, "miss is a probability"),
        (lambda: cnn.theorem_3(FIGURE, 0.0), PlanError, "delta|δ"),
        (lambda: cnn.realised([1.0], 1.0, n=1, noise=0.0), PlanError, "noise must be"),
        (lambda: cnn.clipped_noise(0, 1, 1.0, 1.0, 1e-5), PlanError, "n must be"),
    ],
)
def test_what_has_no_answer_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
