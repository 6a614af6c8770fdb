"""The coefficients and the simulator in few dimensions against the full simulation."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import chi2, norm, ortho_group

from antiphon.errors import PlanError, UnsupportedError
from antiphon_papers import cnn
from antiphon_papers.cnn import (
    Dynamics,
    Setting,
    SignalPatches,
    Span,
    Tracker,
    TwoLayerCNN,
    signal_patches,
)
from antiphon_papers.cnn.theory.fresh import fresh

SMALL = Setting(d=30, n=8, m=4, spread=0.5, knee=0.3, scale=0.2, step_size=0.4, noise=0.05)
LAW = Setting(**vars(SMALL) | {"noise": 0.2, "scale": 0.05, "steps": 15})
SIGNAL = np.array([0.6, -0.8, 1.0, *[0.0] * 27])


def network(setting, seed=0):
    torch.manual_seed(seed)
    return TwoLayerCNN(
        setting.d, setting.m, q=setting.q, knee=setting.knee, scale=setting.scale
    ).double()


def records(setting, seed=1):
    signal = SIGNAL if setting.d == 30 else setting.signal
    return signal_patches(setting.n, setting.d, spread=setting.spread, seed=seed, signal=signal)


def weights(model):
    return model.filters.weight.detach().numpy()


def tracked(setting, steps, *, clip_norm=None, seed=0):
    """A full run with its coefficients, and each step's; with noise, or clipped with a certificate."""
    model, data = network(setting, seed), records(setting)
    tracker, seen = Tracker(data, model, setting.step_size), []

    def watch(step):
        tracker(step)
        seen.append((step, tracker.gamma.copy(), tracker.rho.copy()))

    run = {"step_size": setting.step_size, "steps": steps, "watch": watch}
    if clip_norm is not None:
        private = {"epsilon": 50.0, "delta": 1e-2, "clip_norm": clip_norm, "seed": 5}
        found = cnn.descend(model, data.x, data.y, **run, **private)
    elif setting.noise:
        found = cnn.printed_descent(model, data.x, data.y, noise=setting.noise, seed=5, **run)
    else:
        found = cnn.gradient_descent(model, data.x, data.y, **run)
    return model, data, found, tracker, seen


# --- Coefficients of the full simulation


def test_acceptance_cnn_3_coefficients_of_the_worked_example():
    model = TwoLayerCNN(3, 2, q=3, knee=0.5).double()
    rows = [[0.2, 0.3, -0.1], [0.1, -0.2, 0.4], [-0.1, 0.4, 0.2], [0.3, 0.1, 0.05]]
    with torch.no_grad():
        model.filters.weight.copy_(torch.tensor(rows, dtype=torch.float64))
    mu, y = np.array([2.0, 0.0, 0.0]), np.array([1.0, -1.0])
    noise = np.array([[0.0, 1.0, 0.0], [0.0, 0.5, 1.0]])
    data = SignalPatches(
        np.stack([y[:, None] * mu, noise], 1), y, noise, np.zeros(2, np.int64), mu, 1.0
    )
    tracker = Tracker(data, model, 1.0)
    cnn.gradient_descent(model, data.x, y, step_size=1.0, steps=3, watch=tracker)
    expected = [1.16378582, 0.50822129, 0.56795452, 0.54301869]
    np.testing.assert_allclose(tracker.gamma, expected, atol=5e-9)
    np.testing.assert_allclose(tracker.rho[0], [0.16174446, -0.00998563], atol=5e-9)
    run = Dynamics(Span(data), Setting(d=3, n=2, m=2, knee=0.5, step_size=1.0, noise=0.0), seed=0,
                   start=np.array(rows))  # fmt: skip
    for _ in range(3):
        run.step()
    np.testing.assert_allclose(run.gamma, expected, atol=5e-9)
    np.testing.assert_allclose(run.weight[3], [0.02849066, 0.09477070, 0.06546059], atol=5e-9)


@pytest.mark.parametrize("clip_norm", [None, 0.1])
def test_acceptance_cnn_4_the_decomposition_is_exact_and_unique(clip_norm):
    _, _, found, tracker, _ = tracked(SMALL, 200, clip_norm=clip_norm)
    np.testing.assert_allclose(tracker.rebuilt, weights(found.model), atol=1e-10)
    gamma, rho = tracker.fitted(weights(found.model))
    np.testing.assert_allclose(gamma, tracker.gamma, atol=1e-8)
    np.testing.assert_allclose(rho, tracker.rho, atol=1e-8)
    assert tracker.is_unique and tracker.gamma.max() > 0.1


@pytest.mark.parametrize(("noise", "clip_norm"), [(0.0, None), (0.05, None), (0.05, 0.1)])
def test_acceptance_cnn_5_signs_and_monotonicity(noise, clip_norm):
    setting = Setting(**vars(SMALL) | {"noise": noise})
    model, data, _, _, seen = tracked(setting, 150, clip_norm=clip_norm)
    own = model.signs.numpy()[:, None] == data.y
    gammas, rhos = (np.stack([part[place] for part in seen]) for place in (1, 2))
    for values in (gammas, np.where(own, rhos, -rhos)):
        assert (values >= 0).all() and (np.diff(values, axis=0) >= 0).all()
    assert (np.diff(gammas, axis=0) > 0).any() and rhos.min() < 0 < rhos.max()


def test_more_patches_than_dimensions_have_a_decomposition_that_is_not_unique():
    crowded = Setting(**vars(SMALL) | {"n": 40})
    _, _, found, tracker, _ = tracked(crowded, 50)
    np.testing.assert_allclose(tracker.rebuilt, weights(found.model), atol=1e-10)
    assert not tracker.is_unique
    with pytest.raises(UnsupportedError, match="not unique"):
        tracker.fitted(weights(found.model))


# --- The simulator


@pytest.mark.parametrize("n", [8, 28, 29, 40])  # triangular for fewer than d - 1 = 29 records
@pytest.mark.parametrize(("noise", "clip_norm"), [(0.0, None), (0.05, None), (0.05, 0.1)])
def test_acceptance_cnn_8_equal_noise_gives_the_steps_of_the_full_simulation(n, noise, clip_norm):
    setting = Setting(**vars(SMALL) | {"n": n, "noise": noise, "signal": 2**0.5})
    model, data, found, tracker, seen = tracked(setting, 120, clip_norm=clip_norm)
    start, limit = weights(model), math.inf if clip_norm is None else clip_norm
    span = Span(data)
    assert span.is_triangular == (n < 29)
    run = Dynamics(span, setting, seed=9, start=start, clip_norm=limit)
    for step, gamma, rho in seen:
        before = run.step(None if step.noise is None else step.noise.numpy())
        np.testing.assert_allclose(before.margins, step.sums.margins.numpy(), atol=1e-10)
        np.testing.assert_allclose(before.norms, step.sums.norms.numpy(), atol=1e-10)
        np.testing.assert_allclose(run.gamma, gamma, atol=1e-10)
        np.testing.assert_allclose(run.rho, rho, atol=1e-10)
    np.testing.assert_allclose(run.weight, weights(found.model), atol=1e-10)
    summed = span.lift(run.noise_sum[:, 0], run.noise_sum[:, 1:], np.zeros_like(run.rest))
    away = tracker.noise_sum - summed  # what is left is orthogonal to all patches
    assert np.abs(np.vstack([data.noise, data.signal]) @ away.T).max() < 1e-10
    seen_mu = np.sqrt(sum(np.minimum(s.sums.norms.numpy(), limit) ** 2 for s, _, _ in seen))
    if noise:
        np.testing.assert_allclose(run.realised.mu, seen_mu / (n * noise), rtol=1e-9)


def test_single_precision_takes_nearly_the_same_steps():
    setting, data = Setting(**vars(SMALL) | {"noise": 0.0}), records(SMALL)
    start = weights(network(SMALL))
    runs = [Dynamics(Span(data, kind), setting, seed=0, start=start) for kind in ("f4", "f8")]
    for _ in range(100):
        for run in runs:
            run.step()
    np.testing.assert_allclose(runs[0].rho, runs[1].rho, atol=1e-5)
    np.testing.assert_allclose(runs[0].weight, runs[1].weight, atol=1e-5)
    assert runs[0].rho.dtype == np.float32


@pytest.fixture(scope="module")
def many_runs():
    """200 runs of both simulations on the same records, each with a start and noise of its own."""
    data = records(SMALL)
    fresh_patch = records(SMALL, seed=77).noise[0]
    full, reduced = [], []
    span = Span(data)
    for seed in range(200):
        found = cnn.printed_descent(network(LAW, seed), data.x, data.y, step_size=0.4, steps=15,
                                    noise=0.2, seed=seed)  # fmt: skip
        w = weights(found.model)
        full.append((w @ data.signal, w @ fresh_patch))
        run = Dynamics(span, LAW, seed=seed)
        for _ in range(15):
            run.step()
        run.fresh(draws=1)  # draws what training did not see
        w = run.weight
        reduced.append((w @ data.signal, w @ fresh_patch))
    return np.array(full), np.array(reduced)


def test_acceptance_cnn_8_own_noise_has_the_law_of_the_full_simulation(many_runs):
    """Means and variances of ⟨w, μ⟩ and of a fresh ⟨w, ξ⟩, of the first filter of each sign.

    Eight z-tests at 4.5 standard errors: a false alarm in one of 18 000 choices of seeds.
    """
    full, reduced = many_runs
    for place in (0, 1):
        for k in (0, SMALL.m):
            a, b = full[:, place, k], reduced[:, place, k]
            spread = math.sqrt(a.var() / 200 + b.var() / 200)
            assert abs(a.mean() - b.mean()) < 4.5 * spread
            squares = [(v - v.mean()) ** 2 for v in (a, b)]
            spread = math.sqrt(sum(v.var() for v in squares) / 200)
            assert abs(squares[0].mean() - squares[1].mean()) < 4.5 * spread


def test_a_rest_that_does_not_walk_would_be_seen(many_runs):
    full, _ = many_runs
    data, span = records(SMALL), Span(records(SMALL))
    xi = records(SMALL, seed=77).noise[0]
    still = []
    for seed in range(200):
        run = Dynamics(span, LAW, seed=seed)
        for _ in range(15):
            run.step()
        still.append((run.weight @ xi)[0])
    a, b = full[:, 1, 0], np.array(still)
    spread = math.sqrt(sum(((v - v.mean()) ** 2).var() for v in (a, b)) / 200)
    assert abs(a.var() - b.var()) > 4.5 * spread
    assert span.left == SMALL.d - 1 - len(data.y)


def test_acceptance_cnn_10_rotations_change_no_scalar():
    data, start = records(SMALL), weights(network(SMALL))
    turn = ortho_group.rvs(30, random_state=0)
    turned = SignalPatches(data.x @ turn, data.y, data.noise @ turn, data.position,
                           data.signal @ turn, data.spread)  # fmt: skip
    noise = 0.05 * np.random.default_rng(0).standard_normal((60, 8, 30))
    runs = [
        Dynamics(Span(some), SMALL, seed=0, start=first)
        for some, first in ((data, start), (turned, start @ turn))
    ]
    for b in noise:
        one, other = runs[0].step(b), runs[1].step(b @ turn)
        np.testing.assert_allclose(one.margins, other.margins, atol=1e-10)
    np.testing.assert_allclose(runs[0].gamma, runs[1].gamma, atol=1e-10)
    np.testing.assert_allclose(runs[0].rho, runs[1].rho, atol=1e-10)
    np.testing.assert_allclose(runs[0].weight @ turn, runs[1].weight, atol=1e-10)
    forms = [cnn.gradient_descent(network(SMALL), x, data.y, step_size=0.1, steps=1).model(
        torch.from_numpy(x)) for x in (data.x, data.x[:, ::-1].copy())]  # fmt: skip
    torch.testing.assert_close(*forms, atol=1e-12, rtol=0)


# --- Fresh records


def test_acceptance_cnn_9_test_error_without_test_data():
    setting = Setting(**vars(SMALL) | {"n": 25})
    _, data, found, _, _ = tracked(setting, 60)
    expected = cnn.fresh_of(found.model, data, draws=20_000)
    test = records(Setting(**vars(SMALL) | {"n": 20_000}), seed=99)
    with torch.no_grad():
        margins = torch.from_numpy(test.y) * found.model(torch.from_numpy(test.x))
    accuracy = float((margins > 0).double().mean())
    assert 0.6 < accuracy < 0.99
    se = math.hypot(expected.accuracy_se, math.sqrt(accuracy * (1 - accuracy) / 20_000))
    assert abs(accuracy - expected.accuracy) < 4 * se
    losses = torch.nn.functional.softplus(-margins)
    assert abs(float(losses.mean()) - expected.loss) < 5 * float(losses.std()) / math.sqrt(20_000)


def test_acceptance_cnn_9_without_filters_accuracy_is_a_coin():
    model = network(SMALL)
    with torch.no_grad():
        model.filters.weight.zero_()
    found = cnn.fresh_of(model, records(SMALL), draws=100)
    assert found.accuracy == 0.5 and found.loss == pytest.approx(math.log(2))


def test_with_one_pair_of_linear_filters_test_error_is_an_integral():
    """w₊ = -w₋ = a e₁ + b e₂ far above a tiny knee: f = a y + b ξ₂, an error of Φ(-a/(b σ_p))."""
    activation = TwoLayerCNN(2, 1, knee=1e-9).activation
    a, b = 0.5, 0.7
    gram = b**2 * np.array([[1.0, -1.0], [-1.0, 1.0]])
    found = fresh(np.array([a, -a]), gram, activation, draws=200_000)
    assert abs(found.accuracy - norm.cdf(a / b)) < 4 * found.accuracy_se


# --- Runs from a setting


def test_coarsening_keeps_the_flow_and_the_displacement_by_noise():
    base = Setting(d=120, n=30, m=5, spread=0.3, steps=400, step_size=0.2, noise=0.0, scale=0.05)
    fine, coarse = (cnn.simulate(base, seed=0, coarsen=f, draws=2000).last for f in (1, 10))
    assert coarse.train_loss == pytest.approx(fine.train_loss, abs=0.01)
    assert coarse.test_accuracy == pytest.approx(fine.test_accuracy, abs=0.02)
    noisy = Setting(**vars(base) | {"noise": 0.1})
    shaken = [cnn.simulate(noisy, seed=0, coarsen=f, draws=10).dynamics for f in (1, 10)]
    moved = [run.setting.step_size * run.noise_sum.std() for run in shaken]
    assert moved[0] == pytest.approx(0.2 * 0.1 * math.sqrt(400), rel=0.15)
    assert moved[1] == pytest.approx(moved[0], rel=0.2)


def test_gd_and_dp_gd_of_one_seed_share_data_and_start():
    base = Setting(d=60, n=20, m=4, steps=4)
    runs = [
        cnn.simulate(Setting(**vars(base) | {"noise": noise}), seed=3, looks=[0], draws=500)
        for noise in (0.0, 0.01)
    ]
    assert runs[0].measurements[0] == runs[1].measurements[0]
    assert runs[0].last.train_loss != runs[1].last.train_loss
    other = cnn.simulate(base, seed=4, looks=[0], draws=500)
    assert other.measurements[0] != runs[0].measurements[0]


def test_the_knee_is_passed_first_where_products_say_so():
    base = Setting(d=60, n=20, m=4, spread=0.5, steps=600, noise=0.0, step_size=4.0)
    run = cnn.simulate(base, seed=0, draws=10).dynamics
    again = Dynamics(run.span, base, seed=0)
    for t in range(600):
        signal = again.signs * again.along
        passed = min(signal[:4].max(), signal[4:].max()) >= base.knee
        assert passed == (run.first_signal is not None and t >= run.first_signal)
        tops = again.step().tops.min()
        if run.first_noise is not None and t <= run.first_noise:
            assert (tops >= base.knee) == (t == run.first_noise)
    assert run.first_noise is not None


def test_clipped_norms_are_counted():
    base = Setting(d=60, n=20, m=4, steps=3, noise=0.0)
    assert cnn.simulate(base, seed=0, clip_norm=1e-4, draws=10).last.clipped == 1.0
    assert cnn.simulate(base, seed=0, clip_norm=1e4, draws=10).last.clipped == 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cnn.simulate(SMALL, seed=0, precision="half"), "precision is one of float32"),
        (lambda: cnn.simulate(SMALL, seed=0, coarsen=3), "must divide the 20000 steps; got 3"),
        (lambda: cnn.simulate(SMALL, seed=0, coarsen=10, looks=[5]), "multiples of 10"),
        (lambda: Dynamics(Span(records(SMALL)), Setting(), seed=0), "the data 8 and 30"),
        (lambda: Dynamics(Span(records(SMALL)), SMALL, seed=0, clip_norm=-1.0), "clip_norm must"),
        (lambda: Dynamics(Span(records(SMALL)), SMALL, seed=0, start=np.zeros((8, 3))), "shape"),
        (lambda: Setting(n=0), "n must be a whole number"),
        (lambda: Setting(knee=-1.0), "knee must be positive"),
        (lambda: Setting(q=1.0), "q must be above 1"),
        (lambda: Setting(noise=-1.0), "noise must be non-negative"),
    ],
)
def test_what_cannot_be_simulated_is_refused(call, message):
    with pytest.raises(PlanError, match=message):
        call()


def test_norms_of_patches_are_those_of_chi_squared():
    """For d = 2000 the norms that Lemma 7 allows are left with probability 1.8e-43 and 4.67e-86."""
    assert chi2.sf(3000, 1999) == pytest.approx(1.80e-43, rel=0.01)
    assert chi2.cdf(1000, 1999) == pytest.approx(4.67e-86, rel=0.01)
