"""Constants, calibrations and bounds of DP-GD against grids, autograd, brute force and simulated runs."""

import math
import warnings
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import BSpline
from torch.nn.functional import softplus

from antiphon.accounting import gaussian_delta, gaussian_epsilon, gaussian_mu
from antiphon.errors import PlanError
from antiphon.models import spline_basis
from antiphon.numerics import UniformSplines
from antiphon_papers import kan_gd
from antiphon_papers.common.printed import PrintedTheoremWarning
from antiphon_papers.common.two_layer_kan import TwoLayerKAN
from antiphon_papers.kan_gd import Problem, SecondLayer

PAPERS = Problem(n=20_000, d=10, m=32, steps=100)
MEASURED = SecondLayer(norm=16.0, largest=4.7, slope_norm=17.42)
DELTA = 5e-5


def quiet(function, *args, **kwargs):
    """The result, whether or not it warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrintedTheoremWarning)
        return function(*args, **kwargs)


def network(d, m, seed, activation="tanh"):
    """A network whose both layers learn."""
    torch.manual_seed(seed)
    model = TwoLayerKAN(d, m, activation=activation).double()
    return model.requires_grad_(True)


def second_layer(model):
    c = model.second.coef.detach().reshape(model.second.in_features, -1).numpy()
    constants = kan_gd.kan_constants(model.second.splines, model.activation)
    return SecondLayer.measured(c, constants), constants


def sample(n, d, seed):
    rng = torch.Generator().manual_seed(seed)
    x = torch.rand(n, d, generator=rng, dtype=torch.float64) * 2 - 1
    return x, torch.where(torch.rand(n, generator=rng) < 0.5, -1.0, 1.0).double()


def training_loss(model, x, y):
    return softplus(-y * model(x)).mean()


def loss_of(model, x, y):
    """The same as a number."""
    with torch.no_grad():
        return float(training_loss(model, x, y))


def gradients(model, x, y):
    """Mean gradients of the loss by the first and the second layer."""
    layers = [model.first.coef, model.second.coef]
    return [g.detach() for g in torch.autograd.grad(training_loss(model, x, y), layers)]


def projected(v, centre, radius):
    return centre + (v - centre) * min(1.0, radius / max(1e-300, float((v - centre).norm())))


# --- The basis and its constants


def test_acceptance_kan_dpgd_1_basis():
    h = spline_basis(torch.tensor([0.0, -1.0, 1.0]).double(), UniformSplines())
    expected = [[0, 0, 0.5, 11.5, 11.5, 0.5, 0, 0], [4, 16, 4, *5 * [0]], [*5 * [0], 4, 16, 4]]
    torch.testing.assert_close(h * 24, torch.tensor(expected).double(), rtol=0, atol=1e-12)
    every = spline_basis(torch.linspace(-1, 1, 4001).double(), UniformSplines())
    assert float((every.sum(-1) - 1).abs().max()) < 1e-12


def on_a_grid(splines, activation, points=400_001):
    """The constants of the specification's two tables as maxima over many points."""
    v = torch.linspace(splines.low, splines.high, points).double()
    orders = [spline_basis(v, splines, k) for k in range(3)]
    low = -1.0 if activation == "tanh" else 0.0
    u = torch.linspace(low, 1, points).double()
    slope, bend = (
        (1 - u**2, -2 * u * (1 - u**2))
        if activation == "tanh"
        else (u - u**2, (1 - 2 * u) * (u - u**2))
    )
    first, second = (spline_basis(u, splines, k) for k in (1, 2))
    K = (slope * first.norm(dim=-1)).max()
    W = (bend[:, None] * first + slope[:, None] ** 2 * second).norm(dim=-1).max()
    return [
        *(float(h.abs().max()) for h in orders),
        *(float(h.norm(dim=-1).max()) for h in orders),
        float(K),
        float(W),
    ]


@pytest.mark.parametrize(
    ("splines", "activation", "expected"),
    [
        (UniformSplines(), "tanh", (2.25346955, 14.12538141)),
        (UniformSplines(), "sigmoid", (0.54757909, 0.88588938)),
        (UniformSplines(low=0.0), "sigmoid", (1.12673477, 3.53134535)),
        (UniformSplines(7, 4, -1.5, 1.1), "tanh", None),
    ],
    ids=["tanh", "sigmoid", "sigmoid on [0, 1]", "other grid"],
)
def test_acceptance_kan_dpgd_2_constants(splines, activation, expected):
    found = kan_gd.kan_constants(splines, activation)
    numbers = [*found.coordinate, *found.vector, found.slope, found.bend]
    by_grid = on_a_grid(splines, activation)
    np.testing.assert_allclose(numbers, by_grid, rtol=1e-6 if expected else 1e-5)
    assert (np.array(numbers) >= np.array(by_grid) * (1 - 1e-15)).all()
    if expected is None:
        return
    D = splines.spacing
    closed = [2 / 3, 2 / 3 / D, 2 / D**2, 1 / 2**0.5, 13**0.5 / 4 / D, 6**0.5 / D**2]
    np.testing.assert_allclose(numbers, [*closed, *expected], rtol=2e-8)
    if D == 0.4:
        printed = [0.66666667, 1.66666667, 12.5, 0.70710678, 2.25346955, 15.30931089]
        np.testing.assert_allclose(numbers[:6], printed, atol=1e-6)
    assert found.sigma[2] == pytest.approx(
        {"tanh": 0.76980036, "sigmoid": 0.09622504}[activation], abs=5e-9
    )


def test_acceptance_kan_dpgd_2_clamped_knots_are_worse():
    """Why the grid continues evenly beyond its ends: with repeated end knots slopes are 4.7 times it."""
    knots = np.concatenate([[-1.0] * 3, np.linspace(-1, 1, 6), [1.0] * 3])
    v = np.linspace(-1, 1, 400_001)
    basis = BSpline(knots, np.eye(8), 3)
    values = [basis(v), basis.derivative(1)(v), basis.derivative(2)(v)]
    assert [np.abs(h).max() for h in values] == pytest.approx([1, 7.5, 56.25], abs=1e-6)
    norms = [np.linalg.norm(h, axis=1) for h in values]
    assert [h.max() for h in norms] == pytest.approx([1, 10.60660172, 70.15607600], abs=1e-6)
    assert ((1 - v**2) * norms[1]).max() == pytest.approx(2.25346955, abs=1e-6)


def test_acceptance_kan_dpgd_3_linear_precision():
    model = network(1, 1, 0)
    with torch.no_grad():
        model.first.coef.zero_()
        model.second.coef.copy_(torch.arange(1, 9)[None])
    x = torch.tensor([[-1.0], [0.3], [0.9]]).double()
    torch.testing.assert_close(model(x).detach(), torch.full((3,), 4.5).double())
    slope = (
        model.second.coef.detach() @ spline_basis(torch.zeros(1).double(), UniformSplines(), 1).T
    )
    assert float(slope) == pytest.approx(2.5, abs=1e-12)
    first, second = kan_gd.gradient_norms(model, x)
    assert float(second[0]) == pytest.approx(0.678284192, abs=5e-10)
    assert float(first[0]) == pytest.approx(1.767766953, abs=5e-10)


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_acceptance_kan_dpgd_4_closed_norms_are_those_of_autograd(activation):
    model = network(4, 6, 1, activation)
    x, y = sample(7, 4, 2)
    first, second = kan_gd.gradient_norms(model, x)
    for i in range(len(x)):
        grads = gradients(model, x[i : i + 1], y[i : i + 1])
        steep = 1 / (1 + math.exp(float(y[i] * model(x[i : i + 1]).detach())))
        for grad, norm in zip(grads, (first[i], second[i]), strict=True):
            assert float(grad.norm()) == pytest.approx(steep * float(norm), rel=1e-10)


# --- Curvature


def flat_hessian(model, function):
    """Gradient and Hessian of a function of the outputs by [second layer, first layer], by autograd."""
    names = ("second.mix.weight", "first.mix.weight")
    shapes = [model.get_parameter(name).shape for name in names]
    here = torch.cat([model.get_parameter(name).detach().flatten() for name in names])

    def value(flat):
        parts = flat.split([shape.numel() for shape in shapes])
        pairs = zip(names, parts, shapes, strict=True)
        weights = {name: part.reshape(shape) for name, part, shape in pairs}
        return function(lambda x: torch.func.functional_call(model, weights, (x,)))

    first = torch.func.jacrev(value)
    return first(here), torch.func.jacrev(first)(here)


def test_acceptance_kan_dpgd_5_hessians_are_within_the_bounds():
    """60 nets, some with large weights, which reach flat places and steep splines."""
    most = np.zeros(4)
    for seed in range(60):
        model = network(2, 2, seed, "sigmoid" if seed % 4 == 3 else "tanh")
        with torch.no_grad():
            model.first.coef.mul_(0.1 + seed % 3)
        x, y = sample(1, 2, seed)
        layer, constants = second_layer(model)
        problem = Problem(1, 2, 2, 1, constants)
        at = kan_gd.curvature(problem, layer)
        printed = kan_gd.curvature(problem, layer, chain="printed")
        grad, hessian = flat_hessian(model, lambda f, x=x: f(x).sum())
        c = model.second.coef.numel()
        observed = [
            grad[:c].norm(),
            grad[c:].norm(),
            torch.linalg.matrix_norm(hessian[:c, c:], 2),
            torch.linalg.matrix_norm(hessian[c:, c:], 2),
        ]
        bounds = [at.second, at.first, at.mixed, at.hidden]
        most = np.maximum(most, [float(o) / b for o, b in zip(observed, bounds, strict=True)])
        loose = [printed.second, printed.first, printed.mixed, printed.hidden, printed.hessian]
        assert all(b <= p for b, p in zip([*bounds, at.hessian], loose, strict=True))
        assert float(torch.linalg.matrix_norm(hessian, 2)) <= at.hessian
        assert not hessian[:c, :c].any()
        loss = loss_of(model, x, y)
        _, bowl = flat_hessian(model, lambda f, x=x, y=y: training_loss(f, x, y))
        eigenvalues = torch.linalg.eigvalsh(bowl)
        assert eigenvalues[-1] <= at.smoothness and eigenvalues[0] >= -at.weakness * loss
    assert (most <= 1).all()
    assert (most > [0.95, 0.3, 0.9, 0.3]).all()  # and the bounds are not far off


def test_curvature_of_the_specifications_draw():
    """Section 5.1 for one draw with ‖c(0)‖ = 16.18 and max ‖c_j(0)‖ = 4.69.

    Its figures for the paper's chain join mixed and hidden parts as the tight chain does; its table, and
    the paper, add twice the mixed part: κ = 118 and 464 instead of 114.9 and 461.
    """
    drawn = SecondLayer(16.18, 4.69, 17.5)
    tight = kan_gd.curvature(PAPERS, drawn)
    assert (tight.smoothness, tight.weakness) == pytest.approx((11.19, 5.87), abs=6e-3)
    for layer, rho, kappa in [
        (SecondLayer.a_priori(32, DELTA), 3531, 461),
        (drawn, 277.5, 114.9),
    ]:
        at = kan_gd.curvature(PAPERS, layer, chain="printed")
        joined = (at.hidden + math.hypot(at.hidden, 2 * at.mixed)) / 2
        assert joined == pytest.approx(kappa, rel=1e-3)
        assert 0.25 * at.gradient**2 + joined == pytest.approx(rho, rel=1e-3)
        assert at.weakness == pytest.approx(at.hidden + 2 * at.mixed)
    wide = Problem(20_000, 10, 1024, 100)
    assert kan_gd.curvature(
        wide, SecondLayer.a_priori(1024, DELTA), chain="printed"
    ).smoothness == pytest.approx(2706, rel=1e-3)


def test_acceptance_kan_dpgd_17_descent_with_the_bounds_step_never_rises():
    """Also: no unit drifts further than Lemma B.3 allows, with tight and with printed constants."""
    model, (x, y) = network(3, 8, 5), sample(40, 3, 6)
    start, constants = second_layer(model)
    problem = Problem(40, 3, 8, 60, constants)
    first, second = model.first.coef.detach().clone(), model.second.coef.detach().clone()
    losses, smallest = [loss_of(model, x, y)], math.inf
    for _ in range(60):
        # A step of η <= 1 moves c by at most H, which bounds c over the whole step.
        here, _ = second_layer(model)
        rho = kan_gd.curvature(problem, here, distance=constants.vector[0]).smoothness
        eta = min(1.0, 1 / rho)
        ga, gc = gradients(model, x, y)
        with torch.no_grad():
            model.first.coef.sub_(eta * ga)
            model.second.coef.sub_(eta * gc)
        losses.append(loss_of(model, x, y))
        smallest = min(smallest, eta)
        units = [
            float((now - before).detach().reshape(8, -1).norm(dim=1).max())
            for now, before in ((model.first.coef, first), (model.second.coef, second))
        ]
        # Steps differ by a little; the largest bounds them all.
        for chain in ("tight", "printed"):
            limits = kan_gd.drift_bounds(problem, start, 1 / 3, sum(losses[:-1]), chain)
            assert eta <= 1 / 3 and all(u <= b for u, b in zip(units, limits, strict=True))
    assert all(after < before for before, after in pairwise(losses))


@pytest.mark.slow
def test_acceptance_kan_dpgd_17_only_the_product_of_step_size_and_steps_matters():
    """η = 8 for 128 steps against η = 1 for 1024 on 500 of the specification's 20,000 examples."""
    rng = np.random.default_rng(0)
    knots, theta = np.linspace(-1, 1, 40), rng.normal(size=(10, 40))
    x = rng.uniform(-1, 1, size=(8_500, 10))
    hats = np.maximum(0, 1 - np.abs(x[..., None] - knots) * 39 / 2)
    logits = 4 * np.einsum("ndk,dk->n", hats, theta) + rng.normal(size=8_500) * math.sqrt(0.1)
    labels = np.where(rng.uniform(size=8_500) < 1 / (1 + np.exp(-logits)), 1.0, -1.0)
    inputs, y = torch.from_numpy(x).float(), torch.from_numpy(labels).float()
    right = []
    for eta, steps in ((8.0, 128), (1.0, 1024)):
        model = network(10, 32, 0).float()
        for _ in range(steps):
            ga, gc = gradients(model, inputs[:500], y[:500])
            with torch.no_grad():
                model.first.coef.sub_(eta * ga)
                model.second.coef.sub_(eta * gc)
        with torch.no_grad():
            right.append(float((model(inputs[500:]) * y[500:] > 0).float().mean()))
    assert right[0] == pytest.approx(right[1], abs=0.005)


def test_acceptance_kan_dpgd_18_projection_inequality():
    """Lemma D.9, a thousand times, on products of two balls."""
    rng = np.random.default_rng(0)
    for _ in range(1000):
        d, eta = rng.integers(1, 8), rng.exponential()
        radii = rng.exponential(size=2)

        def onto(v, radii=radii):
            return np.stack(
                [b * min(1, r / np.linalg.norm(b)) for b, r in zip(v, radii, strict=True)]
            )

        here, other = (onto(rng.normal(size=(2, d)) * 2) for _ in range(2))
        g = rng.normal(size=(2, d)) * rng.exponential()
        after = onto(here - eta * g)
        gained = ((here - other) ** 2).sum() - ((after - other) ** 2).sum()
        assert (g * (here - other)).sum() <= gained / (2 * eta) + eta / 2 * (g**2).sum() + 1e-9


def test_acceptance_kan_dpgd_18_quasi_convexity():
    """Lemma A.4 with κ from `curvature`, on a thousand segments between networks of four units."""
    (x, y), splines, rng = sample(5, 2, 1), UniformSplines(), np.random.default_rng(2)
    features = spline_basis(x, splines).flatten(-2) / math.sqrt(2)
    start, step = rng.normal(size=(2, 1000, 4, 3, 8))  # two inputs' coefficients, then those of c
    norms = np.linalg.norm(start[:, :, 2], axis=2)
    layers = [SecondLayer(float(np.linalg.norm(c)), float(c.max()), 0.0) for c in norms]
    problem = Problem(5, 2, 4, 1)
    kappa = np.array([kan_gd.curvature(problem, c, distance=1.0).weakness for c in layers])
    D = np.minimum(1.0, 0.99 * np.sqrt(2 / kappa))
    step *= (D / np.sqrt((step**2).sum((1, 2, 3))))[:, None, None, None]
    places = np.linspace(0, 1, 7)[:, None, None, None, None]
    nets = torch.from_numpy(start + places * step)
    u = torch.tanh(torch.einsum("tsjk,nk->tsnj", nets[..., :2, :].flatten(-2), features))
    f = torch.einsum("tsnjk,tsjk->tsn", spline_basis(u, splines), nets[..., 2, :]) / 2
    losses = softplus(-y * f).mean(-1).numpy()
    ends = np.maximum(losses[0], losses[-1])
    assert (losses.max(0) <= ends / (1 - D**2 * kappa / 2)).all()
    assert (losses.max(0) > ends).any()  # the loss is not convex on some of them
    for D in np.linspace(0.01, 1.4, 50):  # cos'' = -cos: the largest κ there is, 1
        assert math.cos(D / 2) >= 1 - D**2 / 2


# --- Sensitivities and the second layer


@given(st.integers(0, 10_000), st.integers(1, 5), st.sampled_from(["tanh", "sigmoid"]))
def test_unit_slopes_are_those_of_a_fine_grid(seed, m, activation):
    splines = UniformSplines(low=-1.0 if activation == "tanh" else 0.0)
    c = np.random.default_rng(seed).normal(size=(m, 8))
    u = torch.linspace(splines.low, 1, 20_001).double()
    slope = (1 - u**2 if activation == "tanh" else u - u**2).numpy()
    by_grid = np.abs(slope * (c @ spline_basis(u, splines, 1).numpy().T)).max(1)
    constants = kan_gd.kan_constants(splines, activation)
    found = SecondLayer.measured(c, constants)
    oracle = float(np.linalg.norm(by_grid))
    assert oracle <= found.slope_norm <= oracle * (1 + 1e-6)
    assert found.slope_norm <= constants.slope * found.norm
    assert found.norm == pytest.approx(np.linalg.norm(c))
    problem = Problem(100, 3, m, 5, constants)
    chain = [
        kan_gd.sensitivities(problem, found, 0.7, b) for b in ("slopes", "vectors", "coordinates")
    ]
    assert all(a[0] <= b[0] * (1 + 1e-9) and a[1] <= b[1] for a, b in pairwise(chain))


def test_unit_slopes_of_flat_and_nearly_flat_units():
    """Where the polynomial's derivative loses its leading coefficient, wholly or almost."""
    c = np.stack([np.zeros(8), np.ones(8), np.arange(8.0), np.arange(8.0) + 1e-11 * np.eye(8)[3]])
    u = torch.linspace(-1, 1, 200_001).double()
    by_grid = np.abs((1 - u.numpy() ** 2) * (c @ spline_basis(u, UniformSplines(), 1).numpy().T))
    for row, oracle in zip(c, by_grid.max(1), strict=True):
        found = SecondLayer.measured(row[None]).slope_norm
        assert oracle - 1e-12 <= found <= oracle * (1 + 1e-8) + 1e-12


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_acceptance_kan_dpgd_6_gradients_are_within_the_sensitivities(activation):
    """Every example's gradient, and every replacement of one record, in the ball and adaptively."""
    for seed in range(20):
        model, (x, y) = network(3, 5, seed, activation), sample(30, 3, seed)
        start, constants = second_layer(model)
        problem, radius = Problem(30, 3, 5, 1, constants), 0.5 + seed % 3
        with torch.no_grad():  # to the sphere, away from c(0) or towards steeper splines
            away = torch.randn_like(model.second.coef) if seed % 2 else model.second.coef.clone()
            model.second.coef.add_(radius * away / away.norm())
            model.first.coef.mul_(0.2 if seed % 2 else 1.0)
        steep = torch.sigmoid(-y * model(x)).detach()
        norms = [steep * norm for norm in kan_gd.gradient_norms(model, x)]
        forms = [(start, radius, bound) for bound in ("coordinates", "vectors", "slopes")]
        forms.append((second_layer(model)[0], 0.0, "slopes"))
        before = gradients(model, x, y)
        x2, y2 = x.clone(), y.clone()
        x2[0], y2[0] = -x[1], -y[0]
        after = gradients(model, x2, y2)
        for form in forms:
            limits = kan_gd.sensitivities(problem, *form)
            for i in range(2):
                assert float(norms[i].max()) <= 30 * limits[i] / 2
                assert float((after[i] - before[i]).norm()) <= limits[i]


def test_acceptance_kan_dpgd_16_one_record_moves_the_first_step_by_the_sensitivity():
    model, (x, y) = network(3, 5, 3), sample(20, 3, 4)
    layer, constants = second_layer(model)
    problem, eta, radius = Problem(20, 3, 5, 1, constants), 0.7, 0.4
    noise = kan_gd.tight_calibration(problem, 2.0, DELTA, layer, radius)
    layers = [model.first.coef.detach(), model.second.coef.detach()]
    x2, y2 = x.clone(), y.clone()
    x2[7], y2[7] = 0.9, -y[7]
    firsts = []
    for data in ((x, y), (x2, y2)):
        rng = torch.Generator().manual_seed(0)
        steps = []
        for p, g, b in zip(layers, gradients(model, *data), noise.blocks, strict=True):
            z = torch.randn(g.shape, generator=rng, dtype=g.dtype)
            steps.append(projected(p - eta * (g + b.noise * z), p, radius))
        firsts.append(steps)
    moved = math.hypot(*(float((a - b).norm()) for a, b in zip(*firsts, strict=True)))
    assert 0 < moved <= eta * math.hypot(*(b.sensitivity for b in noise.blocks))


@pytest.fixture(scope="module")
def draws():
    """200 second layers of width 32."""
    rng = np.random.default_rng(0)
    return [SecondLayer.measured(rng.normal(size=(32, 8))) for _ in range(200)]


def test_acceptance_kan_dpgd_13_measured_second_layers(draws):
    """Deviations of the two means: 0.05 and 0.09. Fixed draws; new ones would fail one time in twenty."""
    assert np.mean([c.norm for c in draws]) == pytest.approx(16.0, abs=0.1)
    assert np.mean([c.slope_norm for c in draws]) == pytest.approx(17.4, abs=0.2)
    bound = SecondLayer.a_priori(32, DELTA)
    assert bound.norm == pytest.approx(70.5105, abs=5e-5)
    assert all(c.norm <= bound.norm and c.largest <= bound.largest for c in draws)
    assert bound.reserve == DELTA / 2


def test_acceptance_kan_dpgd_table_4_5_what_measuring_buys(draws):
    """Means over c(0), to four deviations of a mean of 200: a false alarm in 16,000 new draws."""
    bound = SecondLayer.a_priori(32, DELTA)
    first, second = kan_gd.sensitivities(PAPERS, bound, 1.0, "coordinates")
    assert PAPERS.n * first == pytest.approx(224.736, abs=5e-4)
    assert PAPERS.n * second == pytest.approx(3.771236, abs=5e-7)
    expected = [
        ("coordinates", 1, 53.45),
        ("vectors", 1, 9.581),
        ("slopes", 1, 4.919),
        ("slopes", 0, 4.355),
    ]
    for form, radius, value in expected:
        found = [kan_gd.sensitivities(PAPERS, c, radius, form) for c in draws]
        firsts = PAPERS.n * np.array([f for f, _ in found])
        # The specification's own mean has as large an error as ours.
        assert firsts.mean() == pytest.approx(value, abs=4 * firsts.std() * math.sqrt(2 / 200))
    assert PAPERS.n * found[0][1] == pytest.approx(1.414214, abs=5e-7)


# --- Calibrations


@pytest.mark.parametrize(
    ("epsilon", "delta", "mu"),
    [
        (2, 5e-5, 0.5509000827),
        (2, 2.5e-5, 0.5280898099),
        (2, 1 / 12665, 0.5674724260),
        (1, 1e-5, 0.2680511232),
    ],
)
def test_acceptance_kan_dpgd_9_mu(epsilon, delta, mu):
    assert gaussian_mu(epsilon, delta) == pytest.approx(mu, abs=1e-9)


def test_acceptance_kan_dpgd_9_mu_inverts():
    for epsilon in np.geomspace(0.1, 10, 9):
        for delta in np.geomspace(1e-12, 1e-2, 11):
            mu = gaussian_mu(float(epsilon), float(delta))
            assert float(gaussian_delta(mu, epsilon)) == pytest.approx(delta, rel=1e-8)


@pytest.mark.parametrize(
    ("epsilon", "delta", "steps", "holds"),
    [(2, 5e-5, 1, False), (2, 1e-10, 100, False), (2, 5e-5, 100, True)],
)
def test_acceptance_kan_dpgd_10_printed_noise_whatever_the_size(epsilon, delta, steps, holds):
    mu = epsilon / math.sqrt(epsilon + math.log(2 * steps / delta))
    for n, d, m, splines in [(20_000, 10, 32, 5), (50, 784, 3, 5), (1000, 2, 400, 17)]:
        constants = kan_gd.kan_constants(UniformSplines(splines))
        problem = Problem(n, d, m, steps, constants)
        with pytest.warns(PrintedTheoremWarning, match=r"at least 2/δ"):
            found = kan_gd.theorem_4_14_calibration(
                problem, epsilon, delta, 3.0, constant="corrected"
            )
        assert found.mu == pytest.approx(mu, rel=1e-10)
        assert found.is_confirmed == holds and found.failed
        assert found.true_delta == pytest.approx(float(gaussian_delta(mu, epsilon)) + delta / 2)


@pytest.mark.parametrize(
    ("radius", "delta", "steps", "true", "at_another_delta"),
    [
        (1, 5e-5, 1, 1.08e-7, 1.08e-7),
        (1000, 1e-10, 100, 1.22e-9, 1.28e-9),
        (10_000, 1e-10, 100, 2.77e-9, 2.78e-9),
    ],
)
def test_acceptance_kan_dpgd_section_4_3_slack(radius, delta, steps, true, at_another_delta):
    """A large bound on c(0) hides the wrong logarithm, unless the ball is larger still.

    The specification's figures for δ = 1e-10 take the bound on c(0) at 5e-5, 70.51 instead of 73.74.
    """
    found = quiet(
        kan_gd.theorem_4_14_calibration,
        Problem(20_000, 10, 32, steps),
        2.0,
        delta,
        radius,
        constant="corrected",
        layer=MEASURED,
    )
    assert found.true_delta == pytest.approx(true, rel=5e-3)
    assert found.is_confirmed == (radius == 1)
    half = 2.0**2 / (2 + math.log(2 * steps / delta)) / 2
    share = (16 + radius) / (SecondLayer.a_priori(32, 5e-5).norm + radius)
    mu = math.sqrt(half * (1 + share**2))
    assert float(gaussian_delta(mu, 2.0)) == pytest.approx(at_another_delta, rel=5e-3)


@pytest.mark.parametrize(
    ("radius", "bound", "epsilon"),
    [
        (100, "coordinates", "2.11"),
        (1000, "coordinates", "13.77"),
        (10_000, "coordinates", "133"),
        (1000, "vectors", "1.80"),
        (2000, "vectors", "3.12"),
        (10_000, "vectors", "11.14"),
        (1, "coordinates", "1.20"),
        (1, "vectors", "0.393"),
    ],
)
def test_acceptance_kan_dpgd_section_4_3_main_text(radius, bound, epsilon):
    found = quiet(
        kan_gd.theorem_4_14_calibration, PAPERS, 2.0, DELTA, radius, layer=MEASURED, bound=bound
    )
    digits = len(epsilon.partition(".")[2])
    assert f"{found.epsilon:.{digits}f}" == epsilon
    assert found.is_confirmed == (float(epsilon) <= 2)
    if (radius, bound) == (1000, "coordinates"):
        first = found.blocks[0]
        assert 10 * first.sensitivity / first.noise == pytest.approx(2.7154, abs=5e-5)
    if (radius, bound) == (1, "vectors"):
        assert found.mu == pytest.approx(0.12871, abs=5e-6)


def test_acceptance_kan_dpgd_14_noise_energies():
    """Table 4.6. Its tight rows are for the mean sensitivity 4.919/n of the first layer."""
    mean = SecondLayer(16.0, 4.7, 4.919 / 0.25 - kan_gd.kan_constants().slope)
    rows = [
        (
            quiet(kan_gd.theorem_4_14_calibration, PAPERS, 2.0, DELTA, 1.0),
            (0.326320, 0.00553001),
            272.61,
        ),
        (kan_gd.corrected_calibration(PAPERS, 2.0, DELTA, 1.0), (0.382656, 0.00642125), 374.86),
        (kan_gd.tight_calibration(PAPERS, 2.0, DELTA, mean, 1.0), (0.00631, 0.00182), 0.10288),
        (
            kan_gd.tight_calibration(PAPERS, 2.0, DELTA, mean, 1.0, split="optimal"),
            (0.00466, 0.00445),
            0.06072,
        ),
        (kan_gd.clipped_calibration(PAPERS, 2.0, DELTA, 1.0), (0.0018152,), 0.0092787),
        (kan_gd.clipped_calibration(PAPERS, 2.0, DELTA, 0.5), (0.00090761,), 0.0023197),
    ]
    for found, noise, energy in rows:
        # The mean is given to four digits, which leaves 2e-4 of its square.
        rtol = 2e-4 if found.name.startswith("tight") else 3e-5
        assert found.energy == pytest.approx(energy, rel=rtol), found.name
        assert [b.noise for b in found.blocks] == pytest.approx(noise, rel=3e-3)
    for found, _, _ in rows[2:]:
        assert found.mu == pytest.approx(0.5509000827, abs=1e-9)
        assert found.epsilon == pytest.approx(2.0, abs=1e-9) and found.is_confirmed
    assert rows[1][0].epsilon == pytest.approx(1.526691, abs=5e-7)
    assert rows[0][0].energy / rows[5][0].energy > 1e5


def test_the_optimal_split_is_the_best_of_many():
    best = kan_gd.tight_calibration(PAPERS, 2.0, DELTA, MEASURED, 1.0, split="optimal")
    total = best.mu**2 / PAPERS.steps
    for share in np.linspace(0.01, 0.99, 99):
        ratios = (math.sqrt(share * total), math.sqrt((1 - share) * total))
        noise = [b.sensitivity / r for b, r in zip(best.blocks, ratios, strict=True)]
        energy = sum(b.size * s**2 for b, s in zip(best.blocks, noise, strict=True))
        assert energy >= best.energy * (1 - 1e-12)


def test_a_bound_on_the_start_costs_half_of_delta():
    start = SecondLayer.a_priori(32, DELTA)
    found = kan_gd.tight_calibration(PAPERS, 2.0, DELTA, start, 1.0)
    assert found.mu == pytest.approx(0.5280898099, abs=1e-9)
    assert found.epsilon == pytest.approx(2.0, abs=1e-9)
    assert found.true_delta == pytest.approx(DELTA, rel=1e-9)


def test_adaptive_noise_costs_the_same_whatever_happened_before():
    """A simulated run: each step's noise depends on released c(k), each step's μ does not."""
    rng = np.random.default_rng(1)
    c, noises, parts = rng.normal(size=(32, 8)), [], []
    for k in range(PAPERS.steps):
        split = "optimal" if k % 2 else "equal"
        layer = SecondLayer.measured(c)
        found = kan_gd.tight_calibration(PAPERS, 2.0, DELTA, layer, split=split)
        noises.append(found.blocks[0].noise)
        parts += [(b.sensitivity / b.noise) ** 2 for b in found.blocks]
        c += 0.3 * rng.normal(size=c.shape)
    assert max(noises) > 1.5 * min(noises)
    assert gaussian_epsilon(math.sqrt(sum(parts)), DELTA) == pytest.approx(2.0, abs=1e-9)


def test_clipping_is_cheaper_by_half_without_replacement():
    one, other = (
        kan_gd.clipped_calibration(PAPERS, 2.0, DELTA, 0.5, relation).blocks[0].noise
        for relation in ("replace-one", "add-remove")
    )
    assert one == pytest.approx(2 * other)


@given(
    st.floats(0.1, 8),
    st.floats(1e-10, 1e-2),
    st.integers(1, 5000),
    st.floats(1e-3, 1e5),
    st.integers(1, 300),
)
def test_the_corrected_calibration_is_always_true(epsilon, delta, steps, radius, m):
    found = kan_gd.corrected_calibration(Problem(1000, 4, m, steps), epsilon, delta, radius)
    assert found.is_confirmed and not found.failed


# --- Bounds


def test_theorem_4_3_holds_on_runs_that_meet_its_conditions():
    """Short runs of a wide network, against a point a little downhill."""
    model, (x, y) = network(2, 64, 7), sample(30, 2, 8)
    layer, constants = second_layer(model)
    steps, eta, distance = 5, 5e-4, 0.12
    problem = Problem(30, 2, 64, steps, constants)
    start = [p.detach().clone() for p in (model.first.coef, model.second.coef)]
    initial = loss_of(model, x, y)
    grads = gradients(model, x, y)
    length = math.hypot(*(float(g.norm()) for g in grads))
    with torch.no_grad():
        for p, g in zip((model.first.coef, model.second.coef), grads, strict=True):
            p.sub_(distance * g / length)
        reference = loss_of(model, x, y)
        for p, s in zip((model.first.coef, model.second.coef), start, strict=True):
            p.copy_(s)
    bound = kan_gd.theorem_4_3(
        problem,
        layer,
        distance=distance,
        step_size=eta,
        initial_loss=initial,
        reference_loss=reference,
    )
    assert bound.is_guarantee, bound.verdict
    losses = []
    for _ in range(steps):
        ga, gc = gradients(model, x, y)
        with torch.no_grad():
            model.first.coef.sub_(eta * ga)
            model.second.coef.sub_(eta * gc)
        losses.append(loss_of(model, x, y))
    assert losses[-1] <= np.mean(losses) <= bound.value
    assert bound.is_vacuous and bound.verdict == "proved, but vacuous"


@pytest.mark.parametrize(("theorem", "times", "total"), [("4_3", 1, 1.25), ("4_10", 2, 1.0)])
def test_the_step_is_limited_by_the_curvature_along_the_path(theorem, times, total):
    """η times the losses from the start on is at most (1.4 + 1.2)/4 + 0.6 of Λ², or (1.4 + 1.2)/8 + 0.6."""
    assert (1.4 + 1.2) / (4 * times) + 0.6 <= total * (1 + 1e-12)
    run = {"distance": 0.5, "step_size": 0.01, "initial_loss": 0.7, "reference_loss": 0.01}
    if theorem == "4_10":
        run["total_loss"] = 50.0
    bound = getattr(kan_gd, f"theorem_{theorem}")(PAPERS, MEASURED, **run)
    drift = total * 0.25 * math.sqrt(0.5 / 32)
    path = kan_gd.curvature(PAPERS, MEASURED, distance=drift * math.sqrt(32), drift=drift)
    assert bound.conditions[-1].limit == pytest.approx(1 / (times * path.smoothness), rel=1e-9)


def test_acceptance_kan_dpgd_19_theorem_d10_holds_on_runs_that_meet_its_conditions():
    """Projected runs without noise against their last iterate, and with noise on average."""
    for seed, share in [(0, 0.0), (1, 0.0), (2, 0.0), (3, 1.0)]:
        model, (x, y) = network(2, 32, seed), sample(25, 2, seed)
        layer, constants = second_layer(model)
        problem, radii, eta = Problem(25, 2, 32, 40, constants), (0.06, 0.06), 0.02
        layers = [model.first.coef, model.second.coef]
        start = [p.detach().clone() for p in layers]
        initial = loss_of(model, x, y)
        sigma, rng, losses = share * 0.05, torch.Generator().manual_seed(seed), []
        for _ in range(40):
            grads = gradients(model, x, y)
            with torch.no_grad():
                for p, g, s, radius in zip(layers, grads, start, radii, strict=True):
                    noise = sigma * torch.randn(g.shape, generator=rng, dtype=g.dtype)
                    p.copy_(projected(p - eta * (g + noise), s, radius))
                    assert float((p - s).norm()) <= radius * (1 + 1e-12)
            losses.append(loss_of(model, x, y))
        moved = math.hypot(
            *(float((p - s).detach().norm()) for p, s in zip(layers, start, strict=True))
        )
        bound = kan_gd.theorem_d10(
            problem,
            layer,
            radii=radii,
            distance=moved,
            step_size=eta,
            initial_loss=initial,
            reference_loss=losses[-1],
            energy=sum(problem.sizes) * sigma**2,
        )
        assert bound.is_guarantee, bound.verdict
        assert np.mean(losses) <= bound.value
        printed = kan_gd.theorem_d10(
            problem,
            layer,
            radii=radii,
            distance=moved,
            step_size=eta,
            initial_loss=initial,
            reference_loss=losses[-1],
            energy=sum(problem.sizes) * sigma**2,
            form="printed",
        )
        assert printed.value >= bound.value and not printed.is_guarantee


def test_acceptance_kan_dpgd_19_published_settings_meet_no_theorem():
    """η = 1, T = 100, m = 32, R = 1: step size, width window and separability all fail."""
    rho = kan_gd.curvature(PAPERS, MEASURED, distance=1.0).smoothness
    private = kan_gd.theorem_d10(
        PAPERS,
        MEASURED,
        radii=(1.0, 1.0),
        distance=1.0,
        step_size=1.0,
        initial_loss=0.7,
        reference_loss=0.6,
        energy=quiet(kan_gd.theorem_4_14_calibration, PAPERS, 2.0, DELTA, 1.0).energy,
    )
    assert {c.name for c in private.failed} == {"κ (Λ + R₁ + R₂)² <= 1/2", "step size <= 1/(3ρ)"}
    assert private.is_vacuous and private.value > 800
    window = kan_gd.theorem_4_15(
        PAPERS,
        2.0,
        DELTA,
        radii=(1.0, 1.0),
        distance=1.0,
        step_size=1.0,
        largest_step=1 / (3 * rho),
    )
    assert {c.name for c in window.failed} == {
        "lower limit on the width",
        "upper limit on the width",
        "step size",
    }
    separable = kan_gd.theorem_4_16(
        PAPERS, 2.0, DELTA, margin=None, step_size=1.0, largest_step=1 / (3 * rho)
    )
    assert [c.holds for c in separable.conditions] == [False] * 4
    assert separable.value == math.inf
    for rate in (window, separable):
        assert not rate.is_guarantee and "no guarantee" in rate.verdict and rate.unproved


def test_acceptance_kan_dpgd_u9_the_width_window_is_empty():
    run = {"step_size": 1.0, "largest_step": 1.0}
    window = kan_gd.theorem_4_15(PAPERS, 2.0, DELTA, radii=(1.0, 1.0), distance=1.0, **run)
    _, upper, *_ = window.conditions
    assert f"{upper.limit:.1e}" == "6.5e-05" and f"{upper.limit * 8**10:.1e}" == "7.0e+04"
    _, horizon, width, _ = kan_gd.theorem_4_16(PAPERS, 2.0, DELTA, margin=1.0, **run).conditions
    assert f"{width.limit:.1e}" == "6.0e+07" and f"{horizon.limit:.2f}" == "7.24"
    training = {"distance": 5.0, "step_size": 1e-4, "initial_loss": 0.7, "reference_loss": 0.01}
    needed = {}
    for chain, layer in [("printed", SecondLayer.a_priori(32, DELTA)), ("tight", MEASURED)]:
        bound = kan_gd.theorem_4_3(PAPERS, layer, **training, chain=chain)
        (failed,) = bound.failed
        needed[chain] = failed.limit
        assert failed.factor == pytest.approx(failed.limit / 32)
    assert f"{needed['printed']:.1e}" == "8.9e+11"
    # 8.3e8 for the specification's draw; max ‖c_j(0)‖ is between 4 and 5.5 for most.
    assert needed["tight"] == pytest.approx(8.3e8, rel=0.1)


def test_theorem_4_7_as_printed_allows_no_step_and_the_corrected_one_does():
    """The loss starts below 1, so that the start itself has a loss of at most 1: g(1) = 0."""
    model, (x, y) = network(10, 32, 0), sample(200, 10, 0)
    initial = loss_of(model, x, y)
    assert initial < 1
    assert kan_gd.printed_step_limit_4_7(0.0, initial) == 0.0
    run = {"distance": 0.1, "step_size": 1e-4, "initial_loss": initial}
    bound = kan_gd.theorem_4_7(Problem(200, 10, 32, 10), MEASURED, **run)
    assert bound.is_guarantee
    assert bound.value == pytest.approx((2e-4 + 0.01) / 1e-3)
    second = kan_gd.theorem_4_7(
        Problem(200, 10, 32, 10), MEASURED, distance=0.1, step_size=0.01, initial_loss=initial
    )
    assert [c.name for c in second.failed] == ["Λ² >= 4 η max(T L_S(Θ*), L_S(Θ(0)))"]
    assert second.failed[0].factor == pytest.approx(4 * 0.01 * max(1, initial) / 0.01)


def test_theorem_4_9_moves_along_a_separating_direction_to_a_loss_of_one_over_T():
    """Its first half, on a network so wide that the tangent is straight enough: m = 180,000."""
    m, steps = 180_000, 2
    model = network(1, m, 3)
    x, y = torch.tensor([[-0.8], [0.7]]).double(), torch.ones(2).double()
    layers = [model.first.coef, model.second.coef]
    features = torch.stack(
        [
            torch.cat(
                [g.flatten() for g in torch.autograd.grad(y[i] * model(x[i : i + 1]).sum(), layers)]
            )
            for i in range(2)
        ]
    )
    gram = features @ features.T
    weights = torch.linalg.solve(gram, torch.ones(2).double())
    assert (weights > 0).all()  # so that both points are on the margin
    direction = weights @ features
    gamma = 1 / float(direction.norm())
    norms = model.second.coef.detach().reshape(m, -1).norm(dim=1)
    layer = SecondLayer(
        float(norms.norm()), float(norms.max()), slope_norm=0.0
    )  # which is not used
    problem = Problem(2, 1, m, steps)
    output = float(model(x).detach().abs().max())
    bound = kan_gd.theorem_4_9(
        problem,
        layer,
        margin=gamma,
        step_size=0.05,
        initial_loss=loss_of(model, x, y),
        failure=0.01,
        largest_output=output,
    )
    flat = bound.conditions[0]
    assert flat.holds
    tau = max(4 * math.log(steps), 2 * output) / gamma
    shift = tau * gamma * direction
    with torch.no_grad():
        model.first.coef.add_(shift[: model.first.coef.numel()].reshape(model.first.coef.shape))
        model.second.coef.add_(shift[model.first.coef.numel() :].reshape(model.second.coef.shape))
    assert loss_of(model, x, y) <= 1 / steps
    assert not kan_gd.theorem_4_9(
        problem,
        layer,
        margin=gamma,
        step_size=0.05,
        initial_loss=0.7,
        failure=0.01,
        chain="printed",
    ).is_guarantee


def test_generalisation_bounds_add_up_and_say_what_they_cannot_know():
    run = {"distance": 5.0, "step_size": 0.05}
    gap = kan_gd.theorem_4_10(
        PAPERS, MEASURED, **run, initial_loss=1.4, reference_loss=0.02, total_loss=510.7
    )
    # C = 2 · 5 · 0.01 + 25 = 25.1, so that the losses add up to 25.1/0.05 + 0.7 = 502.7.
    risk = kan_gd.theorem_4_11(PAPERS, MEASURED, **run, initial_loss=0.7, reference_loss=0.01)
    assert risk.value == pytest.approx(25.1 / 5 + gap.value * 502.7 / 510.7)
    assert risk.conditions == gap.conditions
    assert risk.is_vacuous and not risk.is_guarantee
    assert any("distribution" in words for words in risk.unproved)
    (width,) = (c for c in gap.conditions if "1296" in c.name)
    (narrow,) = (
        c
        for c in kan_gd.theorem_4_3(
            PAPERS, MEASURED, **run, initial_loss=0.7, reference_loss=0.01
        ).conditions
        if "64" in c.name
    )
    assert width.limit == pytest.approx(narrow.limit * 1296 / 64)
    rate = kan_gd.theorem_4_12(PAPERS, margin=0.0134, failure=0.01, step_size=1.0)
    assert rate.is_vacuous and not rate.is_guarantee and len(rate.failed) == 2


def test_conditions_say_by_which_factor_they_fail():
    most, least = kan_gd.Condition.at_most, kan_gd.Condition.at_least
    assert (most("x", 3.0, 2.0).holds, most("x", 3.0, 2.0).factor) == (False, 1.5)
    assert (least("x", 3.0, 2.0).holds, least("x", 3.0, 2.0).factor) == (True, 2 / 3)
    assert most("x", 1.0, 0.0).factor == math.inf and most("x", 0.0, 0.0).holds
    assert least("x", 0.0, 1.0).factor == math.inf and not least("x", 1.0, math.inf).holds


# --- Advice


def test_acceptance_kan_dpgd_section_5_4_horizons():
    clipped = kan_gd.clipped_calibration(PAPERS, 2.0, DELTA, 0.5)
    horizon = kan_gd.best_horizon(clipped.energy / 100, 12.0)
    assert horizon.length == pytest.approx(1760, rel=2e-3)
    v = clipped.energy / 100
    lengths = np.geomspace(10, 1e5, 2001)
    values = 1.5 * 144 / lengths + 3 * v * lengths
    assert horizon.value <= values.min() <= horizon.value * (1 + 1e-4)
    printed = quiet(kan_gd.theorem_4_14_calibration, PAPERS, 2.0, DELTA, 1.0).blocks[1]
    assert kan_gd.best_horizon(printed.size * printed.noise**2 / 100, 1.0).length == pytest.approx(
        80, rel=2e-3
    )


def test_advice_states_numbers_reasons_and_what_does_not_hold():
    advice = kan_gd.advise(20_000, 10, 2.0, DELTA)
    assert advice.warnings == ("δ = 5e-05 is at least 1/n: too large by convention.",)
    assert kan_gd.advise(20_000, 10, 2.0).warnings == ()
    assert set(advice.reasons) == {"width", "steps", "step_size", "clip_norm", "noise"}
    assert all(r.endswith(".") and r.count(". ") == 0 for r in advice.reasons.values())
    assert advice.noise.steps == advice.steps
    assert advice.noise.epsilon == pytest.approx(2.0, abs=1e-9)
    assert advice.steps * advice.step_size == pytest.approx(advice.horizon.length, rel=0.01)
    failed = {c.name: c.factor for c in advice.conditions if not c.holds}
    assert set(failed) == {"κ (Λ + R₁ + R₂)² <= 1/2", "step size <= 1", "step size <= 1/(3ρ)"}
    assert max(failed.values()) > 1e5
    wider, smaller = (
        kan_gd.advise(20_000, 10, 2.0, DELTA, width=64),
        kan_gd.advise(5_000, 10, 2.0, DELTA),
    )
    assert advice.steps == pytest.approx(2 * wider.steps, rel=0.01)
    assert advice.steps == pytest.approx(4 * smaller.steps, rel=0.02)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: kan_gd.kan_constants(activation="relu"), "activation must be one of"),
        (lambda: kan_gd.kan_constants(UniformSplines(5, 2)), "degree of at least 3; got 2"),
        (lambda: kan_gd.kan_constants(UniformSplines(low=0.0)), r"cover the range \[-1, 1\]"),
        (lambda: SecondLayer.measured(np.ones((3, 5))), r"shape \(m, 8\); got \(3, 5\)"),
        (lambda: kan_gd.sensitivities(PAPERS, MEASURED, math.inf), "radius must be finite"),
        (lambda: Problem(0, 1, 1, 1), "n must be a whole number"),
        (lambda: kan_gd.clipped_calibration(PAPERS, 2.0, DELTA, 0.0), "clip_norm must be positive"),
        (lambda: kan_gd.best_horizon(0.0, 1.0), "energy_rate must be positive"),
        (lambda: kan_gd.advise(100, 3, -1.0), "ε must be positive"),
    ],
)
def test_bad_values_are_refused_in_words(call, words):
    with pytest.raises(PlanError, match=words):
        call()
