"""Recurrent networks in linear maps compute what torch's own compute, alone and under ``vmap``."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import vmap
from torch.nn import functional as F
from torch.nn.utils import rnn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from antiphon.training.gradients.recurrent import REPLACEMENTS

INPUT, HIDDEN = 3, 4
NETWORKS = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "tanh": nn.RNN,
    "relu": lambda *args, **options: nn.RNN(*args, nonlinearity="relu", **options),
}
CELLS = {
    "lstm": nn.LSTMCell,
    "gru": nn.GRUCell,
    "tanh": nn.RNNCell,
    "relu": lambda *args, **options: nn.RNNCell(*args, nonlinearity="relu", **options),
}


class Replacing(TorchFunctionMode):
    """Calls our functions in place of torch's; notes the functions and the arguments of F.linear."""

    def __init__(self):
        super().__init__()
        self.replaced, self.linears = [], []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in REPLACEMENTS:
            self.replaced.append(func)
            with self:
                return REPLACEMENTS[func](*args, **(kwargs or {}))
        if func is F.linear:
            self.linears.append(args)
        return func(*args, **(kwargs or {}))


def numbers(outputs):
    """The floating-point tensors of a nest of outputs."""
    leaves = tree_leaves(outputs)
    return [x for x in leaves if isinstance(x, torch.Tensor) and x.is_floating_point()]


def with_gradients(outputs, sources):
    """Outputs, and gradients of a sum over them in which no two entries weigh the same."""
    found = numbers(outputs)
    ramps = [torch.linspace(1, 2, x.numel(), dtype=x.dtype).view(x.shape) for x in found]
    total = sum((x * ramp).sum() for x, ramp in zip(found, ramps, strict=True))
    return found, torch.autograd.grad(total, sources)


def check_equal(call, sources, *functions):
    """The same values and gradients with our functions, which were called in place of these."""
    torch.manual_seed(0)
    expected = with_gradients(call(), sources)
    torch.manual_seed(0)
    with Replacing() as mode:
        outputs = call()
    assert set(mode.replaced) == set(functions)
    torch.testing.assert_close(with_gradients(outputs, sources), expected, rtol=1e-10, atol=1e-10)


def drawn(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def function(kind, suffix=""):
    name = {"lstm": "lstm", "gru": "gru", "tanh": "rnn_tanh", "relu": "rnn_relu"}[kind]
    return getattr(torch, name + suffix)


@st.composite
def networks(draw):
    kind = draw(st.sampled_from(sorted(NETWORKS)))
    layers = draw(st.integers(1, 3))
    options = {
        "num_layers": layers,
        "bias": draw(st.booleans()),
        "batch_first": draw(st.booleans()),
        "bidirectional": draw(st.booleans()),
        "dropout": draw(st.sampled_from([0.0, 0.4])) if layers > 1 else 0.0,
    }
    if kind == "lstm":
        options["proj_size"] = draw(st.sampled_from([0, 2]))
    torch.manual_seed(draw(st.integers(0, 9)))
    network = NETWORKS[kind](INPUT, HIDDEN, **options).double()
    return kind, network.train(draw(st.booleans()))


def state(kind, network, *rows):
    """An initial state for that many rows; for unbatched input, for none."""
    count = network.num_layers * (1 + network.bidirectional)
    hidden = drawn(count, *rows, network.proj_size or HIDDEN)
    return (hidden, drawn(count, *rows, HIDDEN)) if kind == "lstm" else hidden


@given(networks(), st.integers(1, 4), st.sampled_from([None, 1, 3]), st.booleans())
def test_networks_compute_what_torch_computes(made, length, rows, is_started):
    kind, network = made
    shape = (length,) if rows is None else (length, rows)
    x = drawn(*(shape[::-1] if network.batch_first else shape), INPUT)
    hx = state(kind, network, *shape[1:]) if is_started else None
    sources = [x, *network.parameters(), *tree_leaves(hx if is_started else ())]
    check_equal(lambda: network(x, hx), sources, function(kind))


@given(networks(), st.lists(st.integers(1, 4), min_size=1, max_size=4), st.booleans())
def test_packed_sequences_give_what_torch_gives(made, lengths, is_started):
    kind, network = made
    sequences = [drawn(length, INPUT) for length in lengths]
    hx = state(kind, network, len(lengths)) if is_started else None

    def call():
        packed = rnn.pack_sequence(sequences, enforce_sorted=False)
        output, last = network(packed, hx)
        return rnn.pad_packed_sequence(output, network.batch_first, -1.0), last

    sources = [*sequences, *network.parameters(), *tree_leaves(hx if is_started else ())]
    packing = (torch._C._nn.pad_sequence, torch._pack_padded_sequence, torch._pad_packed_sequence)
    check_equal(call, sources, function(kind), *packing)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(), (1,), (3,)])
@pytest.mark.parametrize("is_started", [True, False])
@pytest.mark.parametrize("kind", CELLS)
def test_cells_compute_what_torch_computes(kind, is_started, shape, bias):
    torch.manual_seed(0)
    cell = CELLS[kind](INPUT, HIDDEN, bias=bias).double()
    x, hidden = drawn(*shape, INPUT), drawn(*shape, HIDDEN)
    hx = (hidden, drawn(*shape, HIDDEN)) if kind == "lstm" else hidden
    sources = [x, *cell.parameters(), *(tree_leaves(hx) if is_started else ())]
    check_equal(lambda: cell(x, hx if is_started else None), sources, function(kind, "_cell"))


def check_vmapped(one, module, x, *functions):
    """Under ``vmap``, as over a loop of torch's own: outputs, and gradients of the sum over examples."""
    sources = [x, *module.parameters()]
    loop = [numbers(one(row)) for row in x]
    expected = with_gradients([torch.stack(rows) for rows in zip(*loop, strict=True)], sources)
    with Replacing() as mode:
        outputs = vmap(lambda row: tuple(numbers(one(row))), randomness="different")(x)
    assert set(mode.replaced) == set(functions)
    torch.testing.assert_close(with_gradients(outputs, sources), expected, rtol=1e-10, atol=1e-10)


@settings(max_examples=30)
@given(networks(), st.integers(1, 4))
def test_networks_run_under_vmap_as_example_by_example(made, length):
    kind, network = made
    network.dropout = 0.0
    x = drawn(3, *((1, length) if network.batch_first else (length, 1)), INPUT)
    check_vmapped(network, network, x, function(kind))


@pytest.mark.parametrize("kind", CELLS)
def test_cells_run_under_vmap_as_example_by_example(kind):
    torch.manual_seed(0)
    cell = CELLS[kind](INPUT, HIDDEN).double()

    def one(row):
        first = cell(row)
        return cell(row, first)

    check_vmapped(one, cell, drawn(5, 1, INPUT), function(kind, "_cell"))


@pytest.mark.parametrize("lengths", [[4], [2], [4, 2, 3]])
@pytest.mark.parametrize("kind", NETWORKS)
def test_packed_sequences_run_under_vmap_as_example_by_example(kind, lengths):
    torch.manual_seed(0)
    network = NETWORKS[kind](INPUT, HIDDEN, bidirectional=True, batch_first=True).double()

    def one(rows):
        packed = rnn.pack_padded_sequence(rows, torch.tensor(lengths), True, enforce_sorted=False)
        output, last = network(packed)
        return rnn.pad_packed_sequence(output, batch_first=True, total_length=5)[0], last

    packing = (torch._pack_padded_sequence, torch._pad_packed_sequence)
    check_vmapped(one, network, drawn(3, len(lengths), 4, INPUT), function(kind), *packing)


def pack(rows, lengths):
    return rnn.pack_padded_sequence(rows, lengths).data


def run_packed(rows, sizes):
    weights = [torch.zeros(3 * HIDDEN, INPUT), torch.zeros(3 * HIDDEN, HIDDEN)]
    options = (weights, False, 1, 0.0, True, False)
    return torch.gru(rows[:, 0], sizes, torch.zeros(1, 1, HIDDEN), *options)[0]


@pytest.mark.parametrize("one", [pack, run_packed])
def test_lengths_that_differ_between_examples_are_refused_under_vmap(one):
    with Replacing(), pytest.raises(RuntimeError, match=r"vmap: .* calling \.item\(\)"):
        vmap(one)(torch.randn(2, 4, 1, INPUT), torch.tensor([[4], [3]]))


def test_dropout_between_layers_is_drawn_for_each_example():
    torch.manual_seed(0)
    network = nn.GRU(INPUT, 16, num_layers=2, dropout=0.5)
    x = torch.randn(1, 4, 1, INPUT).expand(2, -1, -1, -1)
    with Replacing():
        first, second = vmap(lambda row: network(row)[0], randomness="different")(x)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("is_packed", [True, False])
def test_weights_reach_linear_maps_as_the_very_parameters(is_packed, bias):
    network = nn.LSTM(INPUT, HIDDEN, 2, bias=bias, bidirectional=True, proj_size=2)
    x = torch.randn(2, 5, 1, INPUT)
    with Replacing() as mode:
        vmap(lambda row: network(rnn.pack_sequence([row[:, 0]]) if is_packed else row)[1])(x)
    used = [part for _, *parts in mode.linears for part in parts if part is not None]
    assert {id(part) for part in used} == {id(parameter) for parameter in network.parameters()}
    # four directions of layers: one linear map for the input, and two at each of five steps
    assert len(mode.linears) == 4 * (1 + 5 * 2)


@pytest.mark.parametrize("places", range(10))
@pytest.mark.parametrize("is_packed", [True, False])
def test_arguments_may_be_given_by_place_or_by_name(is_packed, places):
    torch.manual_seed(0)
    network = nn.GRU(INPUT, HIDDEN).double()
    hx, options = drawn(1, 3, HIDDEN), (True, 1, 0.0, True, False)
    if is_packed:
        x, names = drawn(5, INPUT), ["data", "batch_sizes"]
        values = [x, torch.tensor([3, 2]), hx, network._flat_weights, *options]
    else:
        x, names = drawn(2, 3, INPUT), ["input"]
        values = [x, hx, network._flat_weights, *options, False]
    names += ["hx", "params", "has_biases", "num_layers", "dropout", "train", "bidirectional"]
    named = dict(zip([*names, "batch_first"][places:9], values[places:], strict=True))
    sources = [x, hx, *network.parameters()]
    check_equal(lambda: torch.gru(*values[:places], **named), sources, torch.gru)


def test_autocast_gives_what_torch_gives_to_its_precision():
    torch.manual_seed(0)
    x = torch.randn(4, 2, INPUT)
    for kind, make in NETWORKS.items():
        network = make(INPUT, HIDDEN)
        with torch.autocast("cpu", torch.bfloat16):
            expected = network(x)[0]
            with Replacing() as mode:
                found = network(x)[0]
        assert mode.replaced == [function(kind)]
        torch.testing.assert_close(found, expected, rtol=0, atol=0.02, check_dtype=False)


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2),
)
def test_packing_and_padding_give_what_torch_gives(lengths, batch_first, right, extra):
    torch.manual_seed(0)
    side = "right" if right else "left"
    sequences = [drawn(length, 2) for length in lengths]
    total = max(lengths) + extra

    def call():
        padded = rnn.pad_sequence(sequences, batch_first, 7.0, side)
        known = torch.tensor(lengths)
        packed = rnn.pack_padded_sequence(padded, known, batch_first, enforce_sorted=False)
        again, found = rnn.pad_packed_sequence(packed, batch_first, -1.0, total)
        assert found.tolist() == lengths
        return padded, packed, again

    packing = (torch._C._nn.pad_sequence, torch._pack_padded_sequence, torch._pad_packed_sequence)
    check_equal(call, sequences, *packing)


@pytest.mark.parametrize("lengths", [[3, 1, 2], [3, 2, 0], [4, 3, 2], [3, 2], [3, 2, 1, 1]])
def test_lengths_that_do_not_fit_are_refused(lengths):
    with Replacing(), pytest.raises(ValueError, match="one per sequence, decreasing"):
        rnn.pack_padded_sequence(torch.randn(3, 3, INPUT), torch.tensor(lengths))


def test_a_sequence_without_steps_is_refused():
    with Replacing(), pytest.raises(ValueError, match="0 steps"):
        nn.GRU(INPUT, HIDDEN)(torch.randn(0, 1, INPUT))
