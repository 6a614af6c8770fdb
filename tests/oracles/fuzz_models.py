"""Random models and losses such as a hostile reviewer would write, each from a seed.

A model is a chain of pieces on (rows, length, width): layers, reshapes that merge or split rows and length,
transposes, statistics over the rows, masks, state. Sizes are drawn so that axes often coincide with the
batch. All of it is plain batch code; much of it would mix the examples of a plain batch.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from oracles.moves import Case
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

LINES, CLASSES = 11, 3


class Piece(nn.Module):
    """A named function of (rows, length, width) with layers of its own."""

    def __init__(self, name: str, function: Callable[..., Tensor], **layers: Any) -> None:
        super().__init__()
        self.name, self.function = name, function
        for key, layer in layers.items():
            if isinstance(layer, Tensor) and not isinstance(layer, nn.Parameter):
                self.register_buffer(key, layer)
            else:
                setattr(self, key, layer)

    def forward(self, h: Tensor) -> Tensor:
        """The function's value."""
        return self.function(self, h)


@dataclass
class Sizes:
    """What a model's layers are made for."""

    rows: int
    length: int
    width: int


PIECES: dict[str, Callable[[Sizes], Piece]] = {}


def piece(make: Callable[[Sizes], Any]) -> Callable[[Sizes], Any]:
    """Enter a piece: from sizes to a function and its layers."""

    def made(sizes: Sizes) -> Piece:
        function, layers = make(sizes)
        return Piece(make.__name__, function, **layers)

    PIECES[make.__name__] = made
    return make


def scale() -> nn.Parameter:
    """Zero, so that the first batch shows nothing."""
    return nn.Parameter(torch.zeros(()))


@piece
def linear(s):
    return lambda m, h: torch.tanh(m.map(h)), {"map": nn.Linear(s.width, s.width)}


@piece
def residual(s):
    last = nn.Linear(s.width, s.width)
    nn.init.zeros_(last.weight)
    return lambda m, h: h + m.last(F.gelu(m.map(h))), {
        "map": nn.Linear(s.width, s.width),
        "last": last,
    }


@piece
def shared_twice(s):
    return lambda m, h: m.map(torch.relu(m.map(h))) @ m.map.weight, {
        "map": nn.Linear(s.width, s.width)
    }


@piece
def norm(s):
    return lambda m, h: m.norm(h), {"norm": nn.LayerNorm(s.width)}


@piece
def group_norm(s):
    return lambda m, h: m.norm(h.mT).mT, {"norm": nn.GroupNorm(1, s.width)}


@piece
def frozen_batch_norm(s):
    layer = nn.BatchNorm1d(s.width).eval()
    layer.train = lambda mode=True: layer
    return lambda m, h: m.norm(h.mT).mT, {"norm": layer}


@piece
def batch_norm_over_rows(s):
    def function(m, h):
        return h + m.scale * F.batch_norm(h.mT, None, None, training=True).mT

    return function, {"scale": scale()}


@piece
def positions(s):
    return lambda m, h: h + m.table(torch.arange(h.shape[1])), {
        "table": nn.Embedding(s.length, s.width)
    }


@piece
def bias_per_place(s):
    return lambda m, h: h + m.bias, {"bias": nn.Parameter(torch.randn(s.length, s.width))}


@piece
def prototypes(s):
    constant = torch.randn(s.rows, s.width)
    return lambda m, h: h + torch.softmax(h @ m.map(m.known).mT, -1) @ m.known, {
        "known": constant, "map": nn.Linear(s.width, s.width),
    }  # fmt: skip


@piece
def merged_rows(s):
    def function(m, h):
        return m.map(h.reshape(-1, h.shape[-1])).view_as(h)

    return function, {"map": nn.Linear(s.width, s.width)}


@piece
def merged_and_split_wrongly(s):
    """Length before rows: a plain batch would be shuffled."""

    def function(m, h):
        return m.map(h.transpose(0, 1).reshape(-1, h.shape[-1])).reshape(h.shape)

    return function, {"map": nn.Linear(s.width, s.width)}


@piece
def transposed(s):
    """Time first, as recurrent layers take it; nothing else tells the axes apart."""

    def function(m, h):
        return (h.transpose(0, 1).cumsum(0) / h.shape[1]).transpose(0, 1) + m.scale * h

    return function, {"scale": scale()}


@piece
def along_rows(s):
    return lambda m, h: h + m.scale * h.cumsum(0) + 0.1 * h.softmax(0), {"scale": scale()}


@piece
def mean_of_rows(s):
    return lambda m, h: h + m.last((h - h.mean(0)) * h.std(0, correction=0)), {
        "last": nn.Linear(s.width, s.width, bias=False)
    }


@piece
def detached_statistics(s):
    return lambda m, h: h / (h.detach().abs().mean() + 0.1) + m.scale * h.detach().amax(0), {
        "scale": scale()
    }


@piece
def rolled_rows(s):
    return lambda m, h: h + m.map(h.roll(1, 0)).flip(0), {"map": nn.Linear(s.width, s.width)}


@piece
def attention(s):
    def function(m, h):
        return h + m.attention(h, h, h, need_weights=False)[0]

    return function, {"attention": nn.MultiheadAttention(s.width, 2, batch_first=True)}


@piece
def attention_over_rows(s):
    """Without batch_first: a plain batch would attend to the others."""

    def function(m, h):
        return h + m.attention(h, h, h, need_weights=False)[0]

    return function, {"attention": nn.MultiheadAttention(s.width, 2)}


@piece
def fused_attention(s):
    def function(m, h):
        q, k, v = m.map(h).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=h.shape[1] % 2 == 1)
        return h + out.transpose(1, 2).flatten(2)

    return function, {"map": nn.Linear(s.width, 3 * s.width)}


@piece
def windows(s):
    """Places are cut into windows that join the axis of the rows, as in Swin."""

    def function(m, h):
        rows, length, width = h.shape
        padded = F.pad(h, (0, 0, 0, length % 2)).reshape(-1, 2, width)
        return h + m.map(padded).reshape(rows, -1, width)[:, :length]

    return function, {"map": nn.Linear(s.width, s.width)}


@piece
def experts(s):
    def function(m, h):
        flat = h.reshape(-1, h.shape[-1])
        weights = m.gate(flat).softmax(-1)
        out = torch.stack([m.one(flat), m.two(flat)], -1)
        return h + (out * weights[:, None]).sum(-1).view_as(h)

    layers = {"one": nn.Linear(s.width, s.width), "two": nn.Linear(s.width, s.width)}
    return function, layers | {"gate": nn.Linear(s.width, 2)}


@piece
def convolution(s):
    return lambda m, h: h + m.map(h.mT).mT, {"map": nn.Conv1d(s.width, s.width, 3, padding=1)}


@piece
def convolution_over_rows(s):
    """Rows are taken for channels of one image."""

    def function(m, h):
        return h + m.map(h.unsqueeze(1)).squeeze(1)

    return function, {"map": nn.Conv2d(1, 1, 3, padding=1)}


@piece
def recurrent(s):
    return lambda m, h: m.net(h)[0], {"net": nn.GRU(s.width, s.width, batch_first=True)}


@piece
def recurrent_over_rows(s):
    return lambda m, h: h + m.net(h)[0], {"net": nn.LSTM(s.width, s.width)}


@piece
def dropout(s):
    return lambda m, h: F.dropout(h, 0.4, training=True) * (1 + torch.rand(1)), {}


@piece
def noise_of_one_shape(s):
    return (
        lambda m, h: h + 0.3 * torch.randn(s.length, s.width) + m.scale * torch.randn_like(h[0]),
        {"scale": scale()},
    )


@piece
def shuffled_rows(s):
    return lambda m, h: h + h[torch.randperm(len(h))], {}


@piece
def in_half_precision(s):
    def function(m, h):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return h + torch.tanh(m.map(h)).float()

    return function, {"map": nn.Linear(s.width, s.width)}


@piece
def checkpointed(s):
    def function(m, h):
        return checkpoint(lambda h: torch.tanh(m.map(h)), h, use_reentrant=False)

    return function, {"map": nn.Linear(s.width, s.width)}


@piece
def masked(s):
    def function(m, h):
        keep = (h.sum(-1, keepdim=True) > 0).float()
        return (m.map(h) * keep).sum(1, keepdim=True) / keep.sum(1, keepdim=True).clamp(min=1) + h

    return function, {"map": nn.Linear(s.width, s.width)}


@piece
def memory_in_a_list(s):
    def function(m, h):
        m.kept.append(h.detach())
        return h - m.kept[0]

    return function, {"kept": []}


@piece
def memory_in_an_attribute(s):
    def function(m, h):
        before = m.centre
        m.centre = 0.5 * h.detach().mean((0, 1)) + 0.5 * before
        return h - before

    return function, {"centre": torch.zeros(s.width)}


@piece
def memory_in_a_buffer(s):
    def function(m, h):
        out = h - m.centre
        m.centre.mul_(0.5).add_(h.detach().mean((0, 1)))
        return out

    return function, {"centre": torch.zeros(s.width)}


@piece
def a_call_counter(s):
    def function(m, h):
        m.calls += 1
        return h * (1 if m.calls % 2 else -1) + m.scale * h.mean(0)

    return function, {"calls": 0, "scale": scale()}


@piece
def a_parametrised_weight(s):
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(s.width, s.width))
    return lambda m, h: h + m.map(h), {"map": layer}


@piece
def a_functional_read(s):
    return lambda m, h: h + F.linear(h, m.map.weight.softmax(0), m.map.bias), {
        "map": nn.Linear(s.width, s.width)
    }


@piece
def values_decide(s):
    """Which vmap cannot follow."""
    return lambda m, h: m.map(h) if h.mean().item() > 0 else h - m.map(h).mean(0), {
        "map": nn.Linear(s.width, s.width)
    }


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": lambda h, y: F.cross_entropy(h, y),
    "sum": lambda h, y: F.cross_entropy(h, y, reduction="sum"),
    "class weights": lambda h, y: F.cross_entropy(h, y, weight=torch.tensor([1e-3, 1.0, 1e3])),
    "ignored": lambda h, y: F.cross_entropy(h, y, ignore_index=1) + 0.1 * h.square().mean(),
    "smoothed": lambda h, y: F.cross_entropy(h, y, label_smoothing=0.1),
    "over its mean": lambda h, y: (lambda a: (a / a.detach().mean()).mean())(
        F.cross_entropy(h, y, reduction="none")
    ),
    "softmax over rows": lambda h, y: (h.softmax(0) * F.one_hot(y, CLASSES)).sum() + h.logsumexp(1).sum(),
    "contrast": lambda h, y: (h @ h.mT).logsumexp(1).mean() - (h * h).sum(1).mean() + h[0, 0],
    "squares": lambda h, y: (h - F.one_hot(y, CLASSES)).square().mean(),
}  # fmt: skip


class Chain(nn.Module):
    """Words or numbers, pieces, and a head."""

    def __init__(self, names: list[str], sizes: Sizes, *, is_text: bool, is_tied: bool) -> None:
        super().__init__()
        self.first = (
            nn.Embedding(LINES, sizes.width) if is_text else nn.Linear(sizes.width, sizes.width)
        )
        self.pieces = nn.ModuleList(PIECES[name](sizes) for name in names)
        self.head = nn.Linear(sizes.width, CLASSES)
        self.is_tied = is_tied

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        h = self.first(x)
        for one in self.pieces:
            h = one(h)
        if self.is_tied:
            h = h + (h @ self.first.weight.mT).softmax(-1) @ self.first.weight
        return self.head(h.mean(1))


@dataclass
class Drawn:
    """A random model with its data and how its gradients are clipped."""

    case: Case
    names: list[str]
    loss: str
    rule: str
    part: int | None
    users: list[int] | None
    is_random: bool


_RANDOM = {"dropout", "noise_of_one_shape", "shuffled_rows"}


def draw(seed: int) -> Drawn:
    """The model of a seed."""
    choice = random.Random(seed)
    rows = choice.choice([3, 4, 6, 8])
    coincides = choice.random() < 0.6
    length = rows if coincides else choice.choice([1, 2, 5])
    width = rows if rows % 2 == 0 and choice.random() < 0.4 else choice.choice([4, 6])
    sizes, is_text = Sizes(rows, length, width), choice.random() < 0.4
    is_tied = choice.random() < 0.25
    names = choice.choices(list(PIECES), k=choice.randint(1, 4))
    loss_name = choice.choice(list(LOSSES))
    size = choice.choice([0.1, 10.0, 1e4])

    def make() -> tuple[nn.Module, Callable[..., Any]]:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = Chain(names, sizes, is_text=is_text, is_tied=is_tied)
        return model, lambda model, x, y: size * LOSSES[loss_name](model(x), y)

    generator = torch.Generator().manual_seed(seed)
    if is_text:
        x = torch.randint(0, LINES, (rows, length), generator=generator)
        outliers = [torch.full_like(x[0], LINES - 1), torch.zeros_like(x[0])]
    else:
        x = torch.randn(rows, length, width, generator=generator)
        outliers = [1e3 * x[0], -x[0], 0 * x[0]]
    y = torch.randint(0, CLASSES, (rows,), generator=generator)
    others = [(outlier, (y[0] + i) % CLASSES) for i, outlier in enumerate(outliers)]
    return Drawn(
        Case(make, (x, y), others),
        names,
        loss_name,
        choice.choice(["flat", "automatic", "per-layer", "adaptive"]),
        choice.choice([None, 1, 3]),
        [0, *sorted(choice.choices(range(2), k=rows - 2)), 2] if choice.random() < 0.3 else None,
        bool(_RANDOM & set(names)),
    )
