"""Gradients of single examples of every layer that has parameters, against a loop over the examples."""

import warnings

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad
from torch.nn import functional as F
from torch.nn.utils import parametrizations, rnn

from antiphon.training.gradients.batched import Batched
from antiphon.training.gradients.choice import choose
from antiphon.training.gradients.examples import Examples
from antiphon.training.gradients.units import Units

D, T, V = 6, 3, 7  # width, length and lines of tables; batches are as large as one of them, or not
KEY = bytes(32)


def square(out):
    """A number in which no two entries of the outputs weigh the same."""
    outs = out if isinstance(out, tuple | list) else [out]
    floats = [o for o in outs if o is not None]
    ramps = [torch.linspace(1, 2, o.numel(), dtype=o.dtype).view(o.shape) for o in floats]
    return sum((o * o * ramp).sum() for o, ramp in zip(floats, ramps, strict=True))


def plain(model, *x):
    return square(model(*x))


def drawn(*shape):
    return lambda rows: torch.randn(rows, *shape)


def numbers(*shape, below=V):
    return lambda rows: torch.randint(0, below, (rows, *shape))


def constant(tensor):
    return lambda rows: tensor.expand(rows, *tensor.shape)


CASES = {}
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")


def case(name, make, *inputs, loss=plain):
    """A model, inputs of each example with the axis of a batch of one, and a loss."""
    assert name not in CASES
    CASES[name] = make, inputs, loss


def variants(kind, make, options, *inputs, loss=plain):
    for name, named in options.items():
        case(f"{kind}, {name}", lambda named=named: make(**named), *inputs, loss=loss)


# -- linear maps and convolutions ----------------------------------------------------------------------

variants(
    "linear",
    lambda **o: nn.Linear(D, D, **o),
    {"bias": {}, "no bias": {"bias": False}},
    drawn(1, T, D),
)
case("linear, one vector", lambda: nn.Linear(D, 4), drawn(1, D))
case("linear, no batch axis", lambda: nn.Linear(D, 4), drawn(D))
case("linear, twice", lambda: Again(nn.Linear(D, D)), drawn(1, D))
case("linear, lazy", lambda: materialised(nn.LazyLinear(4), 1, D), drawn(1, D))
case("bilinear", lambda: nn.Bilinear(D, T, 4), drawn(1, D), drawn(1, T))
case("bilinear, no bias", lambda: nn.Bilinear(D, T, 4, bias=False), drawn(1, T, D), drawn(1, T, T))

GEOMETRIES = {
    "plain": {},
    "no bias": {"bias": False},
    "strided": {"stride": 2, "padding": 1},
    "dilated": {"dilation": 2, "padding": 2},
    "groups": {"groups": 2},
    "depthwise": {"groups": 4, "padding": 1},
}
PADDINGS = {
    "same": {"padding": "same"},
    "valid": {"padding": "valid"},
    "reflected": {"padding": 1, "padding_mode": "reflect"},
    "repeated": {"padding": 1, "padding_mode": "replicate"},
    "circular": {"padding": 1, "padding_mode": "circular"},
}
TRANSPOSED = GEOMETRIES | {"longer": {"stride": 2, "output_padding": 1}}
for dims, size in ((1, (7,)), (2, (6, 5)), (3, (4, 5, 3))):
    conv = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[dims]
    back = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}[dims]
    variants(
        f"convolution {dims}d",
        lambda conv=conv, **o: conv(4, 4, 3, **o),
        GEOMETRIES | PADDINGS,
        drawn(1, 4, *size),
    )
    variants(
        f"transposed convolution {dims}d",
        lambda back=back, **o: back(4, 4, 2, **o),
        TRANSPOSED,
        drawn(1, 4, *size),
    )
    case(f"convolution {dims}d, no batch axis", lambda c=conv: c(4, 3, 2), drawn(4, *size))
    case(f"convolution {dims}d, several images", lambda c=conv: c(4, 3, 2), drawn(T, 4, *size))
    case(
        f"convolution {dims}d, twice",
        lambda c=conv: Again(c(4, 4, 3, padding=1)),
        drawn(1, 4, *size),
    )
case("convolution, lazy", lambda: materialised(nn.LazyConv2d(3, 2), 1, 2, 4, 4), drawn(1, 2, 4, 4))

# -- tables --------------------------------------------------------------------------------------------

case("embedding", lambda: nn.Embedding(V, D), numbers(1, 2 * V))
case("embedding, padding", lambda: nn.Embedding(V, D, padding_idx=2), numbers(1, 2 * V))
case("embedding, padding from the end", lambda: nn.Embedding(V, D, padding_idx=-1), numbers(1, V))
case("embedding, one number", lambda: nn.Embedding(V, D), numbers(1))
case("embedding, twice", lambda: Twice(nn.Embedding(V, D)), numbers(1, T), numbers(1, V))
case("positions", lambda: Positions(), drawn(1, T, D))
case("embedding, by its functions", lambda: Parameters(w=(V, D)), numbers(1, T), loss=lambda m, x: (
    square(F.embedding(x, weight=m.w)) + square(m.w[x]) + square(torch.embedding(m.w, x))
    + square(m.w.index_select(0, x[0])) + square(F.one_hot(x, V).to(m.w.dtype) @ m.w)
))  # fmt: skip

BAGS = {
    f"{mode}{', padding' if padding else ''}": {"mode": mode, "padding_idx": padding}
    for mode in ("sum", "mean", "max")
    for padding in (None, 2)
}
OFFSETS = [
    [0, 3, 3, 5],
    [0, 0, 0, 6],
    [0, 1, 2, 8],
    [0, 4, 6, 7],
]  # of 8 entries; some bags are empty


def offsets(*last):
    """Different ones for each example."""
    found = torch.tensor([[*places, *last] for places in OFFSETS])
    return lambda rows: found[torch.arange(rows) % len(found)]


variants("bags", lambda **o: nn.EmbeddingBag(V, D, **o), BAGS, numbers(2, 5))
variants("bags with offsets", lambda **o: nn.EmbeddingBag(V, D, **o), BAGS, numbers(8), offsets())
variants(
    "bags with last offset",
    lambda **o: nn.EmbeddingBag(V, D, include_last_offset=True, **o),
    BAGS,
    numbers(8),
    offsets(8),
)
variants(
    "bags with equal offsets",
    lambda **o: nn.EmbeddingBag(V, D, **o),
    BAGS,
    numbers(8),
    loss=lambda m, x: square(m(x, torch.tensor([0, 2, 2]))),
)
case("bags with weights", lambda: nn.EmbeddingBag(V, D, mode="sum"), numbers(2, 5), drawn(2, 5),
     loss=lambda m, x, w: square(m(x, per_sample_weights=w)))  # fmt: skip
case("bags with weights and offsets", lambda: nn.EmbeddingBag(V, D, mode="sum", padding_idx=1),
     numbers(8), offsets(), drawn(8), loss=lambda m, x, o, w: square(m(x, o, w)))  # fmt: skip
case("bags with trained weights", lambda: Parameters(w=(V, D), s=(2, 5)), numbers(2, 5),
     loss=lambda m, x: square(F.embedding_bag(x, m.w, mode="sum", per_sample_weights=m.s)))  # fmt: skip
case("bags whose largest numbers are equal", lambda: Parameters(w=torch.ones(V, D)), numbers(2, 5),
     drawn(2, D),
     loss=lambda m, x, y: (F.embedding_bag(x, m.w, mode="max") * y).sum())  # fmt: skip
variants("bags without entries", lambda **o: nn.EmbeddingBag(V, D, **o), BAGS, numbers(0), numbers(4),
     loss=lambda m, x, y: square(m(x, torch.tensor([0, 0])) + m(y, torch.tensor([0, 2]))))  # fmt: skip

# -- norms ---------------------------------------------------------------------------------------------

case("layer norm", lambda: shaken(nn.LayerNorm(D)), drawn(1, T, D))
case(
    "layer norm, two axes, no bias",
    lambda: shaken(nn.LayerNorm((T, D), bias=False)),
    drawn(1, T, D),
)
case("RMS norm", lambda: shaken(nn.RMSNorm(D)), drawn(1, T, D))
case("group norm", lambda: shaken(nn.GroupNorm(2, 4)), drawn(1, 4, T, D))
for dims, norm in ((1, nn.InstanceNorm1d), (2, nn.InstanceNorm2d), (3, nn.InstanceNorm3d)):
    shape = (4, 5, 3, 2)[: dims + 1]
    case(f"instance norm {dims}d", lambda n=norm: shaken(n(4, affine=True)), drawn(1, *shape))
for dims, norm in ((1, nn.BatchNorm1d), (2, nn.BatchNorm2d), (3, nn.BatchNorm3d)):
    shape = (4, 5, 3, 2)[: dims + 1]
    case(f"frozen batch norm {dims}d", lambda n=norm: shaken(n(4)).eval(), drawn(1, *shape))
case("frozen batch norm of vectors", lambda: shaken(nn.BatchNorm1d(4)).eval(), drawn(1, 4))
case("PReLU", lambda: nn.PReLU(), drawn(1, 4, T))
case("PReLU by channel", lambda: shaken(nn.PReLU(4)), drawn(1, 4, T))

# -- recurrent networks --------------------------------------------------------------------------------

NETWORKS = {
    "LSTM": nn.LSTM,
    "GRU": nn.GRU,
    "RNN": nn.RNN,
    "ReLU RNN": lambda *args, **o: nn.RNN(*args, nonlinearity="relu", **o),
}
LAYERS = {
    "plain": {},
    "rows first": {"batch_first": True},
    "two ways": {"bidirectional": True, "num_layers": 2},
    "no bias": {"bias": False, "num_layers": 2},
}


def outputs(model, x):
    """Everything that a recurrent network returns."""
    out, state = model(x)
    return square([out, *(state if isinstance(state, tuple) else [state])])


def from_states(model, x, *state):
    out, _ = model(x, state if len(state) == 2 else state[0])
    return square(out)


def packed(model, x):
    """Two sequences of the example, of different lengths."""
    sequence = rnn.pack_padded_sequence(x.transpose(0, 1), torch.tensor([T, 2]))
    out, state = model(sequence)
    padded, _ = rnn.pad_packed_sequence(out)
    return square([padded, *(state if isinstance(state, tuple) else [state])])


for name, network in NETWORKS.items():
    make = lambda network=network, **o: network(4, 3, **o)  # noqa: E731
    variants(name, make, LAYERS, drawn(T, 1, 4), loss=outputs)
    case(f"{name}, packed", make, drawn(2, T, 4), loss=packed)
    case(f"{name}, no batch axis", make, drawn(T, 4), loss=outputs)
    states = [drawn(1, 1, 3)] * (2 if name == "LSTM" else 1)
    case(f"{name}, from a state", make, drawn(T, 1, 4), *states, loss=from_states)
case("LSTM, projected", lambda: nn.LSTM(4, 5, 2, proj_size=2, bidirectional=True), drawn(T, 1, 4),
     loss=outputs)  # fmt: skip
case("LSTM, projected, packed", lambda: nn.LSTM(4, 5, proj_size=2), drawn(2, T, 4), loss=packed)
case("LSTM cell", lambda: nn.LSTMCell(4, 3), drawn(1, 4), drawn(1, 3), drawn(1, 3),
     loss=lambda m, x, h, c: square(m(x, m(x, (h, c)))))  # fmt: skip
case("GRU cell", lambda: nn.GRUCell(4, 3), drawn(1, 4), loss=lambda m, x: square(m(x, m(x))))
case("RNN cell", lambda: nn.RNNCell(4, 3, bias=False), drawn(1, 4), drawn(1, 3))

# -- attention -----------------------------------------------------------------------------------------

ATTENTION = {
    "plain": {},
    "no bias": {"bias": False},
    "further keys": {"add_bias_kv": True, "add_zero_attn": True},
}
LATER = torch.ones(T, T, dtype=torch.bool).triu(1)


def attention(**options):
    return shaken(nn.MultiheadAttention(D, 2, batch_first=True, **options))


def hidden(rows):
    """Boolean masks that differ between examples, and never hide the first."""
    masks = torch.rand(rows, 1, T) < 0.4
    masks[..., 0] = False
    return masks


variants("self-attention", attention, ATTENTION, drawn(1, T, D),
         loss=lambda m, x: square(m(x, x, x)))  # fmt: skip
variants("attention", attention, ATTENTION, drawn(1, T, D), drawn(1, 5, D),
         loss=lambda m, x, y: square(m(x, y, y, need_weights=False)))  # fmt: skip
variants("attention with three sources", attention, ATTENTION, drawn(1, T, D), drawn(1, 5, D),
         drawn(1, 5, D), loss=lambda m, x, y, z: square(m(x, y, z)))  # fmt: skip
variants("attention of other widths", lambda **o: attention(kdim=4, vdim=5, **o), ATTENTION,
         drawn(1, T, D), drawn(1, 5, 4), drawn(1, 5, 5),
         loss=lambda m, x, y, z: square(m(x, y, z)))  # fmt: skip
case("self-attention, length first", lambda: nn.MultiheadAttention(D, 2), drawn(T, 1, D),
     loss=lambda m, x: square(m(x, x, x, average_attn_weights=False)))  # fmt: skip
case("self-attention, no batch axis", lambda: nn.MultiheadAttention(D, 2), drawn(T, D),
     loss=lambda m, x: square(m(x, x, x)))  # fmt: skip
case("self-attention, padded", attention, drawn(1, T, D), hidden,
     loss=lambda m, x, h: square(m(x, x, x, key_padding_mask=h, need_weights=False)))  # fmt: skip
case("self-attention, causal", attention, drawn(1, T, D), loss=lambda m, x: square(
    m(x, x, x, attn_mask=LATER, is_causal=True, need_weights=False)))  # fmt: skip
case("self-attention, masked", attention, drawn(1, T, D), drawn(T, T),
     loss=lambda m, x, mask: square(m(x, x, x, attn_mask=mask)))  # fmt: skip
case("self-attention, twice", lambda: nn.MultiheadAttention(D, 2, batch_first=True), drawn(1, T, D),
     loss=lambda m, x: square(m(x, m(x, x, x)[0], x)))  # fmt: skip
case("scaled products with a parameter", lambda: Parameters(q=(2, T, 4), mask=(T, 5)), drawn(2, 5, 4),
     loss=lambda m, x: square(F.scaled_dot_product_attention(m.q, x, x, m.mask)))  # fmt: skip

SIZES = {"dim_feedforward": 8, "dropout": 0.0, "batch_first": True}
ORDERS = {
    "norm last": {},
    "norm first": {"norm_first": True, "activation": "gelu"},
    "no bias": {"bias": False},
}
variants("encoder layer", lambda **o: nn.TransformerEncoderLayer(D, 2, **SIZES, **o), ORDERS,
         drawn(1, T, D), hidden,
         loss=lambda m, x, h: square(m(x, src_key_padding_mask=h)))  # fmt: skip
variants("decoder layer", lambda **o: nn.TransformerDecoderLayer(D, 2, **SIZES, **o), ORDERS,
         drawn(1, T, D), drawn(1, 5, D),
         loss=lambda m, x, y: square(m(x, y, LATER, tgt_is_causal=True)))  # fmt: skip
case("encoder", lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(D, 2, **SIZES), 2,
     norm=nn.LayerNorm(D), enable_nested_tensor=False), drawn(1, T, D))  # fmt: skip
case("decoder", lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(D, 2, **SIZES), 2),
     drawn(1, T, D), drawn(1, 5, D))  # fmt: skip
case("transformer", lambda: nn.Transformer(D, 2, 1, 1, **SIZES), drawn(1, 5, D), drawn(1, T, D),
     loss=lambda m, x, y: square(m(x, y, tgt_mask=LATER)))  # fmt: skip

# -- parametrisations, and parameters by themselves ----------------------------------------------------

case("weight norm", lambda: parametrizations.weight_norm(nn.Linear(D, 4)), drawn(1, T, D))
case("weight norm of a convolution", lambda: parametrizations.weight_norm(nn.Conv1d(4, 3, 2)),
     drawn(1, 4, T))  # fmt: skip
case("orthogonal", lambda: parametrizations.orthogonal(nn.Linear(D, 4), orthogonal_map="cayley"),
     drawn(1, T, D))  # fmt: skip
case("orthogonal, by an exponential", lambda: parametrizations.orthogonal(nn.Linear(4, 4),
     orthogonal_map="matrix_exp"), drawn(1, 4))  # fmt: skip
case("spectral norm, frozen", lambda: parametrizations.spectral_norm(nn.Linear(D, 4)).eval(),
     drawn(1, D))  # fmt: skip
case("layer scale", lambda: Parameters(s=(D,)), drawn(1, T, D), loss=lambda m, x: square(m.s * x))
case("position table", lambda: Parameters(p=(1, T, D)), drawn(1, T, D),
     loss=lambda m, x: square(x + m.p))  # fmt: skip
case("class token", lambda: Parameters(c=(1, 1, D)), drawn(1, T, D),
     loss=lambda m, x: square(torch.cat([m.c.expand(len(x), -1, -1), x], 1)))  # fmt: skip
case("prototypes", lambda: Parameters(p=(4, D)), drawn(1, D), loss=lambda m, x: square(
    torch.cdist(x, m.p) + F.cosine_similarity(x[:, None], m.p, dim=-1)))  # fmt: skip
case("temperature", lambda: Parameters(t=()), drawn(1, D), loss=lambda m, x: square(x * m.t.exp()))
case("in place", lambda: Parameters(s=(D,)), drawn(1, D),
     loss=lambda m, x: square((2 * x).mul_(m.s).add_(m.s)))  # fmt: skip


def products(m, x):
    """A matrix in all forms of the product; ``s`` is square."""
    x = x @ m.s + torch.matmul(x, m.s) + torch.mm(x[0], m.s) + x.matmul(m.s) + x[0].mm(m.s)
    x = x + torch.einsum("btd,de->bte", x, m.s) + torch.tensordot(x, m.s, dims=1)
    x = (
        x
        + torch.addmm(m.b, x[0], m.s)
        + torch.addmm(m.b, x[0], m.s, beta=2)
        + torch.bmm(x, m.s[None])
    )
    return (
        square(x / 30) + square(m.s @ x[0].T) + square(torch.mv(m.s, x[0, 0])) + square(m.s @ m.s)
    )


def transposed_products(m, x):
    x = (
        x @ m.s.T
        + torch.matmul(x, m.s.t())
        + torch.mm(x[0], m.s.mT)
        + F.linear(x, torch.t(m.s), m.b)
    )
    x = x + torch.addmm(m.b, x[0], m.s.T) + F.linear(x, m.s.T.T) + m.s.T + m.s.mT[1] + x @ m.s
    x = x + F.linear(m.s.T, m.s) + m.s.T.sum() + torch.stack([m.s.T, m.s]).sum(0)
    return square(x / 30) + square(m.s.T @ x[0].T) + square(m.s.T @ m.s.T)


def slices(m, x):
    return (
        square(x @ m.s[:, 2:]) + square(F.linear(x, m.s[1:3], m.b[1:3])) + square(m.s.chunk(2)[1])
    )


case("products", lambda: Parameters(s=(D, D), b=(D,)), drawn(1, D, D), loss=products)
case("transposed products", lambda: Parameters(s=(D, D), b=(D,)), drawn(1, D, D),
     loss=transposed_products)  # fmt: skip
case("slices", lambda: Parameters(s=(D, D), b=(D,)), drawn(1, T, D), loss=slices)
case("stacks", lambda: Parameters(a=(D,), b=(D,)), drawn(1, D),
     loss=lambda m, x: square(x @ torch.stack([m.a, m.b]).T))  # fmt: skip
case("reshaped", lambda: Parameters(w=(D * 4,)), drawn(1, D),
     loss=lambda m, x: square(F.linear(x, m.w.view(4, D))))  # fmt: skip
case("a convolution's weight as a matrix", lambda: Parameters(w=(4, T, 2)), drawn(1, T, 5),
     loss=lambda m, x: square(F.conv1d(x, m.w)) + square(F.linear(x[0, :, :2], m.w.sum(1))))  # fmt: skip
case(
    "frozen and trained",
    lambda: frozen(nn.Sequential(nn.Linear(D, D), nn.Linear(D, D))),
    drawn(1, D),
)
case("only a bias", lambda: frozen(nn.Linear(D, D), "weight"), drawn(1, T, D))
case("only a convolution's bias", lambda: frozen(nn.Conv1d(T, 2, 2), "weight"), drawn(1, T, D))
case("only a weight", lambda: frozen(nn.Linear(D, D), "bias"), drawn(1, T, D))

# -- tied weights, functions of functions, losses ------------------------------------------------------


def tied(m, x):
    """The next of a sequence's words, by the table of the words."""
    h = torch.tanh(m.table(x))
    return F.cross_entropy(F.linear(h, m.table.weight)[0, :-1], x[0, 1:])


def tied_transposed(m, x):
    return F.cross_entropy((m.table(x) @ m.table.weight.T)[0, :-1], x[0, 1:])


case("tied", lambda: Tied(V, D), numbers(1, 5), loss=tied)
case("tied, a large table", lambda: Tied(300, 40), numbers(1, T, below=300), loss=tied)
case(
    "tied, by the transposed", lambda: Tied(300, 40), numbers(1, T, below=300), loss=tied_transposed
)
case("functional call", lambda: nn.Linear(D, D), drawn(1, D), loss=lambda m, x: square(
    functional_call(m, {name: 2 * p for name, p in m.named_parameters()}, (x,))))  # fmt: skip
case("functional call with the very parameters", lambda: nn.Linear(D, D), drawn(1, D),
     loss=lambda m, x: square(functional_call(m, dict(m.named_parameters()), (x,))))  # fmt: skip
case("a gradient for the input", lambda: nn.Sequential(nn.Linear(D, 5), nn.Tanh(), nn.Linear(5, 1)),
     drawn(D), loss=lambda m, x: square(grad(lambda x: m(x).sum())(x)))  # fmt: skip
case("vmap within", lambda: nn.Linear(D, D), drawn(1, T, D),
     loss=lambda m, x: square(torch.func.vmap(lambda r: m(r).tanh())(x[0])))  # fmt: skip
case("a constant input", lambda: nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, D)),
     drawn(1, D), loss=lambda m, x: square(m(torch.ones(2, D, dtype=x.dtype)) + x))  # fmt: skip
case("an unused layer", lambda: nn.ModuleList([nn.Linear(D, D), nn.Linear(D, D)]), drawn(1, D),
     loss=lambda m, x: square(m[0](x)))  # fmt: skip
case("connectionist temporal classification", lambda: nn.Linear(D, 4), drawn(T, 1, D),
     lambda rows: torch.randint(1, 4, (rows, 1, 2)), loss=lambda m, x, y: F.ctc_loss(
         m(x).log_softmax(-1), y, torch.tensor([T]), torch.tensor([2])))  # fmt: skip
case("adaptive softmax", lambda: nn.AdaptiveLogSoftmaxWithLoss(D, 9, [2, 5], div_value=2.0,
     head_bias=True), drawn(1, D), numbers(1, below=9), loss=lambda m, x, y: m(x, y).loss)  # fmt: skip
case("control flow of the data", lambda: nn.Linear(D, D), drawn(1, D),
     loss=lambda m, x: square(m(x if x.sum() > 0 else -2 * x)))  # fmt: skip

# vmap cannot follow these: they are evaluated for one example after another.
ALONE = {"adaptive softmax", "control flow of the data"}


class Again(nn.Module):
    """A layer after itself."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(torch.tanh(self.layer(x)))


class Twice(Again):
    """A layer of two inputs, one after the other."""

    def forward(self, x, y):
        return self.layer(x).sum(1) + self.layer(y).sum(1).tanh()


class Positions(nn.Module):
    """A table of which all examples look up the same lines."""

    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(T, D), nn.Linear(D, 2)

    def forward(self, x):
        return self.out(x + self.table(torch.arange(T)))


class Tied(nn.Module):
    """A table, for losses that use it twice."""

    def __init__(self, lines, width):
        super().__init__()
        self.table = nn.Embedding(lines, width)


class Parameters(nn.Module):
    """Parameters by name, of the given shapes or values."""

    def __init__(self, **named):
        super().__init__()
        for name, form in named.items():
            value = form if isinstance(form, torch.Tensor) else torch.randn(form)
            self.register_parameter(name, nn.Parameter(value))


def shaken(module):
    """With other values than those at which a layer starts, which hide mistakes."""
    for tensor in [*module.parameters(), *module.buffers()]:
        if tensor.is_floating_point():
            tensor.data = tensor.data + 0.5 * torch.rand(tensor.shape)
    return module


def materialised(module, *shape):
    module(torch.randn(shape))
    return module


def frozen(module, *names):
    """With some parameters that are not trained; by default the first."""
    for name in names or [next(iter(dict(module.named_parameters())))]:
        module.get_parameter(name).requires_grad_(False)
    return module


def made(name, rows, dtype):
    """The model, its trained parameters, examples and the loss of a case."""
    make, inputs, loss = CASES[name]
    torch.manual_seed(0)
    model = make().to(dtype)
    tensors = tuple(draw(rows) for draw in inputs)
    tensors = tuple(x.to(dtype) if x.is_floating_point() else x for x in tensors)
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    return model, trained, Examples.of(tensors), loss


def one_by_one(model, trained, examples, loss):
    """The oracle: the gradients of every example by plain autograd, by name."""
    found = []
    for i in range(len(examples)):
        args, _ = examples.one(i)
        gradients = torch.autograd.grad(
            loss(model, *args).sum(), list(trained.values()), allow_unused=True
        )
        pairs = zip(trained.values(), gradients, strict=True)
        found.append([torch.zeros_like(p) if g is None else g for p, g in pairs])
    return dict(zip(trained, map(torch.stack, zip(*found, strict=True)), strict=True))


def check_close(found, wanted, tol):
    """Equal up to a part of the norm of each row."""
    found, wanted = (t.detach().double().reshape(len(wanted), -1) for t in (found, wanted))
    scale = wanted.norm(dim=1).clamp(min=1e-3)
    assert float(((found - wanted).norm(dim=1) / scale).max()) <= tol


def check_factor(factor, wanted, tol):
    """All that a factor is asked for."""
    check_close(factor.dense(), wanted, tol)
    flat = wanted.double().reshape(len(wanted), -1)
    size = flat.norm(dim=1).clamp(min=1e-3)
    assert float(((factor.squared_norms().sqrt() - flat.norm(dim=1)) / size).abs().max()) <= tol
    weights = torch.linspace(0.5, 1.0, factor.rows, dtype=torch.float64)
    out = torch.zeros_like(wanted[0])
    factor.add_to(out, weights)
    total = torch.tensordot(weights, wanted.double(), dims=1)
    assert float((out.double() - total).norm()) <= tol * float(size.sum())
    units = Units(torch.arange(factor.rows) // 2, (factor.rows + 1) // 2)
    check_close(factor.grouped(units).dense(), units.total(units.shares(wanted)), tol)


def check_case(name, rows, dtype, tol):
    model, trained, examples, loss = made(name, rows, dtype)
    wanted = one_by_one(model, trained, examples, loss)
    losses, factors = Batched(model, loss, trained, KEY).evaluate(0, torch.arange(rows), examples)
    plain_losses = torch.stack([loss(model, *examples.one(i)[0]).sum() for i in range(rows)])
    torch.testing.assert_close(losses, plain_losses, rtol=tol, atol=tol)
    with torch.no_grad():
        for parameter_name, parameter in trained.items():
            if parameter in factors:
                check_factor(factors[parameter], wanted[parameter_name], tol)
            else:
                assert not wanted[parameter_name].any()


# Of these, a quick run tests others of their kind.
LEFT_OUT = (
    "1d,",
    "3d,",
    "RNN",
    "no bias",
    "norm first",
    "last offset",
    "equal offsets",
    "twice",
    "decoder",
)
BATCHES = [
    pytest.param(name, rows, marks=[pytest.mark.slow] * (rows != T or is_left_out))
    for name in CASES
    for is_left_out in [any(part in name for part in LEFT_OUT)]
    for rows in (2, T, D)
    if name not in ALONE
]


@pytest.mark.parametrize(("name", "rows"), BATCHES)
def test_gradients_are_those_of_one_example_after_another(name, rows):
    model, trained, examples, loss = made(name, rows, torch.float64)
    wanted = one_by_one(model, trained, examples, loss)
    losses, factors = Batched(model, loss, trained, KEY).evaluate(0, torch.arange(rows), examples)
    plain_losses = torch.stack([loss(model, *examples.one(i)[0]).sum() for i in range(rows)])
    torch.testing.assert_close(losses, plain_losses, rtol=1e-10, atol=1e-10)
    with torch.no_grad():
        for parameter_name, parameter in trained.items():
            if parameter in factors:
                check_factor(factors[parameter], wanted[parameter_name], 1e-10)
            else:
                assert not wanted[parameter_name].any()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(CASES) - ALONE))
def test_so_they_are_in_single_precision(name):
    model, trained, examples, loss = made(name, 4, torch.float32)
    wanted = one_by_one(model, trained, examples, loss)
    _, factors = Batched(model, loss, trained, KEY).evaluate(0, torch.arange(4), examples)
    pairs = [(factors[p].dense(), wanted[n]) for n, p in trained.items() if p in factors]
    found, expected = (
        torch.cat([t.reshape(4, -1) for t in ts], 1) for ts in zip(*pairs, strict=True)
    )
    check_close(found, expected, 1e-5)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in ALONE)) for n in CASES]
)
def test_the_path_that_is_chosen_gives_the_same(name):
    model, trained, examples, loss = made(name, 4, torch.float64)
    wanted = one_by_one(model, trained, examples, loss)
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", "the loss is evaluated")
        path = choose(model, loss, trained, KEY, torch.arange(4), examples)
    assert [w.category for w in caught] == [UserWarning] * (name in ALONE)
    assert isinstance(path, Batched) == (name not in ALONE)
    (piece,) = path.pieces(0, torch.arange(4), examples)
    for parameter_name, parameter in trained.items():
        if parameter in piece.factors:
            check_close(piece.factors[parameter].dense(), wanted[parameter_name], 1e-10)
        else:
            assert not wanted[parameter_name].any()


@pytest.mark.parametrize("name", ["linear, bias", "convolution 2d, groups", "encoder layer, norm last",
                                  "tied, a large table", "LSTM, plain", "layer norm"])  # fmt: skip
def test_gradients_within_autocast_are_those_of_one_example(name):
    model, trained, examples, loss = made(name, 4, torch.float32)

    def quick(model, *x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return loss(model, *x).float()

    wanted = one_by_one(model, trained, examples, loss)
    _, factors = Batched(model, quick, trained, KEY).evaluate(0, torch.arange(4), examples)
    for parameter_name, parameter in trained.items():
        factor = factors[parameter]
        assert factor.dense().dtype is torch.float32
        check_close(factor.dense(), wanted[parameter_name], 0.2)


def test_an_example_that_is_not_finite_leaves_the_others_alone():
    """No operation brings two examples together: their gradients are the same to the last bit."""
    for name in (
        "encoder layer, norm last",
        "convolution 2d, groups",
        "GRU, two ways",
        "group norm",
    ):
        model, trained, examples, loss = made(name, 4, torch.float64)
        path = Batched(model, loss, trained, KEY)
        _, factors = path.evaluate(0, torch.arange(4), examples)
        examples.args[0][1] = torch.nan
        _, spoiled = path.evaluate(0, torch.arange(4), examples)
        for parameter in trained.values():
            one, other = factors[parameter].dense(), spoiled[parameter].dense()
            assert torch.equal(one[[0, 2, 3]], other[[0, 2, 3]]), name
            assert not other[1].isfinite().all()


class Images(nn.Module):
    """Convolutions after a linear map, whose output has the type of autocast."""

    def __init__(self, kind):
        super().__init__()
        self.first, self.conv, self.head = nn.Linear(8, 8), kind(1, 4, 3), nn.LazyLinear(3)

    def forward(self, x):
        return self.head(self.conv(self.first(x)[:, None]).relu().flatten(1))


@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize("kind", [nn.Conv1d, nn.ConvTranspose1d])
def test_convolutions_follow_autocast(kind, is_frozen):
    torch.manual_seed(0)
    model, x = Images(kind), torch.randn(4, 1, 8)
    model(x[0])
    model.conv.requires_grad_(not is_frozen)
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}

    def loss(model, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x).square().mean().float()

    examples = Examples.of((x,))
    assert isinstance(choose(model, loss, trained, KEY, torch.arange(4), examples), Batched)
    _, factors = Batched(model, loss, trained, KEY).evaluate(0, torch.arange(4), examples)
    wanted = one_by_one(model, trained, examples, loss)
    for name, parameter in trained.items():
        check_close(factors[parameter].dense().view_as(wanted[name]), wanted[name], 0.05)


@pytest.mark.parametrize("call", [F.linear, lambda x, w, b: torch.addmm(b, x, w.t())])
def test_a_bias_of_one_number_for_all_outputs(call):
    torch.manual_seed(0)
    model = nn.Module()
    model.w, model.b = nn.Parameter(torch.randn(3, 8)), nn.Parameter(torch.zeros(1))
    trained, examples = dict(model.named_parameters()), Examples.of((torch.randn(4, 1, 8),))

    def loss(model, x):
        return call(x, model.w, model.b).square().sum()

    _, factors = Batched(model, loss, trained, KEY).evaluate(0, torch.arange(4), examples)
    wanted = one_by_one(model, trained, examples, loss)
    for name, parameter in trained.items():
        check_close(factors[parameter].dense().view_as(wanted[name]), wanted[name], 1e-5)
