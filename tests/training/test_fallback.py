"""Modules with parameters of their own: run again for each example, or refused with the remedy."""

import warnings

import pytest
import torch
from oracles.clipped import naive_gradients, naive_sum, scales_of
from oracles.quick import quick_sum
from torch import nn

from antiphon.errors import UnsupportedError
from antiphon.training import fallback

ROWS = 4


@pytest.fixture(autouse=True)
def nothing_announced(monkeypatch):
    monkeypatch.setattr(fallback, "_announced", set())


class Own(nn.Module):
    """A parameter of its own, used by a function."""

    def __init__(self, run, *shape, inner=None):
        super().__init__()
        self.gain = nn.Parameter(
            torch.randn(*shape or (3,), generator=torch.Generator().manual_seed(0))
        )
        self.run, self.inner = run, inner

    def forward(self, *args, **kwargs):
        return self.run(self, *args, **kwargs)


def x(*shape):
    return torch.randn(ROWS, *shape or (3,), generator=torch.Generator().manual_seed(1))


def is_right(model, *args, text="has no rule of its own", **kwargs):
    truth = naive_gradients(model, args, kwargs, ROWS, scales=scales_of(ROWS))
    with pytest.warns(UserWarning, match=text):
        quick = quick_sum(model, args, kwargs, ROWS)
    for name, expected in naive_sum(truth).items():
        torch.testing.assert_close(quick[name].double(), expected, rtol=1e-5, atol=1e-5)


def test_it_is_announced_once():
    model = Own(lambda m, x: m.gain * x)
    is_right(model, x())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            quick_sum(model, (x(),), {}, ROWS)


def branching(m, x):
    return m.gain * x if x.sum() > 0 else m.gain**2 * x  # vmap cannot


def test_what_vmap_cannot_run_goes_one_by_one_announced_once():
    class Branching(Own):
        def forward(self, x):
            return torch.stack([branching(self, row) for row in x])

    model = Branching(None)
    is_right(model, x(), text="runs once per example")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            quick_sum(model, (x(),), {}, ROWS)


@pytest.mark.parametrize("is_training", [True, False])
def test_dropout_beside_own_parameters_is_refused_with_the_remedy(is_training):
    model = Own(lambda m, x: m.inner(m.gain * x), inner=nn.Dropout(0.5)).train(is_training)
    if is_training:
        with pytest.raises(UnsupportedError, match=r"dropout.*module of their own"):
            quick_sum(model, (x(),), {}, ROWS)
    else:
        is_right(model, x())


def test_dropout_that_runs_one_by_one_is_refused_as_well():
    def run(m, x):
        rows = [m.inner(branching(m, row)) for row in x]
        return torch.stack(rows)

    model = Own(run, inner=nn.Dropout(0.5))
    with pytest.raises(UnsupportedError, match="dropout"), pytest.warns(UserWarning):
        quick_sum(model, (x(),), {}, ROWS)


def test_a_mixture_of_examples_is_refused():
    model = Own(lambda m, x: m.gain * (x - x.mean(0)))
    with pytest.raises(UnsupportedError, match="mixture"), pytest.warns(UserWarning):
        quick_sum(model, (x(),), {}, ROWS)


def test_arguments_without_examples_are_the_same_for_all():
    shared = torch.randn(7, 3)
    is_right(
        Own(lambda m, x, table, *, power: m.gain * x + table.sum(0) ** power), x(), shared, power=2
    )


def test_named_and_nested_arguments_hold_examples():
    is_right(
        Own(lambda m, *, pair: m.gain * pair["a"] * pair["b"][0]), pair={"a": x(), "b": [x() + 1]}
    )


def causal(m, x, mask):
    scores = (x @ x.mT).masked_fill(mask, -torch.inf)
    return torch.softmax(scores, -1) @ (m.gain * x)


def truth_with_shared(model, data, *shared):
    """One example at a time; what is shared has as many rows as the batch."""
    found = []
    for row, scale in zip(data, scales_of(ROWS), strict=True):
        one = naive_gradients(model, (row[None],), {}, 1, lambda o, s: s * loss(o), scale[None])
        found += one
    return found


def loss(out):
    return out.square().reshape(len(out), -1).sum(1)


@pytest.mark.filterwarnings("ignore:.*(no rule of its own|once per example)")
@pytest.mark.parametrize(
    ("run", "shared"),
    [
        (causal, torch.triu(torch.ones(ROWS, ROWS), 1) > 0),
        (lambda m, x, place: m.gain * x * place[:, None], torch.arange(1.0, ROWS + 1)),
        (lambda m, x, place: m.gain * x + m.gain * place, torch.randn(ROWS, 3)),
        (lambda m, x, mask, place: causal(m, x + place, mask), None),
    ],
)
def test_what_has_as_many_rows_as_the_batch_by_coincidence_is_found_out(run, shared):
    both = (torch.triu(torch.ones(ROWS, ROWS), 1) > 0, torch.arange(12.0).view(ROWS, 3) / 12)
    shared = both if shared is None else (shared,)
    data, model = x(ROWS, 3), Own(run)
    alone = Own(lambda m, x: run(m, x, *shared))
    truth = truth_with_shared(alone, data)
    quick = quick_sum(model, (data, *shared), {}, ROWS, loss=lambda out, s: s * loss(out))
    torch.testing.assert_close(
        quick["gain"].double(), naive_sum(truth)["gain"], rtol=1e-5, atol=1e-5
    )


def test_an_output_without_examples_is_refused():
    class Table(nn.Module):
        def __init__(self, rows):
            super().__init__()
            self.table = Own(lambda m: m.gain * 1, rows, 3)

        def forward(self, x):
            return x + self.table()[: len(x)]

    with pytest.raises(UnsupportedError, match="first axis"):
        quick_sum(Table(6), (x(),), {}, ROWS)
    with (
        pytest.raises(UnsupportedError, match="first axis is not the batch"),
        pytest.warns(UserWarning),
    ):
        quick_sum(Table(ROWS), (x(),), {}, ROWS)


def test_several_outputs_that_lead_to_each_other_are_counted_once():
    def run(m, x):
        first = m.gain * x
        return {"first": first, "second": first.exp() * m.gain, "text": "none"}

    is_right(Own(run), x())


def test_an_output_that_the_loss_does_not_use_counts_as_zero():
    model = Own(lambda m, x: (m.gain * x, m.gain**2 * x))
    data, scales = x(), scales_of(ROWS)

    def first(out, s):
        return s * loss(out[0])

    truth = naive_gradients(model, (data,), {}, ROWS, first, scales)
    with pytest.warns(UserWarning):
        quick = quick_sum(model, (data,), {}, ROWS, loss=first)
    torch.testing.assert_close(
        quick["gain"].double(), naive_sum(truth)["gain"], rtol=1e-5, atol=1e-5
    )


def test_an_example_that_is_not_finite_does_not_touch_the_others():
    model, data = Own(lambda m, x: m.gain * x), x()
    data[1] = float("nan")
    with pytest.warns(UserWarning):
        quick = quick_sum(model, (data,), {}, ROWS, scales=torch.ones(ROWS))
    without = quick_sum(model, (data[[0, 2, 3]],), {}, 3, scales=torch.ones(3))
    torch.testing.assert_close(quick["gain"], without["gain"])


def test_it_runs_again_in_the_precision_of_its_call():
    model = Own(lambda m, x: (x @ m.gain).square(), 3, 2)
    with pytest.warns(UserWarning):
        plain = quick_sum(model, (x(),), {}, ROWS)
    whole = nn.Sequential(model)
    forward = whole.forward
    whole.forward = lambda x: torch.autocast("cpu", dtype=torch.bfloat16)(forward)(x)
    with pytest.warns(UserWarning):
        quick = quick_sum(whole, (x(),), {}, ROWS)
    torch.testing.assert_close(quick["0.gain"], plain["gain"], rtol=0.05, atol=0.05)
