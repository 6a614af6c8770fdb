"""What is proved and computed of private ReLU regression, against simulation and quadrature."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate
from scipy.stats import chi2, truncnorm

from antiphon.accounting import gaussian_mu
from antiphon.errors import DataError, PlanError, UnsupportedError
from antiphon.mechanisms import Dense, Independent, LambdaCGD, NuFTRL, Tree
from antiphon.tables.data import load
from antiphon_papers.relu import (
    BOUNDARY,
    TRUNCATED_VARIANCE,
    AverageNoise,
    Descent,
    PaperConstants,
    Problem,
    advise,
    average_bias,
    averaged_error,
    batch_one_risk,
    best_for_average,
    check_assumptions,
    contraction,
    excess_risk,
    full_batch_risk,
    largest_clip_norm,
    mean_direction,
    norm_bound,
    one_pass_risk,
    risk_bounds,
    second_moments,
    steady_state,
    theorem_2,
    theorem_2_printed,
    theorem_2_step,
    theorem_4,
    theorem_4_printed,
    theorem_7,
    theorem_7_printed,
)

N = 16_512
UNIT = Problem([1.0] + [0.0] * 9, label_noise=0.5)
UNEVEN = Problem([1, -1, 0.5, 0.8, -0.6], 0.5, [1.5, 1, 0.7, 0.4, 0.2])


def relu(values):
    return np.maximum(values, 0.0)


def simulated(problem, run, runs, seed=0):
    """Mini-batch GLMtron without clipping, many runs at once: the weights by their average."""
    rng, d = np.random.default_rng(seed), problem.d
    root = np.linalg.cholesky(problem.covariance)
    w, iterates = np.zeros((runs, d)), []
    for _ in range(run.steps):
        iterates.append(w)
        x = rng.standard_normal((runs, run.batch, d)) @ root.T
        y = relu(x @ problem.target) + problem.label_noise * rng.standard_normal((runs, run.batch))
        residual = relu(np.einsum("rbd,rd->rb", x, w)) - y
        g = np.einsum("rb,rbd->rd", residual, x) / run.batch
        w = w - run.step_size * (g + run.noise * rng.standard_normal((runs, d)))
    half = run.steps // 2
    return {
        "last": w,
        "tail": np.mean(iterates[half:], axis=0),
        "full": np.mean(iterates, axis=0),
    }


def errors(problem, weights):
    off = weights - problem.target
    return np.einsum("rd,de,re->r", off, problem.covariance, off)


# The exact risk.


def test_acceptance_relu_9_the_exact_risk_has_the_values_of_the_specification():
    assert excess_risk([1, 0], [0, 1]) == pytest.approx(0.340845056908, abs=1e-12)
    assert excess_risk([0.5, math.sqrt(3) / 2], [1, 0]) == pytest.approx(0.195501109478, abs=1e-12)
    H, target = [2.0, 0.5, 0.3], [0.4, -1.0, 2.0]
    squared = np.dot(H, np.square(target))
    assert excess_risk(np.negative(target), target, H) == pytest.approx(squared / 2, rel=1e-12)
    assert excess_risk([0, 0, 0], target, H) == pytest.approx(squared / 4, rel=1e-12)
    assert excess_risk([0.1, 0, 0], [0, 0, 0], H) == pytest.approx(0.02 / 4, rel=1e-12)


def test_acceptance_relu_9_the_exact_risk_agrees_with_monte_carlo():
    # Within 4 standard errors: a false alarm once in 16,000 seeds.
    rng = np.random.default_rng(1)
    root = rng.standard_normal((4, 4))
    H = root @ root.T
    x = rng.standard_normal((400_000, 4)) @ root.T
    for w, target in ((rng.standard_normal(4), rng.standard_normal(4)) for _ in range(3)):
        losses = (relu(x @ w) - relu(x @ target)) ** 2 / 2
        exact = excess_risk(w, target, H)
        assert abs(losses.mean() - exact) < 4 * losses.std() / math.sqrt(len(x))
        assert abs(losses.mean() - 1.05 * exact) > 4 * losses.std() / math.sqrt(len(x))


def test_the_risk_keeps_its_digits_close_to_the_target():
    for far in (1e-3, 1e-6, 1e-9):
        assert excess_risk([1, far], [1, 0]) == pytest.approx(far**2 / 4, rel=2 * far)
        assert excess_risk([1 + far, 0], [1, 0]) == pytest.approx(far**2 / 4, rel=1e-6)
    assert excess_risk([1, 2], [1, 2]) == 0


def test_acceptance_relu_10_the_risk_is_between_an_eighth_and_a_half():
    rng = np.random.default_rng(0)
    H = np.array([3.0, 1.0, 0.2, 0.05])
    ratios = []
    for w, target in rng.standard_normal((10_000, 2, 4)):
        low, high = risk_bounds(w, target, H)
        risk = excess_risk(w, target, H)
        assert low <= risk * (1 + 1e-12) and risk <= high * (1 + 1e-12)
        ratios.append(risk / high / 2)
    assert 0.125 <= min(ratios) < 0.15 and 0.2 < max(ratios) <= 0.25 + 1e-9
    target = rng.standard_normal(4)
    near = target + 1e-5 * rng.standard_normal(4)
    assert excess_risk(near, target, H) / (2 * risk_bounds(near, target, H)[1]) == pytest.approx(
        0.25, abs=1e-4
    )


W, STAR = np.array([1, -0.5, 0.3, 2, -1]), np.array([-0.5, 1, 0.2, 0.4, 0.7])
H5 = np.array([2, 1, 0.5, 0.3, 0.1])


@pytest.mark.parametrize("inputs", ["gaussian", "uniform"])
def test_acceptance_relu_11_the_mean_direction_is_linear(inputs):
    # 5 coordinates within 4 standard errors: a false alarm once in 3,000 seeds.
    rng, n = np.random.default_rng(3), 400_000
    if inputs == "gaussian":
        x, H = rng.standard_normal((n, 5)) * np.sqrt(H5), H5
        np.testing.assert_allclose(mean_direction(W, STAR, H), [1.5, -0.75, 0.025, 0.24, -0.085])
    else:
        x, H = rng.uniform(-1, 1, (n, 5)), np.full(5, 1 / 3)
        np.testing.assert_allclose(mean_direction(W, STAR, H), (W - STAR) / 6)
    y = relu(x @ STAR) + 0.5 * rng.standard_normal(n)
    g = (relu(x @ W) - y)[:, None] * x
    bars = 4 * g.std(0) / math.sqrt(n)
    assert (np.abs(g.mean(0) - mean_direction(W, STAR, H)) < bars).all()
    sgd = g * (x @ W > 0)[:, None]
    assert (np.abs(sgd.mean(0) - mean_direction(W, STAR, H)) > bars).sum() >= 3
    if inputs == "gaussian":
        printed = [0.979, -0.364, 0.046, 0.226, -0.052]
        np.testing.assert_allclose(sgd.mean(0), printed, atol=0.012)


def test_vectors_of_different_length_and_bad_covariances_are_refused():
    with pytest.raises(PlanError, match="2 weights and the target 3"):
        excess_risk([1, 2], [1, 2, 3])
    with pytest.raises(PlanError, match="finite numbers"):
        excess_risk([1, np.nan], [1, 2])
    with pytest.raises(PlanError, match="positive definite"):
        excess_risk([1, 2], [1, 2], [1.0, 0.0])
    with pytest.raises(PlanError, match="positive definite"):
        excess_risk([1, 2], [1, 2], [[1.0, 0.5], [0.2, 1.0]])
    with pytest.raises(PlanError, match="2 rows and columns"):
        excess_risk([1, 2], [1, 2], np.eye(3))
    with pytest.raises(PlanError, match="label_noise"):
        Problem([1.0], -0.1)
    with pytest.raises(PlanError, match="alpha must be at least 1"):
        Problem([1.0], 0.1, alpha=0.5)


# The moment recursion.


def test_acceptance_relu_13_one_step_contracts_less_than_the_lemma_claims():
    assert contraction(10, 0.01) == pytest.approx(0.990600, abs=1e-12)
    rng = np.random.default_rng(0)
    x, z = rng.standard_normal((400_000, 10)), np.eye(10)[0]
    active = x @ np.ones(10) > 0
    p = z - 0.01 * (active * x[:, 0])[:, None] * x
    squared = (p**2).sum(1)
    assert squared.mean() == pytest.approx(contraction(10, 0.01), abs=1e-4)
    assert contraction(10, 0.01) > 0.99  # what is claimed
    assert all(contraction(10, eta, b) > 1 - eta for eta in (0.001, 0.1, 1) for b in (1, 100))


def test_acceptance_relu_14_the_recursion_ends_in_its_steady_state():
    limit = steady_state(10, 1.0, 1000, 0.5, 0.1)
    assert limit == pytest.approx(0.01377225, abs=1e-8)
    last = second_moments(UNIT, Descent(80, 1000, 1.0, 0.1))[-1]
    np.testing.assert_allclose(last, limit * np.eye(10), rtol=1e-9, atol=1e-12)
    with pytest.raises(PlanError, match="too long for batches of 1"):
        steady_state(10, 1.0, 1, 0.5, 0.1)


@pytest.mark.slow
def test_acceptance_relu_15_the_recursion_agrees_with_20000_runs():
    run = Descent(60, 50, 0.5, 0.3)
    parts = [simulated(UNEVEN, run, 2000, seed) for seed in range(10)]
    for average, printed in (("last", 0.2684), ("tail", 0.0873), ("full", 0.0700)):
        found = np.concatenate([errors(UNEVEN, part[average]) for part in parts]).mean()
        computed = averaged_error(UNEVEN, replace(run, average=average))
        assert found == pytest.approx(computed, rel=0.03)
        assert found == pytest.approx(printed, rel=0.03)


def test_acceptance_relu_15_the_recursion_agrees_with_runs():
    # 1,500 runs have a standard error of 2.2 %; within three of it.
    run = Descent(60, 50, 0.5, 0.3)
    found = simulated(UNEVEN, run, 1500)
    for average, printed in (("last", 0.2684), ("tail", 0.0873), ("full", 0.0700)):
        computed = averaged_error(UNEVEN, replace(run, average=average))
        assert computed == pytest.approx(printed, rel=0.02)
        assert errors(UNEVEN, found[average]).mean() == pytest.approx(computed, rel=0.07)


def test_the_average_of_a_window_is_what_a_double_sum_says():
    run = Descent(13, 7, 0.4, 0.2, "tail")
    A, H = second_moments(UNEVEN, run), UNEVEN.covariance
    q = np.eye(5) - run.step_size * H / 2
    total = sum(np.trace(H @ np.linalg.matrix_power(q, abs(k - t)) @ A[min(t, k)])
                for t in range(6, 13) for k in range(6, 13))  # fmt: skip
    assert averaged_error(UNEVEN, run) == pytest.approx(total / 49, rel=1e-12)


def test_inputs_that_are_not_gaussian_cost_alpha():
    run = Descent(20, 50, 0.5, 0.3)
    gaussian, general = (averaged_error(UNEVEN, run, is_gaussian=is_so) for is_so in (True, False))
    assert gaussian < general < 1.5 * gaussian
    with pytest.raises(PlanError, match="above 2/λ_max"):
        averaged_error(UNEVEN, replace(run, step_size=1.4))
    with pytest.raises(PlanError, match="'full', 'tail' or 'last'"):
        replace(run, average="median")
    with pytest.raises(PlanError, match="standard deviation"):
        replace(run, noise=-1)


def test_acceptance_relu_16_only_a_tail_average_forgets_the_start():
    run = Descent(37, 10**9, 1.0, 0.0)
    quiet = Problem(UNIT.target, 0.0)
    for average, printed, rel in (("full", 2.922e-3, 1e-3), ("tail", 1.6e-13, 0.03)):
        assert averaged_error(quiet, replace(run, average=average)) == pytest.approx(
            printed, rel=rel
        )
    assert average_bias(0.5, 0, 37) == pytest.approx(2.922e-3, rel=1e-3)
    assert average_bias(0.5, 18, 37) == pytest.approx(1.6e-13, rel=0.03)
    for n, printed in ((1e4, 2.9e-3), (1e6, 1.3e-3), (1e8, 7.3e-4)):
        assert average_bias(0.5, 0, math.ceil(4 * math.log(n))) == pytest.approx(printed, rel=0.05)
    with pytest.raises(PlanError, match="first < end"):
        average_bias(0.5, 3, 3)


# Leading order.


def test_leading_order_has_the_values_of_the_specification():
    f, s = 1 / gaussian_mu(0.5, 16_000**-1.1), 1.5 * math.sqrt(10)
    for steps, printed in ((5, 0.00185), (10, 0.00339), (20, 0.00647)):
        assert one_pass_risk(UNIT, 16_000, steps, 2 * f, s).value == pytest.approx(
            printed, rel=5e-3
        )
    for steps in (20, 40, 80):
        found = full_batch_risk(UNIT, 16_000, steps, 2 * f * math.sqrt(steps), s)
        assert found.value == pytest.approx(0.000464, rel=5e-3)
        assert found.labels == 0.25 * 10 / 16_000
    assert batch_one_risk(UNIT, 16_000, 2 * f, s).privacy == pytest.approx(
        4 * f**2 * s**2 * 10 / 16_000
    )


@pytest.mark.parametrize("average", ["tail", "full"])
def test_leading_order_is_the_limit_of_the_recursion(average):
    run = Descent(4000, 100, 0.1, 0.05, average)
    near = Problem(1e-6 * UNEVEN.target, 0.5, UNEVEN.covariance)
    exact = averaged_error(near, run) / 4
    share = 0.5 if average == "tail" else 1.0
    noise = run.noise * run.batch
    found = one_pass_risk(near, 400_000, 4000, noise, 1.0, share).value
    assert exact == pytest.approx(found, rel=0.06)


def test_shares_and_noise_that_make_no_sense_are_refused():
    with pytest.raises(PlanError, match="share"):
        one_pass_risk(UNIT, 100, 10, 1.0, 1.0, 0.0)
    with pytest.raises(PlanError, match="noise_multiplier"):
        full_batch_risk(UNIT, 100, 10, -1.0, 1.0)


# Upper bounds.


@pytest.mark.parametrize("problem", [UNIT, UNEVEN, Problem(np.ones(4), 0.3, [1, 0.1, 0.1, 0.01])])
@pytest.mark.parametrize("average", ["tail", "full"])
@pytest.mark.parametrize(("steps", "batch", "step_size", "noise"),
                         [(20, 200, 0.8, 0.02), (200, 20, 0.2, 0.3), (500, 5, 0.02, 0.0)])  # fmt: skip
def test_the_repaired_theorem_is_above_the_recursion(
    problem, average, steps, batch, step_size, noise
):
    run = Descent(steps, batch, step_size, noise, average)
    bound = theorem_4(problem, run)
    assert bound.is_guarantee
    assert bound.value >= averaged_error(problem, run, is_gaussian=False) / 2
    assert bound.with_probability(0.1) == pytest.approx(10 * bound.value)


def test_the_repaired_theorem_is_above_simulated_risks():
    run = Descent(20, 200, 0.8, 0.02)
    bound = theorem_4(UNIT, run)
    risks = [excess_risk(w, UNIT.target) for w in simulated(UNIT, run, 200)["tail"]]
    assert np.mean(risks) < bound.value < 4 * np.mean(risks)
    D1 = 1 - 0.8 / 200 * (3 * 10 / 2 + 199 / 4)
    assert dict(bound.terms)["labels"] == pytest.approx(2 * 0.25 * 10 / (200 * 10 * D1))


def test_conditions_say_by_how_much_they_fail_and_then_nothing_is_promised():
    bound = theorem_4(UNIT, Descent(20, 2, 1.0, 0.1))
    assert bound.value == math.inf and bound.is_vacuous and not bound.is_guarantee
    assert "contraction" in bound.verdict and "factor of 7.6" in bound.verdict
    with pytest.raises(PlanError, match="about averages"):
        theorem_4(UNIT, Descent(20, 200, 1.0, 0.1, "last"))
    with pytest.raises(PlanError, match="failure"):
        bound.with_probability(0.0)


def test_uneven_inputs_need_the_largest_eigenvalue_where_the_paper_has_the_trace():
    # M∘H⁻¹ = (d + 2) H for Gaussians: its norm 102 is far above α tr(H) = 5.97.
    H = np.array([1.0] + [0.01] * 99)
    problem = Problem(np.ones(100), 0.5, H)
    assert (problem.d + 2) * H.max() == 102 and problem.alpha * problem.trace == pytest.approx(5.97)
    assert norm_bound(problem, 10_000) == pytest.approx(54.99, abs=0.01)
    bound = theorem_4(problem, Descent(10, 50, 0.5, 0.1))
    assert bound.conditions[2].value > 5 * (bound.conditions[1].value - 49 / 4 * 0.5 / 50)


def test_theorem_2_takes_steps_too_short_to_learn():
    for n, epsilon, printed in ((N, 0.05, 0.003), (10**6, 0.05, 1.9), (10**8, 0.005, 45)):
        f = math.log(n / n**-1.1) / (epsilon * math.sqrt(n))
        assert theorem_2_step(UNIT, n, f) * n / 2 == pytest.approx(printed, rel=0.02)
    bound = theorem_2_printed(UNIT, N, 0.05, N**-1.1)
    assert bound.verdict.startswith("not proved here: way of the mean iterate")
    assert not bound.is_explicit and bound.failed[0].name == "ε <= sqrt(log(N/δ)/N)"
    assert bound.failed[0].limit == pytest.approx(0.0351, abs=1e-4)
    assert theorem_2(UNIT, 16_000, 1e-3, 2 * 6.6, 4.743).verdict == "proved, but vacuous"


def test_theorem_4_as_printed_keeps_most_of_the_start():
    printed = theorem_4_printed(UNIT, 10_000, 0.5, 10_000**-1.1)
    left = {c.name: c for c in printed.conditions}["what is left of the start in the last iterate"]
    assert left.value == pytest.approx(0.964, abs=1e-3) and not left.holds
    assert not printed.is_guarantee
    large = theorem_4_printed(UNIT, 10_000, 0.5, 10_000**-1.1, PaperConstants(tail=2.0))
    assert dict(large.terms)["privacy"] == pytest.approx(4 * dict(printed.terms)["privacy"])
    with pytest.raises(PlanError, match="δ must lie"):
        theorem_4_printed(UNIT, 100, 0.5, 0.0)


def test_the_papers_clip_norm_is_useless():
    # The multiplier of the threshold, sqrt(2 α tr H) C₂ log^2a N, is 75 at d = 10, N = 16,000.
    assert math.sqrt(2 * 3 * 10) * math.log(16_000) == pytest.approx(75, rel=1e-3)
    assert largest_clip_norm(UNIT, 16_000) > 100
    with pytest.raises(PlanError, match="b_x"):
        norm_bound(UNIT, 16_000, PaperConstants(failure=1.5))


# The lower bound.


def test_acceptance_relu_21_constants_of_the_truncated_normal():
    assert pytest.approx(0.291125095, abs=1e-9) == TRUNCATED_VARIANCE
    assert pytest.approx(0.708874905, abs=1e-9) == BOUNDARY
    assert truncnorm(-1, 1).var() == pytest.approx(TRUNCATED_VARIANCE, rel=1e-9)
    assert 2 * truncnorm(-1, 1).pdf(1) == pytest.approx(BOUNDARY, rel=1e-9)


def test_acceptance_relu_21_the_lower_bound_is_vacuous_at_the_experiments_delta():
    bound = theorem_7(N, 10, 0.5, 0.5, N**-1.1)
    assert bound.is_vacuous and bound.risk == 0 and bound.verdict.startswith("vacuous")
    printed = theorem_7_printed(N, 10, 0.5, 0.5, N**-1.1)
    assert printed.is_vacuous
    assert printed.left == pytest.approx(0.728, abs=1e-3)
    assert printed.remainder == pytest.approx(5.535, rel=0.05)


@pytest.mark.parametrize(
    ("u", "printed", "sharpened"), [(0.5, 5.12e-9, 3.77e-8), (1, 7.75e-9, 5.71e-8)]
)
def test_the_lower_bound_has_the_values_of_the_specification(u, printed, sharpened):
    delta = N ** -(1 + u)
    assert theorem_7_printed(N, 10, 0.5, 0.5, delta).squared_error == pytest.approx(
        printed, rel=3e-3
    )
    found = theorem_7(N, 10, 0.5, 0.5, delta)
    # The specification takes |<M - w, x>| <= sqrt(d) there; 2 sqrt(d), which holds, costs a little.
    assert 0.75 * sharpened < found.squared_error <= sharpened
    assert found.risk == found.squared_error / 8
    assert found.risk < 1e-3 * found.without_privacy and "not vacuous" in found.verdict


def test_the_remainder_of_the_lower_bound_is_a_best_cut():
    n, d, sigma, epsilon, delta = 1000, 5, 0.7, 0.4, 1e-5
    scale = 2 * math.sqrt(d) * sigma

    def remainder(T):
        tail, _ = integrate.quad(lambda t: 0.5 * math.erfc(t / scale / math.sqrt(2)), T, 60 * scale)
        return n * ((1 + math.exp(-epsilon)) * delta * T + tail)

    found = theorem_7(n, d, sigma, epsilon, delta).remainder
    cuts = np.linspace(2 * scale, 6 * scale, 200)
    assert found == pytest.approx(min(map(remainder, cuts)), rel=1e-4)


def test_a_lower_bound_at_no_delta_is_refused():
    with pytest.raises(PlanError, match="δ must lie"):
        theorem_7(100, 5, 0.5, 0.5, 0.0)


# Assumptions.


def gaussian(n=20_000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4)) * np.sqrt([2, 1, 0.5, 0.25])
    target = np.array([1, -0.5, 0.3, 2])
    return X, relu(X @ target) + 0.5 * rng.standard_normal(n), target


def test_gaussian_data_look_as_assumed():
    X, y, target = gaussian()
    found = check_assumptions(X, y, target=target)
    assert found.failed == ()
    assert found.alpha == pytest.approx(3.0, abs=0.4)
    assert found.condition_number == pytest.approx(8, rel=0.05)
    assert found.bias < 0.05
    assert "not private" in str(found)


def test_skewed_data_are_called_asymmetric_and_the_mean_direction_is_off():
    rng = np.random.default_rng(0)
    X = rng.exponential(size=(20_000, 3)) - 1  # mean 0, standard deviation 1
    target = np.array([1.0, 0.5, -0.5])
    found = check_assumptions(X, relu(X @ target), target=target)
    assert found.symmetry_z > 5 * found.symmetry_limit
    assert found.bias > 0.1
    assert "symmetry" in str(found.failed[0])
    assert found.alpha > 6  # 9 for each exponential variable


def test_alpha_of_heavy_tails_needs_the_fourth_power_of_the_proxy():
    # z = ±100 with probability 1/20,000 each: variance 1, fourth moment 10,000, above 16 × 504.88.
    z = np.zeros((20_000, 1))
    z[:2, 0] = [100, -100]
    assert check_assumptions(z).alpha == pytest.approx(10_000) and 16 * 504.88 < 10_000


def test_the_printed_tail_of_norms_fails_for_every_b_in_one_dimension():
    assert chi2(10).cdf(10) == pytest.approx(0.559507, abs=1e-6)  # 1 - 1/e is needed
    assert chi2(1).cdf(math.log(100)) == pytest.approx(0.968124, abs=1e-6)  # 0.99 is needed
    for d in range(2, 101):  # and holds for d >= 2 and b <= 1/4
        assert all(chi2(d).cdf(d * math.log(1 / b)) >= 1 - b for b in (0.25, 0.1, 1e-2, 1e-4, 1e-8))


def test_the_exponential_moment_of_a_gaussian_is_2_at_the_corrected_constant():
    moment, _ = integrate.quad(
        lambda v: math.exp(v * v * 3 / 8 - v * v / 2) / math.sqrt(2 * math.pi), -60, 60
    )
    assert moment == pytest.approx(2.0, rel=1e-9)


def test_tables_that_are_none_and_targets_without_labels_are_refused():
    X, y, target = gaussian(100)
    with pytest.raises(DataError, match="two finite rows"):
        check_assumptions(X[:1])
    with pytest.raises(DataError, match="two finite rows"):
        check_assumptions(np.where(X > 2, np.nan, X))
    with pytest.raises(PlanError, match="a label for each of the 100 rows"):
        check_assumptions(X, target=target)
    with pytest.raises(PlanError, match="must not be 0"):
        check_assumptions(X, y, target=np.zeros(4))
    with pytest.raises(DataError, match="labels must be finite"):
        check_assumptions(X, np.full(100, np.nan), target=target)


def test_standardised_real_data_are_not_symmetric():
    data = load("breast-cancer")
    X = np.asarray(data.X_train, float)[:, :5]
    found = check_assumptions((X - X.mean(0)) / X.std(0))
    assert found.symmetry_z > found.symmetry_limit


# Advice.


def test_advice_has_reasons_and_an_honest_risk():
    advice = advise(16_000, 10, 0.5, relation="replace-one")
    mu = gaussian_mu(0.5, 16_000**-1.1)
    assert advice.noise_multiplier.value == pytest.approx(2 * math.sqrt(20) / mu)
    assert advice.lower.is_vacuous
    text = str(advice)
    for word in ("full-batch", "tail", "vacuous", "replace-one", "1/λ_max"):
        assert word in text
    half = advise(16_000, 10, 0.5)
    assert half.noise_multiplier.value == pytest.approx(advice.noise_multiplier.value / 2)


def test_worse_conditioned_inputs_need_more_steps():
    steps = [advise(16_000, 10, 0.5, condition_number=k).steps.value for k in (1, 10, 100)]
    assert steps[0] < steps[1] < steps[2]
    with pytest.raises(PlanError, match="at least 1"):
        advise(100, 5, 1.0, condition_number=0.5)


# Correlated noise.


MECHANISMS = {
    "independent": Independent(),
    "tree": Tree(),
    "ν-FTRL": NuFTRL(0.05),
    "λ-CGD": LambdaCGD(0.9),
    "dense": Dense(
        NuFTRL(0.2).encoder(37) + np.tril(np.random.default_rng(0).uniform(0, 0.1, (37, 37)))
    ),
}


@pytest.mark.parametrize("average", ["full", "tail"])
@pytest.mark.parametrize("name", MECHANISMS)
def test_the_averages_answer_to_noise_is_what_iterating_gives(name, average):
    T, eta, spectrum, mechanism = 37, 0.3, [1.5, 0.4, 0.4], MECHANISMS[name]
    noise = AverageNoise(spectrum, T, eta, average)
    first = 0 if average == "full" else T // 2
    total, single = 0.0, 0.0
    for lam in spectrum:
        w, seen = np.zeros(T), []
        for row in mechanism.decoder(T):  # weights as functions of white noise
            seen.append(w)
            w = (1 - eta * lam / 2) * w - eta * row
            single += lam * (w**2).sum() / T
        total += lam * (np.mean(seen[first:], axis=0) ** 2).sum()
    assert noise.error(mechanism) == pytest.approx(math.sqrt(total), rel=1e-9)
    assert noise.iterates_error(mechanism) == pytest.approx(math.sqrt(single), rel=1e-9)
    assert noise.loss(mechanism) >= noise.bound
    assert noise.risk(mechanism, 0.3) == pytest.approx((0.3 * noise.loss(mechanism)) ** 2 / 4)


def test_no_mechanism_beats_the_bound_and_dense_ones_come_near_it():
    noise = AverageNoise([1.0, 0.5], 48, 0.15)
    found = {g: best_for_average("dense", noise, guard=g) for g in (1.0, 1e-2, 1e-4)}
    losses = [found[g].loss / noise.bound for g in found]
    assert losses[0] > losses[1] > losses[2] > 1 and losses[2] < 1.02
    iterates = [found[g].iterates for g in found]
    assert iterates[0] < iterates[1] < iterates[2]  # the price


def test_every_family_is_better_than_tree_noise_and_one_dense_in_both_respects():
    noise = AverageNoise([1.0], 500, 0.1)
    tree = best_for_average("tree", noise)
    for family in ("nu-ftrl", "lambda-cgd"):
        found = best_for_average(family, noise)
        assert found.loss < 0.7 * tree.loss and found.gap > 0
    dense = best_for_average("dense", noise, guard=1e-2)
    assert dense.loss < 0.5 * tree.loss and dense.iterates < 0.5 * tree.iterates
    assert best_for_average("independent", noise).loss > tree.loss
    guarded = best_for_average("lambda-cgd", noise, guard=1e-2)
    assert guarded.iterates < best_for_average("lambda-cgd", noise).iterates


def test_averages_that_are_none_and_unknown_families_are_refused():
    noise = AverageNoise([1.0], 20, 0.1)
    with pytest.raises(PlanError, match="'full' or 'tail'"):
        AverageNoise([1.0], 20, 0.1, "last")
    with pytest.raises(PlanError, match="at most 2"):
        AverageNoise([1.0], 20, 2.1)
    with pytest.raises(PlanError, match="positive eigenvalues"):
        AverageNoise([1.0, 0.0], 20, 0.1)
    with pytest.raises(PlanError, match="family is one of"):
        best_for_average("banded", noise)
    with pytest.raises(PlanError, match="Give guard > 0"):
        best_for_average("dense", noise)
    with pytest.raises(PlanError, match="weight of at least 0"):
        best_for_average("tree", noise, guard=-1)
    with pytest.raises(UnsupportedError, match="up to 1024"):
        best_for_average("dense", AverageNoise([1.0], 2000, 0.1), guard=1)
