"""What a hostile user writes to carry one record into the gradients of others: right, or refused.

Each attack is code and data. One record is removed or replaced, at equal parameters, over several noisy
steps (which wake layers that begin with zeros), and the clipped sum must move by at most its proved bound.
Attacks that succeed are marked as expected failures, with what lets them through.
"""

import contextlib
import contextvars
import functools
import itertools
import logging
import threading
import warnings
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from threading import Timer
from time import sleep
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch
from oracles.moves import Case, largest_move
from torch import nn
from torch.autograd import Function
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function_unary
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from antiphon.errors import AntiphonError, UnsupportedError

WITHIN = 1.001  # of the bound
N, FEATURES, CLASSES = 16, 4, 3
REFUSALS = (AntiphonError, RuntimeError, ValueError)  # ours, and those of torch


def table(n=N, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, FEATURES, generator=generator)
    return x, torch.randint(0, CLASSES, (n,), generator=generator)


def texts(n=N, length=4, lines=9):
    generator = torch.Generator().manual_seed(1)
    words = torch.randint(1, lines, (n, length), generator=generator)
    return words, torch.randint(0, CLASSES, (n,), generator=generator)


def others(rows):
    """An outlier, a mirrored record, zeros, and another label."""
    (x, y), label = rows, (rows[1][0] + 1) % CLASSES
    return (1e3 * x[0], y[0]), (-x[0], label), (0 * x[0], y[0])


OUTLIER = (torch.full((FEATURES,), 100.0), torch.tensor(0))


class Net(nn.Module):
    """A linear classifier; ``on`` is what a user's schedule turns on after the run was made."""

    def __init__(self, change=None):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(2)
            self.layer = nn.Linear(FEATURES, CLASSES)
        self.change, self.on = change, False

    def forward(self, x):
        h = self.layer(x)
        return h if self.change is None else self.change(self, h)


def ten(model, x, y):
    return 10 * F.cross_entropy(model(x), y)


def turn_on(model):
    model.on = True


HELD, REFUSED, BROKEN = {}, {}, {}


def attack(kind, name=None, *, rows=None, changes=None, late=False, reason=None):
    """Enter an attack. It makes model and loss; or it is the loss, or changes what the layer returns."""

    def enter(made):
        data = table() if rows is None else rows
        known = others(data) if changes is None else changes
        case = Case(made, data, known, turn_on if late else None)
        title = (name or made.__name__.replace("_", " ")).strip()
        assert title not in (HELD | REFUSED | BROKEN)
        kind[title] = (case, reason) if kind is BROKEN else case
        return made

    return enter


def loss_of(kind, name=None, model=Net, **options):
    """Enter a loss."""

    def enter(loss):
        attack(kind, name or loss.__name__.replace("_", " "), **options)(lambda: (model(), loss))
        return loss

    return enter


def layer_of(kind, name=None, **options):
    """Enter a change of what the layer returns: ``change(model, h)``."""

    def enter(change):
        title = name or change.__name__.replace("_", " ")
        attack(kind, title, **options)(lambda: (Net(change), ten))
        return change

    return enter


# The table of issue A


class Positions(nn.Module):
    """A position table without an axis of the batch."""

    def __init__(self, length):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(3)
            self.words, self.places = nn.Embedding(9, 5), nn.Embedding(length, 5)
            self.head = nn.Linear(5, CLASSES)

    def forward(self, words):
        h = self.words(words) + self.places(torch.arange(words.shape[1]))
        return self.head(torch.tanh(h).mean(1))


for _length in (4, 16, 64):
    attack(
        HELD, f"a position table, batch size = length = {_length}", rows=texts(_length, _length),
        changes=[(torch.full((_length,), 8), torch.tensor(2))],
    )(lambda length=_length: (Positions(length), ten))  # fmt: skip


class Prototypes(nn.Module):
    """A layer over a constant with as many rows as the batch has examples."""

    def __init__(self, rows):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(4)
            self.register_buffer("known", torch.randn(rows, 5))
            self.body, self.map = nn.Linear(FEATURES, 6), nn.Linear(5, 6)

    def forward(self, x):
        return self.body(x) @ self.map(self.known).mT


@attack(HELD)
def prototypes_as_many_as_examples():
    return Prototypes(N), ten


@attack(HELD)
def label_embeddings_in_a_table():
    model = Prototypes(N)
    model.map = nn.Embedding.from_pretrained(model.known.new_ones(N, 6), freeze=False)
    model.known = torch.arange(N)
    return model, ten


class Asleep(nn.Module):
    """Examples would be mixed behind a layer that is zero at first."""

    def __init__(self, kind):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(5)
            self.layer, self.last = nn.Linear(FEATURES, CLASSES), nn.Linear(CLASSES, CLASSES)
        self.norm, self.scale = nn.LayerNorm(CLASSES), nn.Parameter(torch.zeros(CLASSES))
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.norm.weight)
        self.kind = kind

    def forward(self, x):
        h = self.layer(x)
        mixed = (h - h.mean(0) + h.max(0).values) * (1 + h.sum())
        match self.kind:
            case "LayerScale":
                return h + self.scale * mixed
            case "residual":
                return h + self.last(mixed)
        return h + self.norm(mixed)


for _kind in ("LayerScale", "residual", "LayerNorm"):
    attack(HELD, f"mixing behind a {_kind} that is zero")(lambda kind=_kind: (Asleep(kind), ten))


@loss_of(HELD)
def class_weights_in_a_mean(model, x, y):
    return 10 * F.cross_entropy(model(x), y, weight=torch.tensor([1e-3, 1.0, 1e3]))


@loss_of(HELD)
def weights_normalised_by_hand(model, x, y):
    weights = torch.tensor([1e-3, 1.0, 1e3])[y]
    return 10 * (weights / weights.sum() * F.cross_entropy(model(x), y, reduction="none")).sum()


@loss_of(HELD, rows=(table()[0], table()[1].where(torch.arange(N) % 3 > 0, torch.tensor(-100))))
def labels_that_are_ignored(model, x, y):
    return 10 * F.cross_entropy(model(x), y)


@loss_of(HELD)
def a_loss_over_its_detached_mean(model, x, y):
    losses = 10 * F.cross_entropy(model(x), y, reduction="none")
    return (losses / losses.detach().mean()).mean()


@loss_of(HELD)
def a_softmax_over_losses(model, x, y):
    losses = 10 * F.cross_entropy(model(x), y, reduction="none")
    return (losses.detach().softmax(0) * losses).sum()


@loss_of(HELD)
def normalised_advantages(model, x, y):
    gains = x[:, 0] - x[:, 0].mean()
    gains = gains / (gains.std(correction=0) + 1e-3) + 1
    return -10 * (gains * model(x).log_softmax(1).gather(1, y[:, None])[:, 0]).mean()


@loss_of(HELD)
def a_batch_statistic_by_batch_norm(model, x, y):
    places = x[:, None].expand(-1, 2, -1).cumsum(1).mT
    return ten(model, F.batch_norm(places, None, None, training=True).sum(2) + x, y)


@layer_of(HELD)
def mixing_by_the_size_of_the_batch(model, h):
    return h if len(h) == 1 else h - h.mean(0)


@layer_of(HELD)
def mixing_by_a_random_draw(model, h):
    return torch.where(torch.rand(()) < 0.5, h, 2 * h - h.mean(0))


@layer_of(HELD)
def mixing_by_a_call_counter(model, h):
    model.calls = getattr(model, "calls", 0) + 1
    return h if model.calls < 3 else h - h.mean(0)


@attack(REFUSED)
def a_running_mean_in_batch_norm():
    model = Net()
    model.norm = nn.BatchNorm1d(FEATURES)
    return model, lambda model, x, y: ten(model, model.norm(x), y)


@attack(REFUSED)
def tables_that_shorten_what_they_look_up():
    model = Positions(4)
    model.words.max_norm = 0.1
    return model, lambda model, x, y: ten(model, y.expand(1, 4), y)


@attack(HELD)
def a_spectral_norm_in_training():
    model = Net()
    with torch.random.fork_rng():
        torch.manual_seed(6)
        model.layer = nn.utils.parametrizations.spectral_norm(model.layer)
    return model, ten


# Something is kept for the next example, or for the next batch


listed, table_of, holder = [], {}, SimpleNamespace(h=None)
kept_globally = None
variable = contextvars.ContextVar("variable", default=None)
of_thread = threading.local()


class Shared:
    h: ClassVar = None


def _global(value=None):
    global kept_globally
    if value is not None:
        kept_globally = value
    return kept_globally


def _default(value=None, kept=[None]):  # noqa: B006
    if value is not None:
        kept[0] = value
    return kept[0]


def _closure():
    kept = None

    def store(value=None):
        nonlocal kept
        kept = kept if value is None else value
        return kept

    return store


def _in(holder, name="h"):
    def store(value=None):
        if value is not None:
            setattr(holder, name, value)
        return getattr(holder, name, None)

    return store


def _listed(value=None):
    if value is not None:
        listed.append(value)
    return listed[-1] if listed else None


def _by_name(value=None):
    if value is not None:
        table_of["h"] = value
    return table_of.get("h")


def _queue(kept=None):
    kept = deque(maxlen=1)

    def store(value=None):
        if value is not None:
            kept.append(value)
        return kept[-1] if kept else None

    return store


def _context(value=None):
    if value is not None:
        variable.set(value)
    return variable.get()


def _generator():
    def remember():
        kept = None
        while True:
            new = yield kept
            kept = kept if new is None else new

    kept = remember()
    next(kept)
    return lambda value=None: kept.send(value)


def _cached():
    @functools.cache
    def cell():
        return SimpleNamespace(h=None)

    return lambda value=None: _in(cell())(value)


def _array():
    kept = np.zeros(CLASSES)

    def store(value=None):
        if value is not None:
            kept[:] = value[0].numpy()
        return torch.from_numpy(kept).float() if kept.any() else None

    return store


def _tensor():
    kept = torch.zeros(CLASSES)

    def store(value=None):
        if value is not None:
            kept.copy_(value[0])
        return kept

    return store


def _data():
    kept = nn.Parameter(torch.zeros(CLASSES), requires_grad=False)

    def store(value=None):
        if value is not None:
            kept.data = value[0].clone()
        return kept.data

    return store


def _hidden_by_an_iterator():
    kept = [torch.zeros(CLASSES)]
    endless = itertools.cycle(kept)

    def store(value=None):
        if value is not None:
            kept[0] = value[0]
        return next(endless) + kept[0]

    return store


STORES = {
    "a list": lambda: _listed, "a dict": lambda: _by_name, "a global": lambda: _global,
    "a closure cell": _closure, "a class attribute": lambda: _in(Shared),
    "a default argument": lambda: _default, "an object": lambda: _in(holder), "a deque": _queue,
    "a context variable": lambda: _context, "a thread's own": lambda: _in(of_thread),
    "a generator": _generator, "functools.cache": _cached, "a NumPy array": _array,
    "a tensor": _tensor, "parameter.data": _data, "an iterator": _hidden_by_an_iterator,
}  # fmt: skip


def _empty_stores():
    global kept_globally
    kept_globally = Shared.h = holder.h = of_thread.h = None
    listed.clear(), table_of.clear(), variable.set(None)
    _default.__defaults__[1][0] = None


def _centring(make_store):
    def make():
        _empty_stores()
        store = make_store()

        def centre(model, h):
            before = store()
            store(h.detach())
            return h if before is None else h - before

        return Net(centre), ten

    return make


for _name, _store in STORES.items():
    attack(REFUSED, f"centring by {_name}")(_centring(_store))


class Dino(nn.Module):
    """Centring by a buffer, or by an attribute that is rebound."""

    def __init__(self, in_place):
        super().__init__()
        self.layer, self.in_place = Net().layer, in_place
        self.register_buffer("centre", torch.zeros(1, CLASSES))

    def forward(self, x):
        h = self.layer(x)
        out = h - self.centre
        new = 0.5 * self.centre + 0.5 * h.detach().mean(0, keepdim=True)
        if self.in_place:
            self.centre.copy_(new)
        else:
            self.centre = new
        return out


@attack(REFUSED)
def DINO_centring_in_place():
    return Dino(True), ten


@attack(REFUSED)
def DINO_centring_by_rebinding():
    return Dino(False), ten


@attack(REFUSED)
def hooks_that_keep_outputs():
    model, seen = Net(), []

    def hook(layer, inputs, output):
        seen.append(output)
        return output - seen[0]

    model.layer.register_forward_hook(hook)
    return model, lambda model, x, y: ten(model, x, y) + model.layer(x + 1).sum()


@loss_of(HELD)
def gradients_read_and_written(model, x, y):
    before = model.layer.bias.grad
    model.layer.bias.grad = torch.ones(CLASSES)
    return ten(model, x, y) * (1 if before is None else -1)


@attack(HELD)
def the_state_of_an_optimizer():
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())

    def loss(model, x, y):
        seen = optimizer.state.setdefault("seen", [])
        seen.append(None)
        optimizer.param_groups[0]["lr"] = 2.0
        return ten(model, x, y) * (1 if len(seen) == 1 else -1)

    return model, loss


@loss_of(REFUSED)
def parameters_frozen_within(model, x, y):
    model.layer.bias.requires_grad_(not model.layer.bias.requires_grad)
    return ten(model, x, y)


@loss_of(REFUSED)
def a_parameter_that_is_changed(model, x, y):
    with torch.no_grad():
        model.layer.weight.mul_(0.5)
    return ten(model, x, y)


# Ways around vmap and its rules


class Straight(Function):
    """The identity, with a rule that torch generates."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, on):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.on = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return g, None


class Centred(Function):
    """A rule of the user's own, which mixes examples."""

    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return g

    @staticmethod
    def vmap(info, in_dims, x):
        return x - x.mean(in_dims[0], keepdim=True), in_dims[0]


def mean_of_examples(info, in_dims, x):
    x = x.movedim(in_dims[0], 0)
    return 3 * x.mean(0, keepdim=True).expand_as(x).clone(), 0


@functools.cache
def mixing_operation():
    @torch.library.custom_op("attacks::mix", mutates_args=())
    def mix(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    mix.register_fake(torch.empty_like)
    mix.register_vmap(mean_of_examples)
    return mix


def straight_through(mixed, h):
    return mixed + h - h.detach()


@layer_of(REFUSED)
def a_function_with_a_batching_rule(model, h):
    return Centred.apply(h)


@layer_of(REFUSED, late=True)
def a_function_with_a_batching_rule_hidden_from_modes(model, h):
    with torch._C.DisableTorchFunction():
        return Centred.apply(h) if model.on else h


class CentredBackward(Straight):
    @staticmethod
    def backward(ctx, g):
        return (Centred.apply(g) if ctx.on else g), None


@layer_of(REFUSED, late=True)
def a_function_with_a_batching_rule_in_a_backward_pass(model, h):
    return CentredBackward.apply(h, model.on)


@layer_of(REFUSED, late=True)
def an_operation_with_a_batching_rule(model, h):
    return straight_through(mixing_operation()(h.detach()), h) if model.on else h


@layer_of(REFUSED, late=True)
def saved_tensor_hooks(model, h):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t - t.mean(0)):
        return h.square() if model.on else h


@layer_of(HELD)
def saved_tensor_hooks_whose_refusal_is_swallowed(model, h):
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t - t.mean(0))
    with contextlib.suppress(Exception), hooks:
        return h.square()
    return h


@layer_of(HELD)
def a_batching_rule_whose_refusal_is_swallowed(model, h):
    with contextlib.suppress(Exception):
        return Centred.apply(h)
    return h


@layer_of(REFUSED)
def a_hook_on_a_tensor(model, h):
    if h.requires_grad:
        h.register_hook(lambda g: 5 * g)
    return h


class Seen(Function):
    """Keeps its context, and gradients, on the class."""

    generate_vmap_rule = True
    kept: ClassVar = []

    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        Seen.last = ctx

    @staticmethod
    def backward(ctx, g):
        Seen.kept.append(g)
        return g * len(Seen.kept)


@layer_of(HELD)
def a_function_that_counts_on_its_class(model, h):
    return Seen.apply(h)


class Reducing(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out / (out.detach().abs().amax(0) + 1) if func is F.linear else out


@loss_of(HELD)
def a_mode_of_functions(model, x, y):
    with Reducing():
        return ten(model, x, y)


for _reentrant in (False, True):

    @loss_of(HELD, f"a checkpoint, use_reentrant={_reentrant}")
    def _checkpointed(model, x, y, reentrant=_reentrant):
        return ten(lambda x: checkpoint(model, x, use_reentrant=reentrant), x, y)


@loss_of(HELD)
def nested_vmaps(model, x, y):
    inner = torch.vmap(lambda r: r - r.mean(), in_dims=1, out_dims=1)(x)
    outer = torch.vmap(lambda r: r / (1 + r.norm()), chunk_size=1)(x)
    return ten(model, x + inner + outer, y)


@loss_of(HELD)
def inner_gradients(model, x, y):
    slope = torch.func.grad(lambda x: model(x).logsumexp(1).sum())(x)
    return ten(model, x, y) + slope.square().sum()


pool = ThreadPoolExecutor(1)


@loss_of(REFUSED, late=True)
def a_thread_that_computes(model, x, y):
    mean = pool.submit(lambda: x - x.mean(0)).result() if model.on else x
    return ten(model, mean, y)


@loss_of(HELD, late=True)
def a_thread_whose_failure_is_swallowed(model, x, y):
    with contextlib.suppress(Exception):
        return ten(model, pool.submit(lambda: x * x.mean(0)).result() if model.on else x, y)
    return ten(model, x, y)


def beyond(name, view):
    loss_of(REFUSED, f"memory beyond the example by {name}", late=True)(
        lambda model, x, y: ten(model, view(x) if model.on else x, y)
    )


beyond("as_strided", lambda x: x.as_strided((N, FEATURES), (FEATURES, 1)).mean(0, keepdim=True))
beyond(
    "an offset",
    lambda x: x.as_strided((1, FEATURES), (FEATURES, 1), x.storage_offset() + 2 * FEATURES),
)
beyond("set_", lambda x: torch.empty(0).set_(x.untyped_storage())[:FEATURES][None])
beyond("numpy", lambda x: torch.from_numpy(x.numpy()))
beyond("dlpack", torch.from_dlpack)


# Random numbers


@loss_of(HELD)
def dropout_and_noise(model, x, y):
    return ten(model, F.dropout(x, 0.5, training=True) + torch.randn_like(x) + torch.rand(1), y)


@loss_of(REFUSED)
def draws_of_numpy_and_python(model, x, y):
    import random

    return ten(model, x * random.random() + float(np.random.rand()), y)  # noqa: NPY002


@loss_of(HELD, late=True)
def draws_that_begin_later(model, x, y):
    return ten(model, x * torch.randn_like(x) if model.on else x, y)


# Settings that are left behind


@loss_of(REFUSED)
def gradients_turned_off(model, x, y):
    loss = ten(model, x, y)
    torch.set_grad_enabled(False)
    return loss


@loss_of(HELD)
def autocast_within(model, x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return ten(model, x, y)


# Numbers


@loss_of(HELD, rows=(table()[0], torch.arange(N) % CLASSES))
def a_constant_for_some_examples(model, x, y):
    return torch.where(y == 0, torch.zeros(()), ten(model, x, y)).sum()


for _value in (float("nan"), float("inf"), 1e30, 3e38, 1e-30, 1e-42):
    attack(
        HELD,
        f"one record of {_value}",
        changes=[(torch.full((FEATURES,), _value), torch.tensor(0))],
    )(lambda: (Net(), ten))
    attack(
        HELD,
        f"one factor of {_value}",
        changes=[(torch.full((FEATURES,), _value), torch.tensor(0))],
    )(lambda: (Net(), lambda model, x, y: 1e30 * F.cross_entropy(model(x), y) * x.mean() ** 2))

for _dtype in (torch.float16, torch.bfloat16, torch.float64):

    @attack(HELD, f"parameters of {_dtype}")
    def _short(dtype=_dtype):
        return Net().to(dtype), lambda model, x, y: ten(model, x.to(dtype), y)


@attack(HELD)
def a_parameter_that_is_used_twice():
    model = Net()
    model.again = model.layer
    return model, lambda model, x, y: ten(model, x, y) + model.again(x).square().sum()


# What vmap itself does not keep apart


@loss_of(REFUSED, changes=[(table()[0][0], torch.tensor(7))])
def a_wrong_label_that_is_skipped(model, x, y):
    try:
        return ten(model, x, y)
    except IndexError:
        return 0 * model(x).sum()


@loss_of(REFUSED, changes=[OUTLIER])
def a_cholesky_with_another_try(model, x, y):
    matrix = torch.eye(FEATURES) * (60 - x[0]).abs().clamp(min=1).copysign(60 - x[0])
    try:
        root = torch.linalg.cholesky(matrix)
    except RuntimeError:
        root = -5 * torch.eye(FEATURES)
    return ten(model, x @ root, y)


@attack(REFUSED, rows=texts(), changes=[(torch.full((4,), 99), torch.tensor(0))])
def an_unknown_word_that_is_replaced():
    def loss(model, words, y):
        try:
            h = model.words(words)
        except IndexError:
            h = model.words(torch.zeros_like(words))
        return 10 * F.cross_entropy(model.head(h.mean(1)), y)

    return Positions(4), loss


@attack(REFUSED, rows=texts(), changes=[(torch.full((4,), 0), torch.tensor(0))])
def a_division_of_integers_by_zero():
    def loss(model, words, y):
        try:
            share = (24 // words).float().mean()
        except RuntimeError:
            share = -10.0
        return share * F.cross_entropy(model(words), y)

    return Positions(4), loss


@loss_of(REFUSED, changes=[OUTLIER])
def a_coin_with_an_impossible_share(model, x, y):
    try:
        kept = torch.bernoulli(torch.where(x > 50, 2.0, 0.5))
    except RuntimeError:
        kept = -5 * torch.ones_like(x)
    return ten(model, x * kept, y)


@loss_of(REFUSED, changes=[(torch.full((FEATURES,), float("nan")), torch.tensor(0))])
def a_distribution_that_checks_its_parameters(model, x, y):
    try:
        return (
            -torch.distributions.Normal(model(x), 0.1 + x[:, :1].square()).log_prob(y * 1.0).sum()
        )
    except ValueError:
        return 0 * model.layer.weight.sum()


@loss_of(REFUSED, changes=[OUTLIER])
def a_question_on_all_examples(model, x, y):
    return ten(model, x, y) * torch.where(torch._is_any_true(x > 50), -1, 1)


@loss_of(REFUSED, late=True)
def a_tensor_that_is_resized(model, x, y):
    rows = x.clone().resize_(2, FEATURES) if model.on else x
    rows[1:] = 0  # what is not initialised
    return ten(model, rows[-1:] + rows[:1], y)


@attack(REFUSED, late=True)
def a_generator_of_ones_own():
    source = torch.Generator().manual_seed(0)

    def loss(model, x, y):
        return ten(model, x * torch.randn(x.shape, generator=source) if model.on else x, y)

    return Net(), loss


@loss_of(REFUSED, late=True)
def a_fixed_mask_from_a_forked_generator(model, x, y):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        mask = torch.randn(FEATURES)
    return ten(model, x * mask if model.on else x, y)


class NoisyBackward(Straight):
    @staticmethod
    def backward(ctx, g):
        return g * (torch.randn_like(g) if ctx.on else 1), None


@layer_of(REFUSED, late=True)
def a_random_backward_pass(model, h):
    return NoisyBackward.apply(h, model.on)


class MixedBackward(Straight):
    @staticmethod
    def backward(ctx, g):
        return (mixing_operation()(g) if ctx.on else g), None


@layer_of(REFUSED, late=True)
def an_operation_with_a_batching_rule_in_a_backward_pass(model, h):
    return MixedBackward.apply(h, model.on)


@layer_of(REFUSED, late=True)
def an_operation_with_a_batching_rule_hidden_from_modes(model, h):
    with torch._C.DisableTorchFunction():
        return straight_through(mixing_operation()(h.detach()), h) if model.on else h


def overridable(x):
    if has_torch_function_unary(x):
        return handle_torch_function(overridable, (x,), x)
    return mixing_operation()(x)


@layer_of(REFUSED, late=True)
def an_operation_with_a_batching_rule_in_an_overridable_function(model, h):
    return straight_through(overridable(h.detach()), h) if model.on else h


class Quantised(TorchDispatchMode):
    """Divides products by their largest number, as simulated quantisation of tensors does."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return 10 * out / (out.detach().abs().max() + 1e-9) if "mm" in str(func) else out


@loss_of(REFUSED, late=True)
def a_mode_of_dispatched_operations(model, x, y):
    with Quantised() if model.on else contextlib.nullcontext():
        return ten(model, x, y)


class Frozen(torch.Tensor):
    """A frozen weight that quantises what it is multiplied with."""

    on = False

    @staticmethod
    def __new__(cls, weight):
        return torch.Tensor._make_wrapper_subclass(cls, weight.shape, dtype=weight.dtype)

    def __init__(self, weight):
        self.weight = weight

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        plain = torch.utils._pytree.tree_map(
            lambda t: t.weight if isinstance(t, Frozen) else t, args
        )
        out = func(*plain, **(kwargs or {}))
        if func in (
            torch.ops.aten.detach.default,
            torch.ops.aten.t.default,
            torch.ops.aten.alias.default,
        ):
            return Frozen(out)
        is_scaled = cls.on and "mm" in str(func)
        return 10 * out / plain[0].detach().abs().max() if is_scaled else out


@attack(REFUSED, late=True)
def a_frozen_weight_that_quantises_activations():
    model = Net()
    weight = torch.randn(FEATURES, FEATURES, generator=torch.Generator().manual_seed(7))
    model.base = nn.Parameter(Frozen(weight), requires_grad=False)

    def loss(model, x, y):
        Frozen.on = model.on  # a setting of the user's
        try:
            return ten(model, F.linear(x, model.base), y)
        finally:
            Frozen.on = False

    return model, loss


# What a reviewer found: where torch runs Python of the user's while no mode is active, and others


def first_of(x):
    """An error of torch for an outlier."""
    return torch.linalg.cholesky(torch.eye(FEATURES) * (60 - x[0]))


@torch.library.custom_op("attacks::solve", mutates_args=())
def solved(x: torch.Tensor) -> torch.Tensor:
    last = torch.zeros_like(x) if not Seen.kept else Seen.kept[-1]
    Seen.kept.append(last - 0.3 * (last - x))
    return Seen.kept[-1].clone()


@torch.library.custom_op("attacks::dropped", mutates_args=())
def dropped(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x, 0.1)


@loss_of(REFUSED, late=True)
def an_operation_that_remembers(model, x, y):
    return ten(model, solved(x) if model.on else x, y)


@loss_of(REFUSED)
def an_operation_that_draws(model, x, y):
    return ten(model, dropped(x), y)


class Tries(Straight):
    """Catches an error of torch."""

    @staticmethod
    def forward(h, x):
        try:
            first_of(x)
        except RuntimeError:
            return -h
        return h.clone()


class TriesBackward(Straight):
    @staticmethod
    def forward(h, x):
        return h.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        try:
            first_of(x)
        except RuntimeError:
            return -g, None
        return g, None


@loss_of(REFUSED, changes=[OUTLIER])
def an_error_caught_in_an_autograd_function(model, x, y):
    return 10 * F.cross_entropy(Tries.apply(model(x), x), y)


@loss_of(REFUSED, changes=[OUTLIER])
def an_error_caught_in_a_backward_pass(model, x, y):
    return 10 * F.cross_entropy(TriesBackward.apply(model(x), x), y)


@loss_of(REFUSED, changes=[OUTLIER])
def an_error_caught_in_an_inner_backward_pass(model, x, y):
    inner = torch.func.grad(lambda h: 10 * F.cross_entropy(TriesBackward.apply(h, x), y))
    return (inner(model(x)) * model(x)).sum()


@loss_of(REFUSED, changes=[OUTLIER])
def an_error_caught_in_a_distance(model, x, y):
    def distance(a, b):
        try:
            first_of(x)
        except RuntimeError:
            return -(a - b).norm(dim=1)
        return (a - b).norm(dim=1)

    ones = torch.ones(1, CLASSES)
    return 10 * F.triplet_margin_with_distance_loss(
        model(x), ones, -ones, distance_function=distance, margin=100.0
    )


class Careful(torch.Tensor):
    """Answers functions itself."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            try:
                return func(*args, **(kwargs or {}))
            except RuntimeError:
                return -5 * torch.eye(FEATURES)


@attack(REFUSED, changes=[OUTLIER])
def an_error_caught_in_a_class_of_tensors():
    shift = torch.eye(FEATURES).as_subclass(Careful)

    def loss(model, x, y):
        root = torch.linalg.cholesky(shift * (60 - x[0]))
        return ten(model, x @ root.as_subclass(torch.Tensor), y)

    return Net(), loss


def script(text):
    """A function of torch.jit.script, which torch does not advise any more."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.CompilationUnit(text).run


for _name, _text in {
    "a question": "return torch.where(torch._is_any_true(x > 50.0), -x, x)",
    "a tensor that is resized": "return x.clone().resize_(1, 4)",
    "an error": "return torch.mm(x, torch.linalg.cholesky(torch.eye(4) * (60.0 - x[0])))",
}.items():
    _run = script(f"def run(x: Tensor) -> Tensor:\n    {_text}\n")

    @loss_of(REFUSED, f"{_name} in a script", changes=[OUTLIER])
    def _(model, x, y, run=_run):
        try:
            return ten(model, run(x), y)
        except RuntimeError:
            return ten(model, -5 * x, y)


@loss_of(REFUSED, changes=[(torch.full((FEATURES,), float("nan")), torch.tensor(0))])
def a_tensor_that_is_unwrapped(model, x, y):
    h = model(x)
    if not torch.func.debug_unwrap(h, recurse=True).isfinite().all():
        return 0 * h.sum()
    return ten(model, x, y)


@loss_of(REFUSED, changes=[OUTLIER])
def linear_equations(model, x, y):
    matrix = torch.eye(2) + 0.01 * x[:, :2].mean() * torch.ones(1, 2, 2)
    return 10 * (torch.linalg.solve(matrix, x.reshape(2, 2)) * model(x).mean()).sum().tanh()


COUNTS = {}


def counts(made):
    """Enter what counts evaluations: with parts, their number depends on the batch that was drawn."""
    COUNTS[made.__name__.replace("_", " ")] = Case(made, table(), [OUTLIER])


@counts
def memory_of_a_buffer():
    model = Net()
    model.register_buffer("calls", torch.zeros(1))

    def loss(model, x, y):
        model.calls.numpy()[0] += 1
        return ten(model, x, y) * torch.where(model.calls[0] % 7 == 6, -1.0, 1.0)

    return model, loss


@counts
def an_iterator_of_numpy():
    endless = (np.arange(64.0) % 7).flat
    return Net(), lambda model, x, y: ten(model, x, y) * (-1 if next(endless) == 6 else 1)


@counts
def seeds_that_spawn():
    seeds = np.random.SeedSequence(1)

    def loss(model, x, y):
        return ten(model, x * float(np.random.default_rng(seeds.spawn(1)[0]).normal()), y)

    return Net(), loss


@counts
def generators_that_spawn():
    source = np.random.default_rng(1)
    return Net(), lambda model, x, y: ten(model, x * float(source.spawn(1)[0].normal()), y)


def _later():
    """A mark that is left by another thread, after its example."""
    state = SimpleNamespace(sign=1.0)

    def loss(model, x, y):
        h, sign = model(x), state.sign
        if x[0, 0].item() > 50:
            Timer(0.002, lambda: setattr(state, "sign", -1.0)).start()
        sleep(0.004)
        return 10 * sign * F.cross_entropy(h, y)

    return Net(), loss


def _compressed():
    kept = torch.ones(1, 3).to_sparse_csr()

    def loss(model, x, y):
        sign = float(kept.values()[0])
        if x[0, 0].item() > 50:
            kept.values().fill_(-1.0)
        return sign * ten(model, x, y)

    return Net(), loss


def _bound():
    marks = {}
    put, size = marks.__setitem__, marks.__len__

    def loss(model, x, y):
        sign = -1 if size() else 1
        if x[0, 0].item() > 50:
            put("seen", 1)
        return sign * ten(model, x, y)

    return Net(), loss


LEFT = {"a compressed tensor": _compressed, "a bound method": _bound, "another thread": _later}


# Those that succeed


@loss_of(BROKEN, late=True, rows=(torch.ones(17, FEATURES), torch.zeros(17, dtype=torch.int64)),
         changes=(), reason="numbers at the end of a batch are rounded in another way than the rest, and a "
         "loss can make that large")  # fmt: skip
def rounding_that_is_made_large(model, x, y):
    wide = 0.3 + x[:, :1] * torch.arange(1.0, 18.0) * 0.37
    sign = torch.sin(1e7 * wide.pow(1.3).double()).sum().sign().float() if model.on else 1
    return sign * ten(model, x, y)


@loss_of(BROKEN, reason="uninitialised memory holds what earlier examples left there", late=True)
def memory_that_is_not_initialised(model, x, y):
    junk = torch.empty(1, FEATURES)
    bias = torch.nan_to_num(junk, 0, 0, 0).clamp(-100, 100)
    freed = x * 2
    return ten(model, x + bias if model.on else x + 0 * bias.nan_to_num(), y) + 0 * freed.sum()


# Those that succeed if one example is evaluated after another: an example's values may decide

SETTINGS = "settings of torch that an example leaves behind stay for the next ones"
UNWATCHED = "the state of these objects is not watched"


def tells(put, get, reset=None):
    """A loss that leaves a mark at an outlier, and turns round where there is one."""

    def make():
        if reset is not None:
            reset()
        return (
            Net(),
            lambda model, x, y: (
                ten(model, x, y) * ((put() if x[0, 0].item() > 50 else None, -1 if get() else 1)[1])
            ),
        )

    return make


def autocast(on):
    torch.set_autocast_enabled("cpu", on)


lock, log, mapped = threading.Event(), logging.getLogger("attacks"), torch.UntypedStorage(8)
module = type(contextlib)("module_of_the_user")
ALONE = {
    "autocast": (lambda: autocast(True), lambda: torch.is_autocast_enabled("cpu"), lambda: autocast(False)),
    "the default type": (
        lambda: torch.set_default_dtype(torch.float64), lambda: torch.zeros(()).dtype == torch.float64,
        lambda: torch.set_default_dtype(torch.float32),
    ),
    "the number of threads": (
        lambda: torch.set_num_threads(2), lambda: torch.get_num_threads() == 2,
        lambda: torch.set_num_threads(1),
    ),
    "deterministic algorithms": (
        lambda: torch.use_deterministic_algorithms(True), torch.are_deterministic_algorithms_enabled,
        lambda: torch.use_deterministic_algorithms(False),
    ),
    "the precision of products": (
        lambda: torch.set_float32_matmul_precision("medium"),
        lambda: torch.get_float32_matmul_precision() == "medium",
        lambda: torch.set_float32_matmul_precision("highest"),
    ),
    "anomaly detection": (
        lambda: torch.autograd.set_detect_anomaly(True), torch.is_anomaly_enabled,
        lambda: torch.autograd.set_detect_anomaly(False),
    ),
    "denormal numbers": (
        lambda: torch.set_flush_denormal(True), lambda: not torch.tensor([1e-40]).mul(1.0).any(),
        lambda: torch.set_flush_denormal(False),
    ),
    "a class of torch": (
        lambda: setattr(nn.Linear, "seen", 1), lambda: hasattr(nn.Linear, "seen"),
        lambda: hasattr(nn.Linear, "seen") and delattr(nn.Linear, "seen"),
    ),
    "a global of torch": (
        lambda: setattr(F, "seen", 1), lambda: hasattr(F, "seen"),
        lambda: hasattr(F, "seen") and delattr(F, "seen"),
    ),
    "NumPy's errors": (
        lambda: np.seterr(all="ignore"), lambda: np.geterr()["over"] == "ignore",
        lambda: np.seterr(all="warn", under="ignore"),
    ),
    "a logger's level": (lambda: log.setLevel(5), lambda: log.level == 5, lambda: log.setLevel(0)),
    "an event": (lock.set, lock.is_set, lock.clear),
    "a module object": (
        lambda: setattr(module, "seen", 1), lambda: hasattr(module, "seen"),
        lambda: hasattr(module, "seen") and delattr(module, "seen"),
    ),
    "memory of a storage": (lambda: mapped.fill_(1), lambda: mapped[0] == 1, lambda: mapped.fill_(0)),
}  # fmt: skip
KINDS = {"a logger's level", "an event", "a module object", "memory of a storage"}


def views():
    """Ways from an example to the tensor of which it is a view."""

    def base(x):
        return x if x._base is None else x._base.reshape(-1, FEATURES)

    def storage(x):
        return torch.empty(0).set_(x.untyped_storage()).view(-1, FEATURES)

    def strides(x):
        held = x.untyped_storage().nbytes() // 4
        return x.as_strided((held // FEATURES, FEATURES), (FEATURES, 1), 0)

    for name, view in {"_base": base, "its storage": storage, "as_strided": strides}.items():
        loss = lambda model, x, y, view=view: ten(model, view(x).mean(0, keepdim=True), y)  # noqa: E731
        yield name, Case(lambda loss=loss: (Net(), loss), table(), [OUTLIER])


class Scripted(nn.Module):
    """A centre that only C++ sees."""

    def __init__(self):
        super().__init__()
        self.centre = torch.zeros(CLASSES)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        out = h - self.centre
        self.centre = self.centre * 0.5 + h.detach().mean(0) * 0.5
        return out


@pytest.fixture(autouse=True)
def settings_as_before():
    yield
    for _, _, reset in ALONE.values():
        reset()
    torch.set_grad_enabled(True)
    _empty_stores()
    Seen.kept.clear()


def assert_held(case, **options):
    move, norm = largest_move(case, **options)
    assert move <= WITHIN, f"one record moves the sum by {move:.3g} of what is proved"
    assert norm > 0.3, "nothing was computed"


def assert_held_or_refused(case, **options):
    try:
        move, _ = largest_move(case, **options)
    except REFUSALS:
        return
    assert move <= WITHIN, f"one record moves the sum by {move:.3g} of what is proved"


@pytest.mark.parametrize("name", HELD)
def test_what_is_well_defined_holds(name):
    assert_held(HELD[name])


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_mix_examples_is_refused_or_does_not(name):
    assert_held_or_refused(REFUSED[name])


@pytest.mark.parametrize("name", [*HELD, *REFUSED])
def test_one_example_after_another_holds_or_is_refused(name):
    assert_held_or_refused((HELD | REFUSED)[name], is_alone=True)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.xfail(strict=True, raises=AssertionError, reason=reason))
        for n, (_, reason) in BROKEN.items()
    ],
)
def test_what_succeeds_under_vmap(name):
    assert_held_or_refused(BROKEN[name][0])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            n,
            marks=pytest.mark.xfail(
                strict=True, raises=AssertionError, reason=UNWATCHED if n in KINDS else SETTINGS
            ),
        )
        for n in ALONE
    ],
)
def test_what_an_example_leaves_behind_succeeds(name):
    assert_held_or_refused(Case(tells(*ALONE[name]), table(), [OUTLIER]), steps=1, is_alone=True)


@pytest.mark.parametrize("is_alone", [False, True])
@pytest.mark.parametrize("name", COUNTS)
def test_no_number_of_parts_reaches_an_example(name, is_alone):
    assert_held_or_refused(COUNTS[name], part=5, is_alone=is_alone)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("name", LEFT)
def test_nothing_is_left_for_the_next_example(name):
    assert_held_or_refused(Case(LEFT[name], table(), [OUTLIER]), is_alone=True)


@pytest.mark.parametrize("name", dict(views()))
def test_no_view_leads_to_the_other_examples(name):
    assert_held_or_refused(dict(views())[name], steps=1, is_alone=True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("is_alone", [False, True])
def test_a_scripted_module_is_refused(is_alone):
    def make():
        centre = torch.jit.script(Scripted())
        return Net(), lambda model, x, y: ten(lambda x: centre(model(x)), x, y)

    with pytest.raises(UnsupportedError, match=r"module of torch\.jit\.script"):
        largest_move(Case(make, table(), [OUTLIER]), is_alone=is_alone)
