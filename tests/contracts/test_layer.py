"""The law of every layer: the clipped sum is that of one example at a time. A layer joins by one line."""

from types import MethodType

import pytest
import torch
from oracles.clipped import as_double, naive_gradients, naive_sum, scales_of
from oracles.quick import quick_sum
from torch import nn
from torch.nn import functional as F

from antiphon.models import KAN, KANLayer, TableKAN
from antiphon_papers.common.two_layer_kan import TwoLayerKAN

ROWS = 5
USERS = ["a", "b", "a", "c", "b"]


def x(*shape):
    return torch.randn(ROWS, *shape)


def words(*shape, size=6):
    return torch.randint(0, size, (ROWS, *shape))


class Apply(nn.Module):
    """Runs a function of its modules."""

    def __init__(self, run, *modules):
        super().__init__()
        self.run, self.parts = run, nn.ModuleList(modules)

    def forward(self, *args, **kwargs):
        return self.run(*self.parts, *args, **kwargs)


class Scale(nn.Module):
    """A module with a parameter of its own."""

    def __init__(self, size, inner=None):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(size))
        self.inner = inner

    def forward(self, x):
        return torch.tanh(self.gain * (x if self.inner is None else self.inner(x)))


class Gain(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(size))

    def forward(self, x):
        return self.gain * x


class Standardised(nn.Conv2d):
    """A convolution with standardised weights: not what its class computes."""

    def _conv_forward(self, input, weight, bias):
        flat = weight - weight.mean((1, 2, 3), keepdim=True)
        return super()._conv_forward(input, flat, bias)


class Twice(nn.Linear):
    """A linear layer of another kind."""

    def forward(self, x):
        return 2 * super().forward(x) ** 2


class Aliased(nn.Module):
    """One parameter under two names, one of them in a child."""

    def __init__(self):
        super().__init__()
        self.child = nn.Linear(3, 3)
        self.own = nn.Parameter(torch.randn(3))
        self.also, self.bias = self.own, self.child.bias

    def forward(self, x):
        return self.child(x * self.own) * self.also + self.bias


def patched():
    layer = nn.Linear(3, 2)
    layer.forward = MethodType(lambda self, x: F.linear(x, self.weight).square(), layer)
    return layer


def loop(cell, last, x):
    h = c = torch.zeros(len(x), cell.hidden_size, dtype=x.dtype)
    for t in range(x.shape[1]):
        if isinstance(cell, nn.LSTMCell):
            h, c = cell(x[:, t], (h, c))
        else:
            h = cell(x[:, t], h)
    return last(h)


def tied():
    emb, out = nn.Embedding(6, 4), nn.Linear(4, 6, bias=False)
    out.weight = emb.weight
    return Apply(lambda e, mid, o, i: o(torch.tanh(mid(e(i)))), emb, nn.Linear(4, 4), out)


def frozen(model, *names):
    for name, parameter in model.named_parameters():
        if name in names:
            parameter.requires_grad_(False)
    return model


def attention(width=4, heads=2, **options):
    return nn.MultiheadAttention(width, heads, batch_first=True, **options)


def sequence_first():
    inner = nn.MultiheadAttention(4, 2)
    return Apply(lambda a, x: a(*[x.transpose(0, 1)] * 3)[0].transpose(0, 1), inner)


def self_attention(layer, **options):
    return Apply(lambda a, x, **kw: a(x, x, x, **options, **kw)[0], layer)


def checkpointed():
    from torch.utils.checkpoint import checkpoint

    block = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), Scale(4))
    run = lambda a, b, o, x: o(checkpoint(b, a(x), use_reentrant=False))  # noqa: E731
    return Apply(run, nn.Linear(3, 4), block, nn.Linear(4, 2))


CAUSAL = torch.triu(torch.ones(4, 4, dtype=torch.bool), 1)
PADDED = torch.tensor([[0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 1], [0, 1, 1, 1], [0, 0, 0, 1]]) > 0
E, L, C2, T = nn.Embedding, nn.Linear, nn.Conv2d, nn.Tanh
S = nn.Sequential

# name: (model, positional arguments, named arguments)
LAYERS = {
    "linear": (lambda: S(L(3, 4), T(), L(4, 2)), lambda: (x(3),), {}),
    "linear, no bias": (lambda: L(3, 4, bias=False), lambda: (x(3),), {}),
    "linear, sequence": (lambda: S(L(3, 4), T(), L(4, 2)), lambda: (x(7, 3),), {}),
    "linear, one long vector": (lambda: L(70_000, 2), lambda: (x(70_000) / 100,), {}),
    "linear, by Gram matrices": (lambda: S(L(40, 40), T(), L(40, 40)), lambda: (x(3, 40),), {}),
    "linear, four axes": (lambda: S(L(3, 4), T(), L(4, 2)), lambda: (x(2, 3, 3),), {}),
    "linear, empty sequence": (
        lambda: Apply(lambda a, b, p, q: b(p) + a(q).sum(1), L(3, 2), L(3, 2)),
        lambda: (x(3), x(0, 3)),
        {},
    ),
    "linear, one output": (lambda: S(L(3, 1), nn.Flatten(0)), lambda: (x(3),), {}),
    "conv1d": (lambda: nn.Conv1d(3, 4, 3), lambda: (x(3, 8),), {}),
    "conv1d, same": (
        lambda: nn.Conv1d(3, 4, 4, padding="same", dilation=2),
        lambda: (x(3, 9),),
        {},
    ),
    "conv2d": (lambda: S(C2(2, 3, 3), T(), C2(3, 2, 2)), lambda: (x(2, 6, 5),), {}),
    "conv2d, stride": (
        lambda: C2(2, 3, (3, 2), stride=(2, 3), padding=(1, 2)),
        lambda: (x(2, 7, 8),),
        {},
    ),
    "conv2d, stride that leaves a rest": (lambda: C2(2, 3, 3, stride=2), lambda: (x(2, 8, 6),), {}),
    "conv2d, valid": (lambda: C2(2, 3, 3, padding="valid", bias=False), lambda: (x(2, 6, 5),), {}),
    "conv2d, dilation": (
        lambda: C2(2, 3, 3, dilation=(2, 1), padding=1),
        lambda: (x(2, 7, 6),),
        {},
    ),
    "conv2d, groups": (lambda: C2(4, 6, 3, groups=2), lambda: (x(4, 5, 5),), {}),
    "conv2d, depthwise": (lambda: C2(3, 6, 3, groups=3, padding="same"), lambda: (x(3, 5, 6),), {}),
    "conv2d, reflect": (
        lambda: C2(2, 3, 3, padding=2, padding_mode="reflect"),
        lambda: (x(2, 5, 6),),
        {},
    ),
    "conv2d, replicate": (
        lambda: C2(2, 3, 4, padding="same", padding_mode="replicate"),
        lambda: (x(2, 5, 6),),
        {},
    ),
    "conv2d, circular": (
        lambda: C2(2, 3, 3, padding=1, padding_mode="circular"),
        lambda: (x(2, 5, 6),),
        {},
    ),
    "conv2d, channels last": (
        lambda: C2(2, 3, 3),
        lambda: (x(2, 5, 6).contiguous(memory_format=torch.channels_last),),
        {},
    ),
    "conv2d, expanded": (lambda: C2(2, 3, 3), lambda: (x(1, 5, 6).expand(ROWS, 2, 5, 6),), {}),
    "conv3d": (
        lambda: nn.Conv3d(2, 3, 2, stride=(1, 2, 1), padding=1),
        lambda: (x(2, 3, 4, 3),),
        {},
    ),
    "conv2d, standardised": (lambda: Standardised(2, 3, 3), lambda: (x(2, 5, 6),), {}),
    "conv transpose 1d": (lambda: nn.ConvTranspose1d(2, 3, 3, stride=2), lambda: (x(2, 5),), {}),
    "conv transpose 2d": (
        lambda: nn.ConvTranspose2d(2, 3, 3, output_padding=1, stride=2),
        lambda: (x(2, 4, 4),),
        {},
    ),
    "embedding": (lambda: S(E(6, 3), L(3, 2)), lambda: (words(9),), {}),
    "embedding, one word": (lambda: S(E(6, 3), L(3, 2)), lambda: (words(),), {}),
    "embedding, padding": (lambda: S(E(6, 3, padding_idx=2), L(3, 2)), lambda: (words(9),), {}),
    "embedding, negative padding": (lambda: E(6, 3, padding_idx=-2), lambda: (words(9),), {}),
    "embedding, two axes": (lambda: E(6, 3), lambda: (words(2, 4),), {}),
    "embedding bag": (lambda: nn.EmbeddingBag(6, 3, mode="sum"), lambda: (words(4),), {}),
    "layer norm": (lambda: S(L(3, 4), nn.LayerNorm(4)), lambda: (x(3),), {}),
    "layer norm, two axes": (lambda: nn.LayerNorm((3, 4)), lambda: (x(2, 3, 4),), {}),
    "layer norm, no bias": (lambda: nn.LayerNorm(4, bias=False), lambda: (x(3, 4),), {}),
    "layer norm, no affine": (
        lambda: S(L(3, 4), nn.LayerNorm(4, elementwise_affine=False)),
        lambda: (x(3),),
        {},
    ),
    "group norm": (lambda: S(C2(2, 4, 3), nn.GroupNorm(2, 4)), lambda: (x(2, 5, 5),), {}),
    "group norm, vectors": (lambda: nn.GroupNorm(2, 4), lambda: (x(4),), {}),
    "group norm, no bias": (lambda: nn.GroupNorm(2, 4, bias=False), lambda: (x(4, 3),), {}),
    "rms norm": (lambda: nn.RMSNorm(4), lambda: (x(3, 4),), {}),
    "rms norm, eps": (lambda: nn.RMSNorm((3, 4), eps=0.1), lambda: (x(2, 3, 4),), {}),
    "instance norm 1d": (lambda: nn.InstanceNorm1d(3, affine=True), lambda: (x(3, 6),), {}),
    "instance norm 2d": (lambda: nn.InstanceNorm2d(3, affine=True), lambda: (x(3, 4, 4),), {}),
    "instance norm 3d": (lambda: nn.InstanceNorm3d(3, affine=True), lambda: (x(3, 2, 2, 3),), {}),
    "instance norm, no bias": (
        lambda: nn.InstanceNorm1d(3, affine=True, bias=False),
        lambda: (x(3, 6),),
        {},
    ),
    "prelu": (lambda: S(L(3, 4), nn.PReLU()), lambda: (x(3),), {}),
    "prelu, channels": (lambda: nn.PReLU(3), lambda: (x(3, 4),), {}),
    "prelu, channels of vectors": (lambda: nn.PReLU(3), lambda: (x(3),), {}),
    "attention": (lambda: self_attention(attention()), lambda: (x(4, 4),), {}),
    "attention, no weights": (
        lambda: self_attention(attention(), need_weights=False),
        lambda: (x(4, 4),),
        {},
    ),
    "attention, no bias": (lambda: self_attention(attention(bias=False)), lambda: (x(4, 4),), {}),
    "attention, padding": (
        lambda: self_attention(attention()),
        lambda: (x(4, 4),),
        {"key_padding_mask": PADDED},
    ),
    "attention, causal": (
        lambda: self_attention(attention(), attn_mask=CAUSAL),
        lambda: (x(4, 4),),
        {},
    ),
    "attention, cross": (
        lambda: Apply(lambda a, q, k: a(q, k, k)[0], attention()),
        lambda: (x(3, 4), x(6, 4)),
        {},
    ),
    "attention, other widths": (
        lambda: Apply(lambda a, q, k, v: a(q, k, v)[0], attention(kdim=3, vdim=2)),
        lambda: (x(3, 4), x(6, 3), x(6, 2)),
        {},
    ),
    "attention, its weights": (
        lambda: Apply(lambda a, x: a(x, x, x, average_attn_weights=False), attention()),
        lambda: (x(3, 4),),
        {},
    ),
    "attention, sequence first": (sequence_first, lambda: (x(3, 4),), {}),
    "attention, frozen in": (
        lambda: frozen(
            self_attention(attention()), "parts.0.in_proj_weight", "parts.0.in_proj_bias"
        ),
        lambda: (x(3, 4),),
        {},
    ),
    "attention, frozen out": (
        lambda: frozen(
            self_attention(attention()), "parts.0.out_proj.weight", "parts.0.out_proj.bias"
        ),
        lambda: (x(3, 4),),
        {},
    ),
    "attention, frozen queries": (
        lambda: frozen(
            Apply(lambda a, q, k, v: a(q, k, v)[0], attention(kdim=3, vdim=2)),
            "parts.0.q_proj_weight",
            "parts.0.in_proj_bias",
        ),
        lambda: (x(3, 4), x(6, 3), x(6, 2)),
        {},
    ),
    "encoder layer": (
        lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
        lambda: (x(3, 4),),
        {},
    ),
    "encoder, norm first": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True, norm_first=True),
            2,
            enable_nested_tensor=False,
        ),
        lambda: (x(4, 4),),
        {"src_key_padding_mask": PADDED},
    ),
    "decoder layer": (
        lambda: nn.TransformerDecoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
        lambda: (x(4, 4), x(3, 4)),
        {"tgt_mask": CAUSAL},
    ),
    "kan layer": (lambda: KANLayer(3, 2, base=nn.SiLU(), bias=True), lambda: (x(3),), {}),
    "kan": (lambda: KAN([3, 4, 2]), lambda: (x(3),), {}),
    "table kan": (lambda: TableKAN([True, False, True], 3, 2), lambda: (x(3).tanh(),), {}),
    "deep table kan": (
        lambda: TableKAN([True, False, True], 3, 2, (4,)),
        lambda: (x(3).tanh(),),
        {},
    ),
    "two-layer kan": (lambda: TwoLayerKAN(3, 4), lambda: (x(3).tanh(),), {}),
    "own parameters": (lambda: S(L(3, 4), Scale(4)), lambda: (x(3),), {}),
    "own parameters around layers": (
        lambda: Scale(4, S(L(3, 4), T(), L(4, 4))),
        lambda: (x(3),),
        {},
    ),
    "own parameters around attention": (
        lambda: Scale(4, self_attention(attention())),
        lambda: (x(3, 4),),
        {},
    ),
    "encoder in evaluation": (
        lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval(),
        lambda: (x(3, 4),),
        {},
    ),
    "aliased parameters": (Aliased, lambda: (x(3),), {}),
    "another linear": (lambda: Twice(3, 2), lambda: (x(3),), {}),
    "patched linear": (patched, lambda: (x(3),), {}),
    "bilinear": (lambda: nn.Bilinear(3, 4, 2), lambda: (x(3), x(4)), {}),
    "lstm cell": (lambda: Apply(loop, nn.LSTMCell(3, 4), L(4, 2)), lambda: (x(4, 3),), {}),
    "gru cell": (lambda: Apply(loop, nn.GRUCell(3, 4), L(4, 2)), lambda: (x(4, 3),), {}),
    "rnn cell": (lambda: Apply(loop, nn.RNNCell(3, 4), L(4, 2)), lambda: (x(4, 3),), {}),
    "the same layer twice": (
        lambda: Apply(lambda a, x: a(torch.tanh(a(x))), L(3, 3)),
        lambda: (x(3),),
        {},
    ),
    "the same convolution twice": (
        lambda: Apply(lambda a, x: a(torch.tanh(a(x))), C2(2, 2, 3, padding=1)),
        lambda: (x(2, 4, 4),),
        {},
    ),
    "tied embedding": (tied, lambda: (words(4),), {}),
    "frozen weight": (
        lambda: frozen(S(L(3, 4), T(), L(4, 2)), "0.weight", "2.bias"),
        lambda: (x(3),),
        {},
    ),
    "frozen layer": (
        lambda: frozen(S(L(3, 4), T(), L(4, 2)), "0.weight", "0.bias"),
        lambda: (x(3),),
        {},
    ),
    "unused layer": (lambda: Apply(lambda a, b, x: a(x), L(3, 2), L(3, 2)), lambda: (x(3),), {}),
    "inplace relu": (
        lambda: S(L(3, 4), nn.ReLU(inplace=True), L(4, 4), nn.LayerNorm(4), nn.ReLU(True)),
        lambda: (x(3),),
        {},
    ),
    "inplace after own parameters": (
        lambda: S(Gain(3), nn.ReLU(inplace=True), L(3, 2)),
        lambda: (x(3),),
        {},
    ),
    "two outputs": (
        lambda: Apply(lambda a, b, x: (a(x), b(x)), L(3, 2), L(3, 4)),
        lambda: (x(3),),
        {},
    ),
    "a dictionary": (
        lambda: Apply(lambda a, b, x: {"one": a(x), "two": [b(a(x)), 3]}, L(3, 2), L(2, 4)),
        lambda: (x(3),),
        {},
    ),
    "named input": (
        lambda: Apply(lambda a, *, data: a(input=data), L(3, 2)),
        lambda: (),
        {"data": x(3)},
    ),
    "input with a gradient": (
        lambda: S(L(3, 4), T(), L(4, 2)),
        lambda: (x(3).requires_grad_(),),
        {},
    ),
    "checkpointed": (checkpointed, lambda: (x(3),), {}),
}


def made(name):
    torch.manual_seed(0)
    build, inputs, kwargs = LAYERS[name]
    return build(), inputs(), kwargs


@pytest.fixture(autouse=True)
def quiet(recwarn):
    """The fallback announces itself."""
    yield
    assert all(
        w.category is UserWarning
        and ("torch.func" in str(w.message) or "per example" in str(w.message))
        for w in recwarn
    )


def assert_equal_sums(quick, naive, tol=1e-5):
    assert quick.keys() == naive.keys()
    for name, expected in naive.items():
        size = max(1.0, float(expected.abs().max()))
        torch.testing.assert_close(quick[name].double(), expected, rtol=0, atol=tol * size)


@pytest.mark.filterwarnings("default::UserWarning")
@pytest.mark.parametrize("name", LAYERS)
def test_clipped_sum_equals_one_example_at_a_time(name):
    model, args, kwargs = made(name)
    truth = naive_gradients(model, args, kwargs, ROWS, scales=scales_of(ROWS))
    for rule in ("flat", "automatic", "per-layer", "adaptive"):
        naive = naive_sum(truth, "flat" if rule == "adaptive" else rule)
        assert_equal_sums(quick_sum(model, args, kwargs, ROWS, rule), naive)
    by_user = quick_sum(model, args, kwargs, ROWS, users=USERS)
    assert_equal_sums(by_user, naive_sum(truth, users=USERS))


@pytest.mark.filterwarnings("default::UserWarning")
@pytest.mark.parametrize("name", LAYERS)
def test_clipped_sum_in_float64_is_exact(name):
    model, args, kwargs = made(name)
    model, args, kwargs = model.double(), as_double(args), as_double(kwargs)
    truth = naive_gradients(model, args, kwargs, ROWS)
    quick = quick_sum(model, args, kwargs, ROWS, scales=scales_of(ROWS, torch.float64))
    assert_equal_sums(quick, naive_sum(truth))
