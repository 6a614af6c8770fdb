"""Algorithm 1 as it runs, against a loop over single examples by autograd and against `make_private`."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from oracles.grid import on_grid, spacing_of
from torch.nn.functional import softplus

import antiphon as ap
from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import Independent, LambdaCGD, redrawn
from antiphon.numerics import Generator
from antiphon.plans import Draws
from antiphon_papers import kan_sgd
from antiphon_papers.common.two_layer_kan import TwoLayerKAN

SEED = 7


def network(d=3, m=6, seed=0, dtype=torch.float64, **options):
    torch.manual_seed(seed)
    return TwoLayerKAN(d, m, **options).to(dtype)


def sample(n=60, d=3, seed=0):
    rng = torch.Generator().manual_seed(seed)
    x = torch.rand(n, d, generator=rng, dtype=torch.float64) * 2 - 1
    return x, torch.where(x.sum(1) + 0.3 > 0, 1.0, -1.0).double()


def coefs(model):
    layers = (model.first.coef, model.second.coef)
    return [coef.detach().clone() for coef in layers if coef.requires_grad]


def descend(model, x, y, **options):
    """A run and its iterates, the start first."""
    known = {"iterates": 6, "step_size": 0.5, "noise_multiplier": 1.5, "delta": 1e-4, "seed": SEED}
    known |= {
        "mechanism": LambdaCGD(0.7),
        "sampling": "shuffled",
        "batch_size": 12,
        "clip_norm": 0.3,
    }
    iterates = [coefs(model)]
    found = kan_sgd.descend(
        model, x, y, callback=lambda k, now: iterates.append(coefs(now)), **known | options
    )
    return found, iterates


def clipped_sum(model, x, y, rows, clip_norm):
    """One example after another, by autograd."""
    layers = [coef for coef in (model.first.coef, model.second.coef) if coef.requires_grad]
    total = [torch.zeros_like(coef) for coef in layers]
    for i in rows:
        loss = softplus(-y[i] * model(x[i : i + 1])).sum()
        gradients = torch.autograd.grad(loss, layers)
        norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
        for part, g in zip(total, gradients, strict=True):
            part += g * min(1.0, clip_norm / max(norm, 1e-300))
    return total


def algorithm_1(model, x, y, plan, step_size, radius=math.inf):
    """Algorithm 1 as printed, slow and obvious, with the draws that the seed gives; all iterates."""
    source, iterates = Generator.seeded(SEED), [coefs(model)]
    draws, white = Draws(plan.sampling, len(x), source.spawn("sampling")), source.spawn("noise")
    layers = [coef for coef in (model.first.coef, model.second.coef) if coef.requires_grad]
    like = torch.zeros(sum(coef.numel() for coef in layers), dtype=layers[0].dtype)
    for t in range(plan.steps):
        total = clipped_sum(model, x, y, draws.rows(t).tolist(), plan.clip_norm)
        xi = redrawn(plan.known_mechanism(), white, like, t).split([c.numel() for c in layers])
        with torch.no_grad():
            for coef, part, z in zip(layers, total, xi, strict=True):
                coef -= step_size * noisy(part, z.view_as(coef), plan)
            moves = [coef - at for coef, at in zip(layers, iterates[0], strict=True)]
            far = math.sqrt(sum(float(move.square().sum()) for move in moves))
            for coef, at, move in zip(layers, iterates[0], moves, strict=True):
                coef.copy_(at + move * min(1.0, radius / far))
        iterates.append(coefs(model))
    return iterates


def noisy(total, z, plan):
    """The mean of a batch with its noise, on the grid."""
    scale = plan.noise_scale / plan.expected_batch
    return torch.from_numpy(on_grid(total / plan.expected_batch, z, scale))


def half_a_point(plan):
    """How far rounding onto the grid moves a mean."""
    return 0.5001 * float(spacing_of(plan.noise_scale / plan.expected_batch))


SAMPLINGS = {
    "poisson": {"sampling": "poisson", "mechanism": "independent"},
    "fixed-size": {"sampling": "fixed-size"},
    "shuffled": {},
    "full-batch": {"sampling": "full-batch", "batch_size": None},
    "few bins": {"sampling": ap.BallsInBins(3), "mechanism": LambdaCGD(0.2), "batch_size": None},
}


@pytest.mark.parametrize("train", ["first", "second", "both"])
@pytest.mark.parametrize("name", SAMPLINGS)
def test_iterates_are_those_of_the_printed_algorithm(name, train):
    x, y = sample()
    for radius in (None, 0.05):
        found, iterates = descend(network(train=train), x, y, radius=radius, **SAMPLINGS[name])
        plan = found.certificate.plan
        slow = algorithm_1(network(train=train), x, y, plan, 0.5, radius or math.inf)
        assert len(iterates) == len(slow) == 6
        for now, expected in zip(iterates, slow, strict=True):
            torch.testing.assert_close(now, expected, rtol=0, atol=1e-10)
        assert (found.projections > 0) is (radius is not None)


def test_a_run_of_the_engine_with_the_same_plan_and_seed_has_the_same_iterates():
    """So that audits of the engine speak of this loop, too."""
    x, y = sample()
    found, iterates = descend(
        network(train="both"), x, y, sampling="poisson", mechanism="independent"
    )
    model = network(train="both")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    run = ap.make_private(
        model, optimizer, (x, y), lambda model, x, y: softplus(-y * model(x)),
        plan=found.certificate, seed=SEED,
    )  # fmt: skip
    others = [coefs(model), *(coefs(model) for _ in run)]
    for now, other in zip(iterates, others, strict=True):
        # Sums that differ in their last digits may lie on either side of a point's middle.
        torch.testing.assert_close(now, other, rtol=0, atol=1e-6 + 2 * half_a_point(run.plan))
    assert run.certificate.epsilon == found.certificate.epsilon


def test_acceptance_kan_correlated_5_special_cases_bit_for_bit():
    x, y = sample()
    independent = descend(network(), x, y, mechanism=Independent())[1]
    assert torch.equal(
        independent[-1][0], descend(network(), x, y, mechanism=LambdaCGD(0.0))[1][-1][0]
    )
    correlated = descend(network(), x, y, sampling="full-batch", batch_size=None)
    white, plan = Generator.seeded(SEED).spawn("noise"), correlated[0].certificate.plan
    for t, (before, after) in enumerate(pairwise(correlated[1])):
        model = network()
        with torch.no_grad():
            model.first.coef.copy_(before[0])
        still = kan_sgd.stochastic_gradient_descent(
            model, x, y, iterates=2, step_size=0.5, clip_norm=0.3, sampling="full-batch"
        )
        # The noise that is kept equals the noise that is drawn again: what is left is clipped descent.
        z = redrawn(plan.known_mechanism(), white, before[0].flatten(), t).view_as(before[0])
        expected = coefs(still.model)[0] - 0.5 * plan.noise_scale * z / 60
        torch.testing.assert_close(after[0], expected, rtol=0, atol=0.5 * half_a_point(plan))


def test_acceptance_kan_correlated_5_without_noise_it_is_clipped_and_then_plain_sgd():
    x, y = sample()
    draws = Draws(ap.ShuffledEpochs(12), 60, Generator.seeded(SEED).spawn("sampling"))
    for clip_norm in (0.3, math.inf):
        model, steps = network(train="both"), []
        found = kan_sgd.stochastic_gradient_descent(
            model, x, y, iterates=8, step_size=0.5, batch_size=12, clip_norm=clip_norm, sampling="shuffled",
            seed=SEED, callback=lambda k, now, steps=steps: steps.append(coefs(now)),
        )  # fmt: skip
        for t in range(7):
            total = clipped_sum(model, x, y, draws.rows(t).tolist(), clip_norm)
            with torch.no_grad():
                for coef, part in zip((model.first.coef, model.second.coef), total, strict=True):
                    coef -= 0.5 * part / 12
            torch.testing.assert_close(steps[t], coefs(model), rtol=0, atol=1e-12)
        assert found.certificate is None and found.iterates == 8 and found.projections == 0
        assert found.noise_multiplier == 0.0


def test_acceptance_kan_correlated_6_shifted_identity(lam=0.7, T=101):
    """U_t = W_t + η c Z_t moves by the gradient and (1 - λ) c Z_{t-1} alone."""
    x, y = sample(20, 2)
    found, iterates = descend(network(2, 4), x, y, iterates=T, batch_size=5, step_size=0.2)
    plan, model = found.certificate.plan, network(2, 4)
    source = Generator.seeded(SEED)
    draws, white = Draws(plan.sampling, 20, source.spawn("sampling")), source.spawn("noise")
    scale, last = 0.2 * plan.noise_scale / 5, torch.zeros_like(iterates[0][0])
    for t, ((before,), (after,)) in enumerate(pairwise(iterates)):
        with torch.no_grad():
            model.first.coef.copy_(before)
        (total,) = clipped_sum(model, x, y, draws.rows(t).tolist(), plan.clip_norm)
        now = white.normal(before.flatten(), t).view_as(before)
        moved = after + scale * now - (before + scale * last)
        torch.testing.assert_close(
            moved,
            -0.2 * total / 5 - (1 - lam) * scale * last,
            rtol=0,
            atol=0.2 * half_a_point(plan),
        )
        last = now
    assert t == T - 2


@pytest.mark.parametrize("lam", [0.0, 0.5, 0.9])
def test_acceptance_kan_correlated_6_variance_of_the_noise_of_a_run(lam, T=51):
    """Within 3 standard errors at the first, middle and last step: a false alarm in 1 of 40 seeds.

    Noise is 10⁶ times the clip norm, so that gradients do not count.
    """
    x, y = sample(20, 25)
    start = network(25, 100)
    _, iterates = descend(
        start, x, y, iterates=T, mechanism=LambdaCGD(lam), noise_multiplier=1e6, sampling="full-batch",
        batch_size=None,
    )  # fmt: skip
    unit = 0.5 * 0.3 * 1e6 / 20
    for t in (1, 25, 50):
        moved = (iterates[t][0] - iterates[0][0]) / unit
        expected = 1 + (1 - lam) ** 2 * (t - 1)
        error = expected * math.sqrt(2 / moved.numel())
        assert float(moved.square().mean()) == pytest.approx(expected, abs=3 * error)
        # The same numbers refute the noise of the next λ.
        wrong = 1 + (1 - lam - 0.05) ** 2 * (t - 1)
        assert t == 1 or abs(float(moved.square().mean()) - wrong) > 3 * error or lam == 0.9


def test_acceptance_kan_correlated_7_projections_of_a_run():
    x, y = sample()
    for train in ("first", "both"):
        found, iterates = descend(network(train=train), x, y, radius=0.3, iterates=31)
        far = [
            math.sqrt(
                sum(float((a - b).square().sum()) for a, b in zip(now, iterates[0], strict=True))
            )
            for now in iterates
        ]
        assert max(far) <= 0.3 * (1 + 1e-12)
        on_ball = sum(distance > 0.3 * (1 - 1e-12) for distance in far)
        assert 0 < found.projections == on_ball <= 30


def test_acceptance_kan_correlated_8_iterates_and_releases():
    x, y = sample()
    found, iterates = descend(network(), x, y, iterates=6)
    assert len(iterates) == found.iterates == 6 and found.certificate.plan.steps == 5
    assert found.noise_multiplier == found.certificate.plan.noise_multiplier == 1.5
    advice = kan_sgd.advise(400, 4, 1.0, 1e-3, noise=lambda plan: float(plan.steps))
    assert advice.steps.value == 19  # sqrt(400) iterates
    assert advice.plan(400).steps == 19 == advice.noise_multiplier.value


@pytest.mark.parametrize(
    ("options", "relation", "route"),
    [
        ({"sampling": "poisson", "mechanism": "independent"}, "add-remove", "pld"),
        ({"sampling": "fixed-size"}, "zero-out", "conditioned"),
        ({"sampling": "shuffled", "iterates": 31}, "zero-out", "conditioned"),
        ({"sampling": "full-batch", "batch_size": None}, "add-remove", "gaussian"),
    ],
)
def test_the_certificate_is_for_the_batches_as_they_are_drawn(options, relation, route):
    x, y = sample()
    found, _ = descend(network(), x, y, noise_multiplier=None, epsilon=2.0, **options)
    certificate = found.certificate
    assert certificate.epsilon <= 2.0 and certificate.delta == 1e-4
    assert (str(certificate.relation), certificate.route) == (relation, route)
    again = ap.certify(certificate.plan, 1e-4)
    assert again.epsilon == pytest.approx(certificate.epsilon, rel=1e-6)
    assert certificate.plan.expected_batch == (
        60 if route == "gaussian" and "batch_size" in options else 12
    )


def test_correlated_noise_under_poisson_sampling_is_certified_by_its_own_pair():
    x, y = sample()
    found, _ = descend(
        network(),
        x,
        y,
        sampling="poisson",
        mechanism=LambdaCGD(0.5),
        noise_multiplier=3.0,
        delta=1e-2,
    )
    certificate = found.certificate
    assert certificate.route in ("mixture", "conditioned")
    fresh = ap.certify(certificate.plan, 1e-2)
    assert fresh.epsilon == certificate.epsilon


def test_an_empty_batch_takes_a_noisy_step():
    x, y = sample()
    options = {"sampling": "poisson", "mechanism": "independent", "batch_size": 1, "iterates": 21}
    found, iterates = descend(network(), x, y, **options)
    plan, source = found.certificate.plan, Generator.seeded(SEED)
    draws, white = Draws(plan.sampling, 60, source.spawn("sampling")), source.spawn("noise")
    empty = [t for t in range(20) if not len(draws.rows(t))]
    assert empty
    for t in empty:
        moved = iterates[t + 1][0] - iterates[t][0]
        z = white.normal(moved.flatten(), t).view_as(moved)
        expected = -0.5 * noisy(torch.zeros_like(z), z, plan)
        torch.testing.assert_close(moved, expected, rtol=0, atol=1e-12)


def test_an_example_that_is_not_finite_counts_as_zero():
    x, y = sample()
    broken = x.clone()
    broken[5, 1] = math.nan
    found, iterates = descend(network(), broken, y)
    model, plan, source = network(), found.certificate.plan, Generator.seeded(SEED)
    draws, white = Draws(plan.sampling, 60, source.spawn("sampling")), source.spawn("noise")
    t = next(t for t in range(5) if 5 in draws.rows(t).tolist())
    with torch.no_grad():
        model.first.coef.copy_(iterates[t][0])
    rows = [i for i in draws.rows(t).tolist() if i != 5]
    (total,) = clipped_sum(model, x, y, rows, 0.3)
    z = redrawn(plan.known_mechanism(), white, total.flatten(), t).view_as(total)
    expected = iterates[t][0] - 0.5 * noisy(total, z, plan)
    torch.testing.assert_close(iterates[t + 1][0], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_record_moves_a_step_by_at_most_its_clip_norm(dtype):
    """Whatever it is: the largest inputs, the other label, no number."""
    x, y = sample()
    options = {"iterates": 2, "sampling": "full-batch", "batch_size": None, "clip_norm": 0.01}
    one = descend(network(dtype=dtype, train="both"), x, y, **options)[1][1]
    for value in (1.0, -1.0, 1e30, math.inf, math.nan):
        other_x, other_y = x.clone(), y.clone()
        other_x[3], other_y[3] = value, -y[3]
        other = descend(network(dtype=dtype, train="both"), other_x, other_y, **options)[1][1]
        moved = [(a - b).double() for a, b in zip(one, other, strict=True)]
        norm = math.sqrt(sum(float(part.square().sum()) for part in moved)) * 60 / 0.5
        assert norm <= 2 * 0.01 * (1 + (1e-9 if dtype is torch.float64 else 2e-3))


def test_averages_are_means_of_iterates_and_the_given_model_stays():
    x, y = sample()
    start = network(train="both")
    before = coefs(start)
    _, iterates = descend(start, x, y)
    for average, some in (("all", iterates[1:]), ("tail", iterates[3:]), (None, iterates[-1:])):
        found, _ = descend(start, x, y, average=average)
        for place, coef in enumerate(coefs(found.model)):
            expected = torch.stack([now[place] for now in some]).mean(0)
            torch.testing.assert_close(coef, expected, atol=1e-12, rtol=0)
    assert all(map(torch.equal, before, coefs(start)))


def test_noise_and_batches_are_fresh_without_a_seed():
    x, y = sample()
    runs = [descend(network(), x, y, seed=seed)[0] for seed in (None, None, 3, 3)]
    weights = [coefs(run.model)[0] for run in runs]
    assert not torch.equal(weights[0], weights[1]) and torch.equal(weights[2], weights[3])
    for run, is_seeded in zip(runs, (False, False, True, True), strict=True):
        lines = run.certificate.assumptions
        assert any("not for release" in line for line in lines) is is_seeded
        assert any("holds nothing of the data" in line for line in lines)


def test_correlated_noise_leaves_less_of_itself_than_independent_noise_of_the_same_privacy():
    """Ten epochs in one order at ε = 2; at equal seeds the white noise is the same, only larger."""
    x, y = sample(200, 2)
    moved = []
    for mechanism in (Independent(), LambdaCGD(0.8)):
        options = {"mechanism": mechanism, "iterates": 101, "batch_size": 20, "epsilon": 2.0}
        _, iterates = descend(
            network(2, 32), x, y, noise_multiplier=None, clip_norm=1e-6, step_size=1e6, **options
        )
        moved.append(float((iterates[-1][0] - iterates[0][0]).norm()))
    assert moved[1] < 0.5 * moved[0]


def test_an_infinite_radius_is_none_and_a_background_changes_nothing():
    x, y = sample()
    x[:40, 1] = -1.0
    one = descend(network(), x, y)[1][-1][0]
    for options in ({"radius": math.inf}, {"background": -1.0}, {"background": [math.nan, -1, -1]}):
        torch.testing.assert_close(
            descend(network(), x, y, **options)[1][-1][0], one, rtol=0, atol=1e-12
        )


def test_what_cannot_run_says_what_to_do():
    x, y = sample()
    refused = [
        ({"iterates": 1}, "iterates must be at least 2: the first is the start; got 1"),
        ({"step_size": 0.0}, "step_size must be positive and finite; got 0.0"),
        ({"batch_size": None}, "sampling='shuffled' needs batch_size"),
        ({"batch_size": 61}, "batch_size=61 is larger than the 60 units"),
        ({"epsilon": 1.0}, "give either epsilon, .* or noise_multiplier; got epsilon=1.0 and"),
        ({"noise_multiplier": 0.0}, "noise_multiplier must be positive and finite; got 0.0"),
        ({"clip_norm": 0.0}, "clip_norm must be positive and finite; got 0.0"),
        ({"clip_norm": math.inf}, "clip_norm must be positive and finite; got inf"),
        ({"delta": 1.0}, "δ|delta"),
        ({"radius": -1.0}, "radius must be positive and finite; got -1.0"),
        ({"sampling": "sorted"}, "sampling is 'poisson', .*; got 'sorted'"),
        ({"n": 64}, "the plan is for 64 units and the data has 60; .* they must be equal"),
    ]
    for options, message in refused:
        with pytest.raises(PlanError, match=message):
            descend(network(), x, y, **options)
    with pytest.raises(PlanError, match="Of labels 0 and 1, take 2"):
        descend(network(), x, (y + 1) / 2)
    with pytest.raises(PlanError, match="no layer of the model is trained"):
        descend(network().requires_grad_(False), x, y)
    with pytest.raises(UnsupportedError, match="zero-out"):
        descend(network(), x, y, relation="add-remove")


def test_a_nominal_number_of_examples_is_the_divisor_of_poisson_batches():
    x, y = sample()
    found, _ = descend(
        network(), x, y, sampling="poisson", mechanism="independent", n=64, batch_size=16
    )
    plan = found.certificate.plan
    assert (plan.n, plan.sampling, plan.expected_batch) == (64, ap.Poisson(0.25), 16)


def test_what_was_computed_of_a_table_of_numbers_may_be_any_array():
    x, y = sample()
    one = descend(network(), x, y)[0].model
    other = descend(network(), np.asarray(x), np.asarray(y).tolist())[0].model
    assert torch.equal(one.first.coef, other.first.coef)
