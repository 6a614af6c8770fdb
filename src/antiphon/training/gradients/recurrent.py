"""Recurrent layers written as linear maps, one per time step.

``torch.lstm``, ``torch.gru``, ``torch.rnn_tanh``, ``torch.rnn_relu`` and the four cells compute several
linear maps in one call, and ``torch.func.vmap`` has no rule for them. The functions here compute the same
from ``F.linear``, elementwise operations and indexing. All time steps enter a layer by one linear map; the
hidden state passes through one at each step. Weights reach ``F.linear`` as the objects that were given,
never as slices or copies.

Packing and padding of sequences are here too: under ``vmap``, torch's own functions return ``batch_sizes``
as if they differed between examples, or fail.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["REPLACEMENTS"]

State = tuple[Tensor, ...]  # what is carried from step to step; its first entry is the output


class _Weights(NamedTuple):
    """Parameters of one direction of one layer, named as torch names them."""

    w_ih: Tensor
    w_hh: Tensor
    b_ih: Tensor | None
    b_hh: Tensor | None
    w_hr: Tensor | None = None


# From what enters at a step (the input's share of the gates) and the state before it to the state after it.
Step = Callable[[Tensor, State, _Weights], State]


def _lstm_step(entering: Tensor, state: State, weights: _Weights) -> State:
    hidden, cell = state
    gates = entering + F.linear(hidden, weights.w_hh, weights.b_hh)
    write, keep, new, read = gates.chunk(4, -1)
    cell = torch.addcmul(write.sigmoid() * new.tanh(), keep.sigmoid(), cell)
    hidden = read.sigmoid() * cell.tanh()
    return hidden if weights.w_hr is None else F.linear(hidden, weights.w_hr), cell


def _gru_step(entering: Tensor, state: State, weights: _Weights) -> State:
    (hidden,) = state
    sizes = (2 * hidden.shape[-1], hidden.shape[-1])
    passed = F.linear(hidden, weights.w_hh, weights.b_hh)
    gates, new = torch.split_with_sizes(entering, sizes, -1)
    hidden_gates, hidden_new = torch.split_with_sizes(passed, sizes, -1)
    reset, keep = (gates + hidden_gates).sigmoid().chunk(2, -1)
    new = torch.addcmul(new, reset, hidden_new).tanh()
    return (torch.addcmul(new, keep, hidden - new),)


def _tanh_step(entering: Tensor, state: State, weights: _Weights) -> State:
    return (torch.tanh(entering + F.linear(state[0], weights.w_hh, weights.b_hh)),)


def _relu_step(entering: Tensor, state: State, weights: _Weights) -> State:
    return (torch.relu(entering + F.linear(state[0], weights.w_hh, weights.b_hh)),)


def _scan(
    step: Step, inputs: Sequence[Tensor], sizes: Sequence[int], first: State, weights: _Weights
) -> tuple[list[Tensor], State]:
    """Outputs of all steps, and the last state of every row.

    ``sizes`` are the numbers of rows at each step. A row that ends leaves with its state; a row that begins
    later enters with its row of ``first``.
    """
    rows = sizes[0]
    state = first if rows == max(sizes) else tuple(part[:rows] for part in first)
    outputs: list[Tensor] = []
    ended: list[State] = []
    for entering, size in zip(inputs, sizes, strict=True):
        if size < rows:
            ended.append(tuple(part[size:] for part in state))
            state = tuple(part[:size] for part in state)
        elif size > rows:
            begun = (part[rows:size] for part in first)
            state = tuple(torch.cat(pair) for pair in zip(state, begun, strict=True))
        rows = size
        state = step(entering, state, weights)
        outputs.append(state[0])
    if ended:
        state = tuple(torch.cat(parts) for parts in zip(state, *reversed(ended), strict=True))
    return outputs, state


def _direction(
    step: Step, x: Tensor, sizes: list[int], first: State, weights: _Weights, is_backward: bool
) -> tuple[Tensor, State]:
    """Outputs of one direction of one layer in the order of time, and its last state."""
    inputs = torch.split_with_sizes(F.linear(x, weights.w_ih, weights.b_ih), sizes)
    order = -1 if is_backward else 1
    outputs, last = _scan(step, inputs[::order], sizes[::order], first, weights)
    return torch.cat(outputs[::order]), last


def _layers(
    step: Step,
    x: Tensor,
    sizes: list[int],
    firsts: list[State],
    weights: list[_Weights],
    dropout: float,
    directions: int,
) -> tuple[Tensor, list[State]]:
    """Outputs of the last layer, and the last states of all layers and directions."""
    lasts: list[State] = []
    for layer in range(0, len(weights), directions):
        if layer and dropout:
            x = F.dropout(x, dropout)
        ways = [
            _direction(step, x, sizes, firsts[i], weights[i], is_backward=i > layer)
            for i in range(layer, layer + directions)
        ]
        x = ways[0][0] if directions == 1 else torch.cat([outputs for outputs, _ in ways], -1)
        lasts += [last for _, last in ways]
    return x, lasts


def _grouped(params: Sequence[Tensor], has_biases: bool, is_projected: bool) -> list[_Weights]:
    """The flat list of parameters, by layer and direction."""
    width = 2 + 2 * has_biases + is_projected
    groups = []
    for start in range(0, len(params), width):
        own = params[start : start + width]
        b_ih, b_hh = own[2:4] if has_biases else (None, None)
        groups.append(_Weights(own[0], own[1], b_ih, b_hh, own[-1] if is_projected else None))
    return groups


def _rows(
    step: Step,
    x: Tensor,
    sizes: list[int],
    hx: Tensor | Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> State:
    """The whole network over the rows of all steps behind each other; ``sizes`` rows at each step."""
    hidden = (hx,) if isinstance(hx, Tensor) else tuple(hx)
    is_projected = len(hidden) == 2 and hidden[0].shape[2] != hidden[1].shape[2]
    weights = _grouped(params, has_biases, is_projected)
    directions = 1 + bidirectional
    if len(weights) != num_layers * directions or not sizes:
        raise ValueError(
            "a recurrent network needs parameters for each layer and direction, and a step or more; got "
            f"{len(weights)} of {num_layers * directions} sets of parameters, {len(sizes)} steps."
        )
    firsts = list(zip(*(part.unbind(0) for part in hidden), strict=True))
    x, lasts = _layers(step, x, sizes, firsts, weights, dropout if train else 0.0, directions)
    return x, *(torch.stack(parts) for parts in zip(*lasts, strict=True))


def _network(step: Step) -> Callable[..., State]:
    """The replacement for one of torch's functions of whole sequences, in both of its overloads."""

    def packed(data: Tensor, batch_sizes: Tensor, *rest: Any, **named: Any) -> State:
        return _rows(step, data, _whole(batch_sizes), *rest, **named)

    def plain(input: Tensor, *rest: Any, batch_first: bool, **named: Any) -> State:
        x = input.transpose(0, 1) if batch_first else input
        length, rows = x.shape[:2]
        output, *last = _rows(step, x.flatten(0, 1), [rows] * length, *rest, **named)
        output = torch.unflatten(output, 0, (length, rows))
        return output.transpose(0, 1) if batch_first else output, *last

    def either(*args: Any, **named: Any) -> State:
        if len(args) == 9 and not isinstance(args[3], list | tuple):
            return plain(*args[:8], batch_first=args[8], **named)
        return plain(*args, **named) if "batch_first" in named else packed(*args, **named)

    return either


def _cell(step: Step) -> Callable[..., Tensor | State]:
    """The replacement for one of torch's functions of a single step."""

    def cell(
        input: Tensor,
        hx: Tensor | Sequence[Tensor],
        w_ih: Tensor,
        w_hh: Tensor,
        b_ih: Tensor | None = None,
        b_hh: Tensor | None = None,
    ) -> Tensor | State:
        before = (hx,) if isinstance(hx, Tensor) else tuple(hx)
        weights = _Weights(w_ih, w_hh, b_ih, b_hh)
        after = step(F.linear(input, w_ih, b_ih), before, weights)
        return after[0] if isinstance(hx, Tensor) else after

    return cell


def _whole(counts: Tensor) -> list[int]:
    """The entries as Python's integers.

    Entry by entry, because ``vmap`` names the obstacle only there if the counts depend on the example.
    """
    return [int(count) for count in counts.unbind()]


def _pack_padded_sequence(
    input: Tensor, lengths: Tensor, batch_first: bool
) -> tuple[Tensor, Tensor]:
    steps = input.transpose(0, 1) if batch_first else input
    known = _whole(lengths)
    if (
        len(known) != steps.shape[1]
        or sorted(known, reverse=True) != known
        or not 0 < known[-1] <= known[0] <= len(steps)
    ):
        raise ValueError(
            "lengths must be one per sequence, decreasing, at least 1 and at most the padded length; "
            f"got {known} for {steps.shape[1]} sequences of padded length {len(steps)}."
        )
    sizes = [sum(length > t for length in known) for t in range(known[0])]
    places = [t * len(known) + row for t, size in enumerate(sizes) for row in range(size)]
    index = torch.tensor(places, device=input.device)
    return steps.flatten(0, 1).index_select(0, index), torch.tensor(sizes)


def _pad_packed_sequence(
    data: Tensor, batch_sizes: Tensor, batch_first: bool, padding_value: float, total_length: int
) -> tuple[Tensor, Tensor]:
    sizes = _whole(batch_sizes)
    length, rows = max(total_length, len(sizes)), sizes[0]
    starts = [0, *accumulate(sizes)]
    places = [
        starts[t] + row if t < len(sizes) and row < sizes[t] else len(data)
        for t in range(length)
        for row in range(rows)
    ]
    padding = data.new_full((1, *data.shape[1:]), padding_value)
    index = torch.tensor(places, device=data.device)
    padded = torch.cat([data, padding]).index_select(0, index)
    padded = torch.unflatten(padded, 0, (length, rows))
    lengths = torch.tensor([sum(size > row for size in sizes) for row in range(rows)])
    return padded.transpose(0, 1) if batch_first else padded, lengths


def _pad_sequence(
    sequences: Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    length = max(len(sequence) for sequence in sequences)
    padded = []
    for sequence in sequences:
        gap = length - len(sequence)
        ends = (0, gap) if padding_side == "right" else (gap, 0)
        padded.append(F.pad(sequence, (0, 0) * (sequence.dim() - 1) + ends, value=padding_value))
    return torch.stack(padded, 0 if batch_first else 1)


REPLACEMENTS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.lstm: _network(_lstm_step),
    torch.gru: _network(_gru_step),
    torch.rnn_tanh: _network(_tanh_step),
    torch.rnn_relu: _network(_relu_step),
    torch.lstm_cell: _cell(_lstm_step),
    torch.gru_cell: _cell(_gru_step),
    torch.rnn_tanh_cell: _cell(_tanh_step),
    torch.rnn_relu_cell: _cell(_relu_step),
    torch._pack_padded_sequence: _pack_padded_sequence,
    torch._pad_packed_sequence: _pad_packed_sequence,
    torch._C._nn.pad_sequence: _pad_sequence,
}
