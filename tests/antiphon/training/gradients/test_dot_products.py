"""Attention of all examples at once is that of every example alone, with the same kernels."""

import contextlib

import pytest
import torch
from torch import nn
from torch.func import vmap
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from antiphon.training.gradients import context
from antiphon.training.gradients.context import evaluation
from antiphon.training.gradients.dot_products import CALLS
from antiphon.training.gradients.record_draws import RecordDraws
from antiphon.training.gradients.taps import Taps

EXAMPLES, ROWS, HEADS, QUERIES, KEYS, WIDTH = 3, 2, 4, 5, 6, 8
USUAL = (ROWS, HEADS, QUERIES, WIDTH), (ROWS, HEADS, KEYS, WIDTH), (ROWS, HEADS, KEYS, WIDTH)
# Shapes of queries, keys, values and mask for one example, and options.
CASES = {
    "four axes": (*USUAL, None, {}),
    "scaled": (*USUAL, None, {"scale": 0.3}),
    "three axes": (*(shape[1:] for shape in USUAL), (QUERIES, KEYS), {}),
    "two axes": (*(shape[2:] for shape in USUAL), None, {}),
    "five axes": (*((2, *shape) for shape in USUAL), (ROWS, 1, QUERIES, KEYS), {}),
    "causal": (*((ROWS, HEADS, QUERIES, WIDTH),) * 3, None, {"is_causal": True}),
    "few keys": (USUAL[0], *((ROWS, 2, KEYS, WIDTH),) * 2, None, {"enable_gqa": True}),
    "broadcast heads": (USUAL[0], *((ROWS, 1, KEYS, WIDTH),) * 2, None, {}),
    "broadcast rows": (USUAL[0], *((1, HEADS, KEYS, WIDTH),) * 2, None, {}),
    "wide values": (*USUAL[:2], (ROWS, HEADS, KEYS, 3), None, {}),
    "mask": (*USUAL, (QUERIES, KEYS), {}),
    "mask by head": (*USUAL, (HEADS, QUERIES, KEYS), {}),
    "mask by row": (*USUAL, (ROWS, 1, 1, KEYS), {}),
    "whole mask": (*USUAL, (ROWS, HEADS, QUERIES, KEYS), {}),
}


class Operations(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def drawn(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def at_once(call, *tensors, is_batched=None, parameters=()):
    """A function of examples under vmap, as an evaluation calls it."""
    taps = Taps(parameters, EXAMPLES)

    def one(*rows):
        with taps.begin():
            return call(*rows)

    axes = tuple(0 if batched else None for batched in is_batched or [True] * len(tensors))
    with evaluation():
        found = vmap(one, axes, randomness="different")(*tensors)
    taps.end()
    return found


def in_turn(call, *tensors, is_batched=None):
    batched = is_batched or [True] * len(tensors)
    return torch.stack(
        [
            call(*(t[i] if b else t for t, b in zip(tensors, batched, strict=True)))
            for i in range(EXAMPLES)
        ]
    )


def check_equal(call, *tensors, is_batched=None):
    """The same outputs and gradients of all that requires them."""
    sources = [t for t in tensors if t.requires_grad]
    found = at_once(call, *tensors, is_batched=is_batched)
    expected = in_turn(call, *tensors, is_batched=is_batched)
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(expected)
    gradients = (torch.autograd.grad(x, sources, weights) for x in (found, expected))
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("kind", ["none", "constant", "boolean", "differentiable"])
@pytest.mark.parametrize("case", CASES)
def test_attention_at_once_is_that_of_every_example(case, kind):
    torch.manual_seed(0)
    *shapes, mask, options = CASES[case]
    tensors = [drawn(EXAMPLES, *shape) for shape in shapes]
    if kind == "none":
        mask = None
    if mask is not None:
        bias = drawn(EXAMPLES, *mask)
        tensors.append({"constant": bias.detach(), "boolean": bias > -1}.get(kind, bias))

    check_equal(
        lambda q, k, v, m=None: F.scaled_dot_product_attention(q, k, v, m, **options), *tensors
    )


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("mask", [None, (QUERIES, KEYS), (ROWS, 1, 1, KEYS), (HEADS, 1, 1)])
def test_what_is_equal_for_all_examples_may_be_given(place, mask):
    torch.manual_seed(0)
    shapes = [*USUAL, *([mask] if mask else [])]
    is_batched = [i != place for i in range(len(shapes))]
    tensors = [
        drawn(*((EXAMPLES,) if b else ()), *shape)
        for b, shape in zip(is_batched, shapes, strict=True)
    ]
    check_equal(F.scaled_dot_product_attention, *tensors, is_batched=is_batched)


def test_attention_within_a_transform_of_the_loss_is_left_to_it():
    q, k, v = (drawn(EXAMPLES, *shape) for shape in USUAL)
    check_equal(vmap(F.scaled_dot_product_attention), q, k, v)


def test_dropout_is_drawn_by_record():
    torch.manual_seed(0)
    q, k, v = (drawn(EXAMPLES, *shape) for shape in USUAL)

    def call(*tensors):
        return F.scaled_dot_product_attention(*tensors, dropout_p=0.4)

    with RecordDraws(bytes(32), 1, torch.tensor([7, 3, 5])):
        found = at_once(call, q, k, v)
    for place, record in enumerate([7, 3, 5]):
        with RecordDraws(bytes(32), 1, record):
            torch.testing.assert_close(found[place], call(q[place], k[place], v[place]))


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_examples_stay_apart(dropout):
    q, k, v = (drawn(EXAMPLES, *shape) for shape in USUAL)
    mask = drawn(EXAMPLES, QUERIES, KEYS)
    with torch.no_grad():
        for tensor in (q, k, v, mask):
            tensor[1] = torch.nan

    with RecordDraws(bytes(32), 1, torch.arange(EXAMPLES)):
        out = at_once(
            lambda *parts: F.scaled_dot_product_attention(*parts, dropout_p=dropout), q, k, v, mask
        )
    gradients = torch.autograd.grad(out[[0, 2]].sum(), (q, k, v, mask))

    assert out[1].isnan().all()
    assert out[[0, 2]].isfinite().all()
    assert all(g[[0, 2]].isfinite().all() for g in gradients)


def test_the_quick_kernel_is_used_unless_the_mask_needs_a_gradient(monkeypatch):
    monkeypatch.setattr(context, "_no_other_modes", contextlib.nullcontext)
    q, k, v = (drawn(EXAMPLES, *shape) for shape in USUAL)
    mask, bias = torch.randn(EXAMPLES, 1, QUERIES, KEYS).double(), drawn(EXAMPLES, 1, QUERIES, KEYS)
    for tensors, is_quick in (((q, k, v), True), ((q, k, v, mask), True), ((q, k, v, bias), False)):
        with Operations() as seen:
            at_once(F.scaled_dot_product_attention, *tensors)
        assert ("_scaled_dot_product_flash_attention_for_cpu" in seen.names) == is_quick


def test_trained_queries_are_read_through_a_tap():
    queries = nn.Parameter(torch.randn(HEADS, QUERIES, WIDTH))
    bias = nn.Parameter(torch.randn(QUERIES, KEYS))
    k, v = (drawn(EXAMPLES, *shape[1:], dtype=torch.float32) for shape in USUAL[1:])
    taps = Taps([queries, bias], EXAMPLES)

    def one(k, v):
        with taps.begin():
            return F.scaled_dot_product_attention(queries, k, v, attn_mask=bias).square().sum()

    with evaluation():
        losses = vmap(one)(k, v)
    leaves = [taps.leaves[queries], taps.leaves[bias]]
    found = torch.autograd.grad(losses.sum(), leaves)
    for i in range(EXAMPLES):
        loss = F.scaled_dot_product_attention(queries, k[i], v[i], bias).square().sum()
        torch.testing.assert_close(
            torch.autograd.grad(loss, [queries, bias]), (found[0][i], found[1][i])
        )


def test_only_torchs_own_function_is_replaced():
    assert list(CALLS) == [F.scaled_dot_product_attention]
