"""Closed-form clipped sums against autograd, one example at a time."""

import math

import pytest
import torch
from torch.nn.functional import softplus

from antiphon.errors import PlanError
from antiphon_papers.common.closed_form import ClosedForm
from antiphon_papers.common.fixed_inputs import FixedInputs
from antiphon_papers.common.two_layer_kan import TwoLayerKAN


def case(train="both", activation="tanh", degree=3, n=24):
    torch.manual_seed(degree)
    model = TwoLayerKAN(4, 6, activation=activation, degree=degree, train=train).double()
    x = torch.rand(n, 4, dtype=torch.float64) * 2.4 - 1.2
    x[: 2 * n // 3, 2] = -1.0  # a background
    return model, x, torch.where(torch.rand(n) < 0.5, -1.0, 1.0).double()


def one_by_one(model, x, y, clip_norm):
    """Sum of clipped gradients, losses and norms, by autograd of each example."""
    trained = [p for p in (model.first.coef, model.second.coef) if p.requires_grad]
    total, losses, norms = [torch.zeros_like(p) for p in trained], [], []
    for row, label in zip(x, y, strict=True):
        loss = softplus(-label * model(row[None])).sum()
        gradient = torch.autograd.grad(loss, trained)
        norms.append(float(torch.cat([g.flatten() for g in gradient]).norm()))
        losses.append(loss.item())
        for part, g in zip(total, gradient, strict=True):
            part += min(1.0, clip_norm / norms[-1]) * g
    return total, losses, norms


@pytest.mark.parametrize("train", ["first", "second", "both"])
@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_acceptance_kan_dpgd_4_closed_form_is_autograd(train, activation, degree):
    model, x, y = case(train, activation, degree)
    norms = one_by_one(model, x, y, math.inf)[2]
    for clip_norm in (math.inf, sorted(norms)[len(norms) // 2]):  # half of them are clipped
        total, losses, norms = one_by_one(model, x, y, clip_norm)
        found = ClosedForm(model, x, y).sums(clip_norm=clip_norm)
        parts = [part for part in (found.first, found.second) if part is not None]
        for part, expected in zip(parts, total, strict=True):
            torch.testing.assert_close(part, expected, atol=1e-11, rtol=0)
        torch.testing.assert_close(found.norms.tolist(), norms, atol=1e-12, rtol=0)
        torch.testing.assert_close(found.losses.tolist(), losses, atol=1e-12, rtol=0)


def test_rows_are_the_examples_they_name():
    model, x, y = case()
    form, rows = ClosedForm(model, x, y), torch.tensor([3, 7, 4])
    alone, some = ClosedForm(model, x[rows], y[rows]).sums(clip_norm=0.3), form.sums(rows, 0.3)
    torch.testing.assert_close(some.first, alone.first, atol=1e-12, rtol=0)
    torch.testing.assert_close(some.second, alone.second, atol=1e-12, rtol=0)
    empty = form.sums([], 0.3)
    assert not empty.first.any() and not empty.second.any() and empty.losses.numel() == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_counts_as_zero(bad):
    """An infinite input counts as the end of its domain; a NaN has no place, and adds nothing."""
    model, x, y = case()
    rest = ClosedForm(model, x[1:], y[1:]).sums(clip_norm=0.3)
    x[0, 2] = bad
    found = ClosedForm(model, x, y).sums(clip_norm=0.3)
    if math.isnan(bad):
        torch.testing.assert_close(found.first, rest.first, atol=1e-12, rtol=0)
        torch.testing.assert_close(found.second, rest.second, atol=1e-12, rtol=0)
    else:
        x[0, 2] = 1.0 if bad > 0 else -1.0
        torch.testing.assert_close(
            found.first, ClosedForm(model, x, y).sums(clip_norm=0.3).first, atol=1e-12, rtol=0
        )
    with torch.no_grad():
        model.second.coef[0, 0] = math.inf
    sums = ClosedForm(model, x, y).sums(clip_norm=0.3)
    assert sums.first.isfinite().all() and sums.second.isfinite().all()


def longest(form, clip_norm):
    """Of all contributions, each taken alone."""
    found = 0.0
    for row in range(form.n):
        sums = form.sums([row], clip_norm)
        parts = [part.double() for part in (sums.first, sums.second) if part is not None]
        found = max(found, math.hypot(*(float(part.norm()) for part in parts)))
    return found / clip_norm


def test_no_example_passes_the_clip_norm_in_single_precision():
    torch.manual_seed(0)
    model = TwoLayerKAN(10, 32, train="both")
    form = ClosedForm(model, torch.rand(200, 10) * 2 - 1, torch.ones(200))
    assert 1 - 1e-5 < longest(form, 0.2) <= 1.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("train", ["first", "second", "both"])
def test_nor_does_one_of_a_wide_network_of_equal_units(train, dtype):
    """All rounded the same way: sums of squares in single precision were 2e-4 too small."""
    torch.manual_seed(0)
    model = TwoLayerKAN(2, 32_768, train=train).to(dtype)
    with torch.no_grad():
        model.first.coef[:] = model.first.coef[0]
        model.second.coef[:] = model.second.coef[:, :8].repeat(1, 32_768)
    form = ClosedForm(model, torch.rand(12, 2) * 2 - 1, torch.ones(12))
    assert 1 - 1e-5 < longest(form, 1e-3) <= 1.0


@pytest.mark.parametrize(
    ("scale", "clip_norm"),
    [(1e-22, 1e-23), (1e-24, 1e-26), (1e-30, 1e-31), (1e15, 1e-6), (1e37, 1e-20)],
)
def test_nor_do_examples_whose_squares_underflow_or_overflow(scale, clip_norm):
    torch.manual_seed(0)
    model = TwoLayerKAN(2, 8, scale=scale)
    x = torch.rand(50, 2) * 2 - 1
    form = ClosedForm(model, x, torch.ones(50))
    assert 0 < longest(form, clip_norm) <= 1.0


def test_clip_norms_at_the_end_of_the_numbers_are_refused():
    model, x, y = case()
    for clip_norm in (1e-44, 1e-32, 1e36):
        with pytest.raises(
            PlanError, match=r"in float32 the clip norm must be between 1e-31 and 4e\+31"
        ):
            ClosedForm(model.float(), x, y).sums(clip_norm=clip_norm)


def test_an_empty_batch_is_zero_where_features_are_computed_again():
    model, x, y = case()
    form = ClosedForm(model, x, y)
    form.inputs = FixedInputs(x.numpy(), model.first.splines, 6, largest=0.0)
    assert form.inputs.dense is None
    for _ in range(20):
        form.sums([0, 5, 7], 0.3)
        empty = form.sums([], 0.3)
        assert not empty.first.any() and not empty.second.any()


@pytest.mark.parametrize("background", [None, -1.0, [math.nan, math.nan, -1.0, math.nan]])
def test_a_background_changes_no_sum(background):
    model, x, y = case()
    total, *_ = one_by_one(model, x, y, 0.3)
    found = ClosedForm(model, x, y, background=background).sums(clip_norm=0.3)
    for part, expected in zip((found.first, found.second), total, strict=True):
        torch.testing.assert_close(part, expected, atol=1e-11, rtol=0)


def test_extreme_margins_keep_their_loss_and_gradient():
    model, x, y = case()
    with torch.no_grad():
        model.second.coef.mul_(1e4)
    found = ClosedForm(model, x, y).sums()
    torch.testing.assert_close(found.losses, softplus(-y * model(x)).detach())
    assert found.first.isfinite().all()


def test_bad_data_says_what_is_allowed():
    model, x, y = case()
    with pytest.raises(
        PlanError, match=r"labels must be -1 or \+1. Of labels 0 and 1, take 2 \* y - 1"
    ):
        ClosedForm(model, x, (y + 1) / 2)
    with pytest.raises(PlanError, match=r"one label per row, 24; got shape \(3,\)"):
        ClosedForm(model, x, y[:3])
    with pytest.raises(PlanError, match=r"shape \(n, 4\) with n >= 1; got \(24, 3\)"):
        ClosedForm(model, x[:, :3], y)
    with pytest.raises(
        PlanError, match=r"CPU in float32 or float64; got a model in torch\.bfloat16"
    ):
        ClosedForm(model.bfloat16(), x, y)
    with pytest.raises(PlanError, match="clip_norm must be positive and finite; got -1"):
        ClosedForm(case()[0], x, y).sums(clip_norm=-1.0)
