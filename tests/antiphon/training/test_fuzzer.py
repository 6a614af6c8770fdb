"""Random models, as a hostile reviewer would write them: one record moves the sum by at most its bound.

`oracles.fuzz_models` draws model, loss, data, clipping, users and parts from a seed. A model may be
refused; if it is not, one record is removed or replaced at equal parameters over several noisy steps.
"""

import warnings
from functools import cache

import pytest
import torch
from oracles.fuzz_models import LOSSES, PIECES, Chain, Sizes, draw
from oracles.moves import Case, examples_of, largest_move
from oracles.small_models import data, network, private

from antiphon.errors import AntiphonError
from antiphon.training.gradients import choose
from antiphon.training.gradients.factors import Dense
from antiphon.training.gradients.piece import Piece

WITHIN = 1.001  # of the bound
REFUSALS = (AntiphonError, RuntimeError, NotImplementedError)
QUICK, ALL = 40, 400
APPROXIMATE = {"in_half_precision"}


def move_of(seed, **options):
    """The largest move in units of its bound; None if the model is refused."""
    drawn = draw(seed)
    given = {"rule": drawn.rule, "part": drawn.part, "users": drawn.users, "steps": 2} | options
    try:
        return largest_move(drawn.case, **given)[0]
    except REFUSALS:
        return None


def assert_within(seeds):
    moves = {seed: move_of(seed) for seed in seeds}
    wrong = {
        seed: (m, draw(seed)) for seed, m in moves.items() if m is not None and not m <= WITHIN
    }
    assert not wrong, {
        s: (m, d.names, d.loss, d.rule, d.part, d.users) for s, (m, d) in wrong.items()
    }
    return moves


@pytest.mark.parametrize("first", range(0, QUICK, 10))
def test_one_record_moves_a_random_models_sum_by_at_most_its_bound(first):
    moves = assert_within(range(first, first + 10))
    assert sum(m is not None for m in moves.values()) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("first", range(QUICK, ALL, 20))
def test_one_record_moves_many_random_models_sums_by_at_most_their_bounds(first):
    moves = assert_within(range(first, first + 20))
    assert sum(m is not None for m in moves.values()) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("first", range(QUICK, ALL // 4, 20))
def test_one_example_after_another_stays_within_the_bounds(first):
    for seed in range(first, first + 20):
        move = move_of(seed, is_alone=True)
        assert move is None or move <= WITHIN, (seed, move, draw(seed).names)


# Gradients


def by_the_path(drawn):
    """Gradients of all examples, by parameter; None if the model is refused."""
    model, loss = drawn.case.make()
    named = dict(model.named_parameters())
    ids, examples = torch.arange(len(drawn.case.rows[0])), examples_of(drawn.case.rows)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            path = choose(model, loss, named, b"key", ids[:2], examples.select(ids[:2]))
        pieces = list(path.pieces(0, ids, examples))
    except REFUSALS:
        return None
    zeros = {p: torch.zeros(len(ids), *p.shape) for p in named.values()}
    dense = [{p: f.dense() for p, f in piece.factors.items()} for piece in pieces]
    return [torch.cat([(zeros | found)[p] for found in dense]) for p in named.values()]


def by_autograd(drawn):
    """The same by plain autograd, with a new model for every example."""
    found = []
    for row in zip(*drawn.case.rows, strict=True):
        model, loss = drawn.case.make()
        parameters = list(model.parameters())
        value = loss(model, *(part[None] for part in row))
        gradients = torch.autograd.grad(value, parameters, allow_unused=True)
        found.append(
            [
                torch.zeros_like(p) if g is None else g
                for p, g in zip(parameters, gradients, strict=True)
            ]
        )
    return [torch.stack(rows) for rows in zip(*found, strict=True)]


def assert_gradients(seeds):
    for seed in seeds:
        drawn = draw(seed)
        if drawn.is_random or APPROXIMATE & set(drawn.names):
            continue
        found = by_the_path(drawn)
        if found is None:
            continue
        expected = [rows.reshape(len(rows), -1) for rows in by_autograd(drawn)]
        whole = torch.cat(expected, 1).norm(
            dim=1
        )  # sums that cancel are rounded as their terms are
        for one, other in zip(found, expected, strict=True):
            one = one.reshape(len(one), -1)
            size = other.norm(dim=1) + 1e-4 * other.norm() + 1e-3 * whole + 1e-6
            difference = (one - other).norm(dim=1)
            is_finite = other.isfinite().all(1)
            assert bool((difference <= 1e-3 * size)[is_finite].all()), (
                seed,
                drawn.names,
                drawn.loss,
            )


def test_gradients_of_random_models_are_those_of_plain_autograd():
    assert_gradients(range(QUICK))


@pytest.mark.slow
def test_gradients_of_many_random_models_are_those_of_plain_autograd():
    assert_gradients(range(QUICK, ALL))


# The assertions find what they are made for


class Mixed:
    """A broken way to compute gradients: the model is evaluated on the plain batch."""

    def __init__(self, model, loss, named, *rest):
        self.model, self.loss, self.parameters = model, loss, list(named.values())

    def pieces(self, step, ids, examples, units=None):
        x, y = (column.flatten(0, 1) for column in examples.args)
        out = self.model(x)
        rows = []
        for i in range(len(ids)):
            value = self.loss(lambda _, i=i: out[i : i + 1], x[i : i + 1], y[i : i + 1])
            found = torch.autograd.grad(
                value, self.parameters, allow_unused=True, retain_graph=True
            )
            rows.append([
                torch.zeros_like(p) if g is None else g
                for p, g in zip(self.parameters, found, strict=True)
            ])  # fmt: skip
        stacked = [Dense(torch.stack(row)) for row in zip(*rows, strict=True)]
        yield Piece(dict(zip(self.parameters, stacked, strict=True)), units)


MIXING = ("along_rows", "mean_of_rows", "rolled_rows", "attention_over_rows")  # strongly


@cache
def only(name):
    """A model of one piece and a case around it."""
    x, y = torch.randn(8, 4, 4, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3

    def make():
        with torch.random.fork_rng():
            torch.manual_seed(1)
            model = Chain([name], Sizes(8, 4, 4), is_text=False, is_tied=False)
        return model, lambda model, x, y: 10 * LOSSES["mean"](model(x), y)

    return Case(make, (x, y), [(1e3 * x[0], y[0]), (-x[0], (y[0] + 1) % 3)])


@pytest.mark.parametrize("name", MIXING)
def test_a_broken_mixer_is_caught(name):
    assert largest_move(only(name), path=Mixed)[0] > 1.2
    assert largest_move(only(name))[0] <= WITHIN


def test_a_broken_mixer_is_caught_on_random_models():
    moves = [move_of(seed, path=Mixed, rule="flat", part=None, users=None) for seed in range(QUICK)]
    assert sum(m is not None and not m <= WITHIN for m in moves) >= QUICK // 4


@pytest.mark.parametrize("name", PIECES)
def test_a_piece_by_itself_is_within_its_bound_or_refused(name):
    try:
        move, norm = largest_move(only(name))
    except REFUSALS:
        assert name.startswith(("memory_in_a_buffer", "memory_in_a_list"))
        return
    assert move <= WITHIN and norm > 0.3


# Whole runs


def sums_of(run):
    """Sums before noise of all steps, in clip norms."""
    found = []
    for part, examples in run.parts():
        if examples is not None:
            for piece in run.path.pieces(part.step, part.rows, examples, part.units):
                run.add(piece)
        value = run._total.total.value().double() * run.plan.expected_batch / run.clip_norm
        if part.is_last:
            found.append(value[:-1].clone())
        if run.finish_part():
            run._update()
    return found


@pytest.mark.parametrize(("by_user", "max_batch"), [(False, None), (True, 3)])
@pytest.mark.parametrize(
    "sampling", ["poisson", "fixed-size", "shuffled", "balls-in-bins", "full-batch"]
)
def test_a_replaced_record_moves_the_sums_of_a_run_by_two(sampling, by_user, max_batch):
    x, y = data(12)
    changed = x.clone()
    changed[0] *= -1e3
    given = {"sampling": sampling, "steps": 3, "noise_multiplier": 1.0, "max_batch": max_batch}
    if sampling != "full-batch":
        given["batch_size"] = 4 if not by_user else 2
    if by_user:
        given["user"] = [i // 2 for i in range(12)]
    moves, sizes = [], []
    for step in range(3):  # at equal parameters: only the first step in which the record takes part
        pair = []
        for rows in (x, changed):
            with private(network(), (rows, y), clip_norm=0.1, **given) as run:
                pair.append(sums_of(run))
        moves.append(float((pair[0][step] - pair[1][step]).norm()))
        sizes.append(float(pair[0][step].norm()))
        if moves[-1] > 0.01:
            break
    assert moves[-1] <= 2 * WITHIN and max(sizes) > 0.3
