"""Closed-form gradients of the two-layer CNN against autograd, one example at a time."""

import math

import pytest
import torch
from torch.nn.functional import softplus

import antiphon as ap
from antiphon.errors import PlanError
from antiphon_papers.cnn import TwoLayerCNN
from antiphon_papers.cnn.patch_form import PatchForm


def network(d=5, m=4, seed=0, scale=0.5, **options):
    torch.manual_seed(seed)
    return TwoLayerCNN(d, m, scale=scale, knee=0.5, **options).double()


def sample(n=12, patches=2, d=5, seed=1):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(n, patches, d, generator=rng, dtype=torch.float64)
    return x, torch.where(torch.rand(n, generator=rng) < 0.5, -1.0, 1.0).double()


def single_gradients(model, x, y):
    """By autograd, one after the other."""
    found = []
    for record, label in zip(x, y, strict=True):
        loss = softplus(-label * model(record[None])[0])
        (gradient,) = torch.autograd.grad(loss, model.filters.weight)
        found.append(gradient)
    return torch.stack(found)


@pytest.mark.parametrize("patches", [1, 2, 3])
@pytest.mark.parametrize("q", [2.5, 3, 4])
def test_acceptance_cnn_6_ghost_norms_are_those_of_autograd(patches, q):
    model, (x, y) = network(q=q), sample(patches=patches)
    sums, each = PatchForm(model, x, y).sums(), single_gradients(model, x, y)
    torch.testing.assert_close(sums.norms, each.flatten(1).norm(dim=1), atol=1e-12, rtol=0)
    torch.testing.assert_close(sums.gradient, each.sum(dim=0), atol=1e-12, rtol=0)
    torch.testing.assert_close(sums.margins, y * model(x).detach(), atol=1e-12, rtol=0)
    torch.testing.assert_close(sums.losses, softplus(-sums.margins))


@pytest.mark.parametrize("clip_norm", [1e-3, 0.05, 10.0])
def test_sums_of_clipped_examples_are_those_of_autograd(clip_norm):
    model, (x, y) = network(), sample(patches=3)
    each = single_gradients(model, x, y)
    norms = each.flatten(1).norm(dim=1)
    expected = (each * (clip_norm / norms).clamp(max=1)[:, None, None]).sum(dim=0)
    found = PatchForm(model, x, y).sums(clip_norm)
    torch.testing.assert_close(found.gradient, expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(found.norms, norms, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("dtype", "tiny"), [(torch.float32, 0.1), (torch.float64, 1e-5)])
def test_no_example_is_longer_than_the_clip_norm_even_where_patches_cancel(dtype, tiny):
    """Patches v + u and v - u with a short v that all filters see, and a long u that none does."""
    model = network(d=200, m=4).to(dtype)
    with torch.no_grad():
        model.filters.weight.zero_()[:, 0] = 1 / tiny
    u = 300 * torch.randn(60, 200, generator=torch.Generator().manual_seed(0)).to(dtype)
    u[:, 0] = 0
    v = torch.zeros_like(u)
    v[:, 0] = tiny
    x, y = torch.stack([v + u, v - u], dim=1), torch.ones(60)
    clip_norm = 1e-2 * tiny
    for i in range(60):
        alone = PatchForm(model, x[i : i + 1], y[:1]).sums(clip_norm).gradient
        assert float(alone.double().norm()) <= clip_norm * (1 + 1e-6)


def test_acceptance_cnn_7_no_gradient_passes_its_cap_and_one_reaches_it():
    for seed in range(20):
        model, (x, y) = network(seed=seed, scale=3.0), sample(seed=seed)
        ratio = PatchForm(model, x, y).sums().norms / x.flatten(1).norm(dim=1) * math.sqrt(4) / 2
        assert ratio.max() <= 1
    model = network(m=4)
    with torch.no_grad():
        model.filters.weight.copy_(
            torch.ones(8, 5) * torch.where(model.signs > 0, 1.0, 30.0)[:, None]
        )
    x = torch.ones(1, 2, 5, dtype=torch.float64)
    sums = PatchForm(model, x, torch.ones(1)).sums()
    cap = 2 / math.sqrt(4) * float(x.norm())
    assert 0.999 < float(sums.norms[0]) / cap <= 1 + 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("d", "period"), [(2000, 256), (10_000, 256), (10_000, 10_000)])
def test_no_example_is_longer_where_every_addition_swallows_its_last_term(dtype, d, period):
    """Heads cancel between the patches; tails are too short to count beside them, one by one."""
    eps = torch.finfo(dtype).eps
    model = TwoLayerCNN(d, 4).to(dtype)
    seen, clip_norm = (1e-4, 1e-7) if dtype is torch.float32 else (1e-9, 1e-12)
    with torch.no_grad():
        model.filters.weight.zero_()[:, 0] = 1 / seen
    head = torch.arange(d) % period < 4
    x = torch.full((1, 2, d), math.sqrt(0.49 * eps), dtype=dtype)
    x[0, 0, head], x[0, 1, head] = math.sqrt(1.5), -math.sqrt(1.5)
    x[:, :, 0] = seen
    sums = PatchForm(model, x, -torch.ones(1)).sums(clip_norm)
    least = 0.9 if dtype is torch.float32 else 0.0  # its norms are in float64: little is lost
    assert least * clip_norm < sums.gradient.double().norm() <= clip_norm


def test_records_at_the_end_of_the_range_of_numbers_do_no_harm():
    """Their squares are finite in one order of additions and infinite in another."""
    torch.manual_seed(0)
    model, largest = TwoLayerCNN(200, 10), torch.finfo(torch.float32).max
    weight = model.filters.weight.detach().double()
    away = torch.linalg.lstsq(weight, -torch.ones(20, 1, dtype=torch.float64)).solution[:, 0]
    for k in range(200):
        other = torch.randn(200, dtype=torch.float64)
        long = away / away.norm() + other / other.norm()
        x = torch.zeros(1, 2, 200)
        x[0, 0] = (long / long.norm() * math.sqrt(largest) * (1 + (k % 40 - 20) * 3e-9)).float()
        gradient = PatchForm(model, x, torch.ones(1)).sums(1.0).gradient
        assert gradient.isfinite().all() and gradient.double().norm() <= 1 + 1e-6


def test_slopes_that_are_too_small_to_be_squared_are_clipped():
    for dtype, slope, length in ((torch.float32, 2e-23, 1.8e19), (torch.float64, 1e-165, 1e150)):
        model = TwoLayerCNN(3, 2, q=3, knee=1.0).to(dtype)
        with torch.no_grad():
            model.filters.weight.zero_()[:, 0] = math.sqrt(slope)
        x = torch.zeros(1, 1, 3, dtype=dtype)
        x[0, 0, 0], x[0, 0, 1] = 1.0, length
        clip_norm = slope * length / 100
        if clip_norm > math.sqrt(torch.finfo(dtype).tiny):
            gradient = PatchForm(model, x, torch.ones(1)).sums(clip_norm).gradient
            assert gradient.double().norm() <= clip_norm


def test_records_that_are_not_finite_contribute_nothing():
    model, (x, y) = network(), sample()
    rest = PatchForm(model, x[2:], y[2:]).sums(0.1).gradient
    x[0, 1, 2], x[1, 0, 0] = math.nan, math.inf
    for clip_norm in (0.1, math.inf):
        found = PatchForm(model, x, y).sums(clip_norm)
        assert found.gradient.isfinite().all() and (found.pulls[:2] == 0).all()
    torch.testing.assert_close(PatchForm(model, x, y).sums(0.1).gradient, rest, atol=1e-14, rtol=0)


def test_private_training_of_any_model_has_the_same_clipped_sums():
    """The network is a plain module: the general engine trains it, too."""
    model, (x, y) = network(), sample(n=40)
    before = model.filters.weight.detach().clone()
    plan = ap.Plan(n=40, sampling=ap.FullBatch(), steps=1, clip_norm=0.05,
                   mechanism=ap.mechanisms.Independent(), noise_multiplier=1e-9)  # fmt: skip
    expected = PatchForm(model, x, y).sums(0.05).gradient / 40
    certificate = ap.certify(plan.with_noise(1e-3), 1e-5)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

    def loss(model, x, y):
        return softplus(-y * model(x))

    ap.make_private(model, optimizer, (x, y), loss, plan=certificate, seed=0).train(show=False)
    moved = before - model.filters.weight.detach()
    torch.testing.assert_close(moved, expected, atol=1e-3 * 0.05 / 40 * 6, rtol=0)
    assert float((moved - expected).norm()) < 0.1 * float(expected.norm())


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.ones(3, 5), torch.ones(3), r"shape \(n, patches, 5\).*got \(3, 5\)"),
        (torch.ones(3, 2, 4), torch.ones(3), r"got \(3, 2, 4\)"),
        (torch.ones(0, 2, 5), torch.ones(0), "n >= 1"),
        (torch.ones(3, 2, 5), torch.ones(2), "one label per row, 3"),
        (torch.ones(3, 2, 5), torch.zeros(3), "labels must be -1 or [+]1"),
        (
            torch.ones(3, 2, 5),
            torch.ones(3, dtype=torch.complex64) * 1j,
            "labels must be -1 or [+]1",
        ),
        (torch.ones(3, 2, 5), torch.tensor([True, False, True]), "labels must be -1 or [+]1"),
        (torch.ones(3, 2, 5), ["yes", "no", "no"], "labels must be numbers"),
        (torch.ones(3, 0, 5), torch.ones(3), "a patch at least"),
    ],
)
def test_bad_records_are_refused(x, y, message):
    with pytest.raises(PlanError, match=message):
        PatchForm(network(), x, y)


def test_a_bad_clip_norm_is_refused():
    with pytest.raises(PlanError, match="clip_norm must be positive"):
        PatchForm(network(), *sample()).sums(0.0)
    with pytest.raises(PlanError, match=r"too small for torch\.float32: take at least 1e-19"):
        PatchForm(network().float(), *sample()).sums(1e-30)


def test_a_model_in_half_precision_is_refused():
    with pytest.raises(PlanError, match=r"float32 or float64; got a model in torch\.bfloat16"):
        PatchForm(network().to(torch.bfloat16), *sample())
