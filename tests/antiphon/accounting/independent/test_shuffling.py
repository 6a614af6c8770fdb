"""One shuffled pass: what is proved is above every instance, and what is not proved is refused."""

import math
from collections import Counter
from itertools import pairwise, permutations, product

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import antiphon as ap
from antiphon.accounting import gaussian_delta, gaussian_epsilon, gaussian_mu
from antiphon.accounting.independent import shuffling
from antiphon.accounting.independent.clones import clones_delta
from antiphon.errors import UnsupportedError
from antiphon.mechanisms import Independent, LambdaCGD
from antiphon.plans import Block, GaussianRelease


def make(n=1000, batch=1, steps=None, relation="replace-one", noise=None, **more):
    steps = -(-n // batch) if steps is None else steps
    values = {"mechanism": Independent(), "sampling": ap.ShuffledEpochs(batch), **more}
    return ap.Plan(n=n, steps=steps, relation=relation, noise_multiplier=noise, **values)


# --- The specification's numbers for one pass in batches of one


def published_noise(records, epsilon, delta):
    """2f by the published constant, half of δ for each part: what the specification computed.

    δ/2 = (e^ε + 1)(1 + e^-ε₀/2) N δ₀ and δ/2 from the clones; then f is the exact Gaussian's.
    """
    local = brentq(lambda e: clones_delta(records, e, epsilon) - delta / 2, 1e-3, 12.0)
    share = (math.exp(epsilon) + 1) * (1 + math.exp(-local) / 2) * records
    return 2 / gaussian_mu(local, delta / 2 / share)


TABLE = [
    (3918, (11.7, 5.18, 3.36), (4.50, 2.70, 2.07), (3.35, 2.18, 1.74)),
    (16512, (8.70, 4.06, 2.79), (3.74, 2.37, 1.86), (2.90, 1.96, 1.60)),
    (29386, (7.70, 3.70, 2.62), (3.48, 2.25, 1.79), (2.74, 1.88, 1.55)),
]


@pytest.mark.parametrize(("records", "published", "replaced", "zeroed"), TABLE)
def test_acceptance_relu_5_noise_of_one_shuffled_pass(records, published, replaced, zeroed):
    delta = records**-1.1
    for i, epsilon in enumerate((0.05, 0.2, 0.5)):
        assert published_noise(records, epsilon, delta) == pytest.approx(published[i], rel=5e-3)
        for relation, ours in (("replace-one", replaced), ("zero-out", zeroed)):
            plan = make(records, relation=relation)
            assert shuffling.least_noise(plan, epsilon, delta) == pytest.approx(ours[i], abs=0.006)


def test_acceptance_relu_5_noise_of_the_prototype():
    for epsilon, f in ((0.05, 4.377), (0.2, 2.040), (0.5, 1.402)):
        assert published_noise(16_000, epsilon, 16_000**-1.1) / 2 == pytest.approx(f, abs=6e-4)


def test_shuffling_needs_less_noise_than_no_amplification_and_more_than_the_published_poisson():
    for epsilon, poisson in ((0.05, 0.798), (0.2, 0.574), (0.5, 0.517)):
        plan = make(16512, relation="zero-out")
        least = shuffling.least_noise(plan, epsilon, 16512**-1.1)
        assert poisson < least < 1 / gaussian_mu(epsilon, 16512**-1.1)


# --- Against the exact divergence of tiny instances, over all orders


def means(gradients, batch, steps):
    """Each order's sums by step, with their probabilities."""
    count = Counter(
        tuple(sum(order[t * batch : (t + 1) * batch]) for t in range(steps))
        for order in permutations(gradients)
    )
    return {mean: times / count.total() for mean, times in count.items()}


def divergence(P, Q, sigma, epsilon, steps):
    """Of two mixtures of Gaussians, by a sum over a grid."""
    axis = np.linspace(-9, 9, 1201 if steps == 2 else 161)
    cell = (axis[1] - axis[0]) ** steps

    def density(mixture):
        total = np.zeros((len(axis),) * steps)
        for mean, weight in mixture.items():
            product_ = weight * np.ones(())
            for m in mean:
                product_ = np.multiply.outer(product_, norm.pdf(axis, m, sigma))
            total += product_
        return total

    return float(np.maximum(density(P) - math.exp(epsilon) * density(Q), 0).sum() * cell)


@pytest.mark.parametrize(
    ("n", "batch", "steps"),
    [(2, 1, 2), (4, 1, 2), (4, 2, 2), (5, 2, 2), (6, 3, 2), (3, 1, 3), (5, 2, 3)],
)
def test_the_bound_is_above_the_truth_over_all_orders(n, batch, steps):
    sigma, epsilon = 1.5, 0.1
    grid = [-1.0, 1.0] if n > 4 else [-1.0, 0.0, 1.0]
    profiles = {
        relation: shuffling.account(make(n, batch, steps, relation, sigma)).profile
        for relation in ("zero-out", "replace-one")
    }
    for others in {tuple(sorted(o)) for o in product(grid, repeat=n - 1)}:
        for record, other in ((1.0, -1.0), (1.0, 0.0), (0.0, 1.0)):
            P, Q = (means((*others, g), batch, steps) for g in (record, other))
            true = divergence(P, Q, sigma, epsilon, steps)
            relation = "zero-out" if 0.0 in (record, other) else "replace-one"
            assert true <= profiles[relation].delta(epsilon) * (1 + 1e-6)


@pytest.mark.parametrize(("records", "noise"), [(50, 40.0), (1000, 40.0), (4000, 33.0)])
def test_with_much_noise_the_sum_of_all_steps_nearly_reaches_the_bound(records, noise):
    # The sum of all releases is one Gaussian release, whatever the order.
    mu = 2 / (noise * math.sqrt(records))
    profile = shuffling.account(make(records, noise=noise)).profile
    for epsilon in (0.0, mu / 2, mu):
        reached = float(gaussian_delta(mu, epsilon))
        assert reached < profile.delta(epsilon) < 1.6 * reached


# --- The profile


@pytest.mark.parametrize("noise", [0.7, 1.5, 4.0, 30.0])
@pytest.mark.parametrize("records", [20, 3000, 10**6])
def test_the_profile_is_a_decreasing_curve_below_the_gaussian_one(records, noise):
    profile = shuffling.account(make(records, noise=noise)).profile
    epsilons = np.concatenate([np.linspace(0, 1, 15), np.linspace(1.2, 12, 15)])
    deltas = [profile.delta(e) for e in epsilons]
    assert all(b <= a or a < 1e-14 for a, b in pairwise(deltas))
    assert all(d <= gaussian_delta(2 / noise, e) for d, e in zip(deltas, epsilons, strict=True))


def test_inverting_the_profile_and_calibrating_agree():
    plan = make(5000, batch=5)
    noise = shuffling.least_noise(plan, 0.3, 1e-6)
    profile = shuffling.account(plan.with_noise(noise)).profile
    assert profile.delta(0.3) <= 1e-6
    assert profile.epsilon(1e-6) == pytest.approx(0.3, rel=1e-3)
    assert shuffling.account(plan.with_noise(0.999 * noise)).profile.delta(0.3) > 1e-6


def test_more_reports_more_noise_and_the_milder_relation_cost_less():
    def epsilon(**more):
        return shuffling.account(make(**{"n": 4000, "noise": 2.0, **more})).profile.epsilon(1e-5)

    assert epsilon() < gaussian_epsilon(1.0, 1e-5)
    assert epsilon(n=40_000) < epsilon() < epsilon(batch=10)
    assert epsilon(noise=3.0) < epsilon()
    assert epsilon(relation="zero-out") < epsilon()


def test_a_pass_is_counted_in_full_batches_whether_or_not_it_ends():
    whole = shuffling.account(make(1000, 10, 100, noise=3.0)).profile.delta(0.3)
    for n, steps in ((1000, 40), (1009, 100), (1009, 101), (1000, 1)):
        same = shuffling.account(make(n, 10, steps, noise=3.0)).profile.delta(0.3)
        assert same == whole
    assert shuffling.account(make(1010, 10, noise=3.0)).profile.delta(0.3) < whole


def test_blocks_and_scaled_encoders_count_by_their_effective_noise():
    two = (Block("a", 1.0, 4.0), Block("b", 3.0, 4.0))
    blocks = shuffling.account(make(blocks=two)).profile.delta(0.2)
    assert blocks == shuffling.account(make(noise=math.sqrt(8))).profile.delta(0.2)
    assert blocks > shuffling.account(make(noise=4.0)).profile.delta(0.2)


def test_certify_and_calibrate_use_it_where_it_is_best():
    plan = make(20_000, batch=4)
    calibrated = ap.calibrate(plan, 0.5, 1e-6)
    assert calibrated.noise_multiplier < 0.5 * 2 / gaussian_mu(0.5, 1e-6)
    certificate = ap.certify(calibrated, 1e-6)
    assert certificate.route == "shuffling"
    assert certificate.epsilon == pytest.approx(0.5, rel=1e-3)
    assert not certificate.is_tight
    assert "secret" in certificate.theorem


def test_where_shuffling_hides_nothing_the_gaussian_answer_remains():
    noise = shuffling.least_noise(make(10, batch=5), 4.0, 1e-6)
    assert noise == pytest.approx(2 / gaussian_mu(4.0, 1e-6), rel=2e-2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sampling": ap.OnePass(1)}, "secret random order"),
        ({"sampling": ap.Poisson(0.01)}, "secret random order"),
        ({"relation": "add-remove"}, "add-remove"),
        ({"steps": 1001}, "one pass, at most 1000 steps"),
        ({"mechanism": LambdaCGD(0.5)}, "independent between steps"),
        ({"extra": (GaussianRelease(0.1, "a mean"),)}, "a mean"),
        ({"batch": 501}, "one full batch"),
    ],
)
def test_what_is_not_proved_is_refused(change, words):
    plan = make(**{"noise": 2.0, **change})
    for call in (lambda: shuffling.account(plan), lambda: shuffling.least_noise(plan, 1.0, 1e-5)):
        with pytest.raises(UnsupportedError, match=words):
            call()
