"""Whole runs by both ways to compute gradients: no example's gradient depends on another example."""

import random
import sys
import warnings

import numpy as np
import pytest
import torch
from oracles.small_models import N, data, loss_of, network, private, train, weights
from torch import nn

from antiphon.training.gradients.alone import Alone
from antiphon.training.gradients.batched import Batched

ALONE = "the loss is evaluated for one example after another"


def calls_item(model, x, y):
    loss = loss_of(model, x, y)
    return loss if loss.item() < 1e6 else -loss


def branches(model, x, y):
    return loss_of(model, x, y) if x.sum() < 1e6 else -loss_of(model, x, y)


def selects(model, x, y):
    return loss_of(model, x, y) + 0 * x[x > 0].sum()


def lists(model, x, y):
    return loss_of(model, x, y) + 0 * sum(x[0].tolist())


LOOKING = {
    calls_item: r"it calls \.item\(\)",
    branches: "its control flow depends on the example's values",
    selects: "shape depends on the example's values",
    lists: "it reads a tensor's memory",
}
any_loss = pytest.mark.parametrize("loss", LOOKING, ids=lambda loss: loss.__name__)
quiet = pytest.mark.filterwarnings(f"ignore:{ALONE}")


def with_dropout(seed=0):
    model = network(seed=seed)
    return nn.Sequential(model[0], nn.Tanh(), nn.Dropout(0.5), model[2])


@any_loss
def test_a_loss_that_looks_at_values_is_announced_and_trains_as_an_equal_one(loss):
    with pytest.warns(UserWarning, match=f"{ALONE}, since .*{LOOKING[loss]}") as warned:
        run = private(loss=loss, steps=3)
    assert len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # once is enough
        plain, alone = train(private(steps=3)), train(run)
    assert isinstance(alone.path, Alone) and isinstance(plain.path, Batched)
    torch.testing.assert_close(weights(alone), weights(plain), rtol=1e-5, atol=1e-6)
    assert any("one example after another" in line for line in alone.certificate.assumptions)
    assert any("under torch.func.vmap" in line for line in plain.certificate.assumptions)


OPTIONS = {
    "users": {"user": np.arange(N) // 4, "batch_size": 5, "noise_multiplier": 0.5},
    "parts": {"max_batch": 5},
    "users in parts": {"user": np.arange(N) // 3, "batch_size": 8, "max_batch": 7},
    "per-layer": {"clipping": "per-layer", "clip_norm": 0.2},
    "adaptive": {"clipping": "adaptive", "clip_norm": 0.2},
    "automatic": {"clipping": "automatic"},
    "batches with nobody": {"sampling": "poisson", "batch_size": 1},
}


@quiet
@pytest.mark.parametrize("name", OPTIONS)
def test_both_ways_give_the_same_weights_with_the_same_draws(name):
    options = {"steps": 3} | OPTIONS[name]
    plain, alone = (
        train(private(with_dropout(), loss=f, **options)) for f in (loss_of, calls_item)
    )
    assert isinstance(alone.path, Alone) and isinstance(plain.path, Batched)
    torch.testing.assert_close(weights(alone), weights(plain), rtol=1e-5, atol=1e-6)
    assert alone.clip_norm == pytest.approx(plain.clip_norm, rel=1e-6)
    without = train(private(network(), **options))
    assert not torch.allclose(weights(without), weights(plain), atol=1e-4)  # there is a dropout


@quiet
def test_gradients_that_do_not_fit_into_memory_come_in_pieces_of_whole_units(monkeypatch):
    options = {"user": np.arange(N) // 4, "sampling": "full-batch", "steps": 2, "loss": calls_item}
    whole = train(private(**options))
    monkeypatch.setattr("antiphon.training.gradients.alone._BYTES", 4 * 58 * 10)  # ten gradients
    run = private(**options)
    part, examples = next(run.parts(1))
    pieces = list(run.path.pieces(part.step, part.rows, examples, part.units))
    assert [piece.units.sizes.tolist() for piece in pieces] == [[4, 4]] * 7 + [[4]]
    torch.testing.assert_close(weights(train(run)), weights(whole))


@quiet
def test_without_gradient_an_example_counts_as_zero():
    """A loss that depends on no parameter for some examples."""

    def half(model, x, y):
        return loss_of(model, x, y) if y.item() else torch.zeros(())

    def masked(model, x, y):
        return loss_of(model, x, y) * y.sum()

    runs = [train(private(loss=loss, steps=2)) for loss in (half, masked)]
    torch.testing.assert_close(weights(runs[0]), weights(runs[1]), rtol=1e-5, atol=1e-6)


# ---- no example's gradient depends on another -----------------------------------------------------------


def gradients(run, rows, step=3):
    """The gradients of these rows, as in a batch of this step."""
    ids = torch.tensor(rows)
    pieces = run.path.pieces(step, ids, run._batches.read(step, ids))
    found = [
        [piece.factors[p].dense().flatten(1) for p in run._total.total.parameters]
        for piece in pieces
    ]
    return torch.cat([torch.cat(parts, 1) for parts in found])


def noisy_loss(model, x, y):
    """It draws by itself, beside the model's dropout, from torch, and of several shapes."""
    x = x + torch.randn_like(x)
    return (
        loss_of(model, x, y) * torch.rand(())
        + 0.1 * torch.randint(0, 3, (2,)).sum() * model(x).sum()
    )


def noisy_and_alone(model, x, y):
    loss = noisy_loss(model, x, y) * (1 + np.random.rand())  # noqa: NPY002 (the global one is meant)
    return loss if loss.item() < 1e6 else -loss


@quiet
@pytest.mark.parametrize("loss", [loss_of, noisy_loss, noisy_and_alone])
@pytest.mark.parametrize("user", [None, np.arange(N) // 4])
def test_draws_of_a_record_do_not_depend_on_others_in_the_batch(loss, user):
    run = private(with_dropout(), loss=loss, user=user, noise_multiplier=9.0, batch_size=5)
    rows = list(range(12))
    whole = gradients(run, rows)
    for removed in (0, 5, 11):
        left = [row for row in rows if row != removed]
        torch.testing.assert_close(gradients(run, left), whole[left], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradients(run, rows[::-1]), whole.flip(0), rtol=1e-5, atol=1e-6)
    assert not torch.allclose(gradients(run, rows, step=4), whole, atol=1e-3)


@quiet
@pytest.mark.parametrize("loss", [loss_of, calls_item])
def test_one_record_moves_the_sum_of_a_whole_step_by_its_own_gradient(loss):
    """Also with dropout: nobody else's is drawn anew."""

    def clipped(row=None):
        x, y = data()
        if row is not None:
            x[row], y[row] = float("nan"), 0  # whose gradient counts as zero
        run = private(with_dropout(), (x, y), loss=loss, sampling="full-batch", clip_norm=0.3)
        part, examples = next(run.parts(1))
        for piece in run.path.pieces(part.step, part.rows, examples):
            run.add(piece)
        return run, run._total.total.value()[:-1] * N

    run, whole = clipped()
    own = gradients(run, list(range(N)), step=0)
    for row in (0, 17, N - 1):
        expected = own[row] * min(1.0, 0.3 / float(own[row].norm()))
        torch.testing.assert_close(whole - clipped(row)[1], expected, rtol=1e-3, atol=1e-5)


SEEN = {"backward": 0, "forward": 0}


class Counting(torch.autograd.Function):
    """Counts backward passes in a place that the model reads."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        SEEN["backward"] += 1
        return g


class Remembering(nn.Module):
    """Its output depends on how often it was evaluated before, and on how often backward."""

    def __init__(self):
        super().__init__()
        self.linear, self.calls, self.seen = nn.Linear(5, 2), [], SEEN

    def forward(self, x):
        self.calls.append(1)
        SEEN["forward"] += 1
        scale = len(self.calls) + self.seen["forward"] + 10 * self.seen["backward"]
        return Counting.apply(self.linear(x)) * scale


@quiet
@pytest.mark.parametrize("loss", [loss_of, calls_item])
def test_what_forward_and_backward_remember_is_forgotten_after_every_evaluation(loss):
    torch.manual_seed(0)
    run = private(Remembering(), loss=loss)
    rows = list(range(6))
    whole = gradients(run, rows)
    torch.testing.assert_close(gradients(run, rows[2:]), whole[2:], rtol=1e-5, atol=1e-6)
    assert torch.equal(gradients(run, rows), whole)
    train(run, 3)
    assert SEEN == {"backward": 0, "forward": 0} and not run.model.calls


# ---- very many records ----------------------------------------------------------------------------------


MANY = 131_072


def moved_by(differs, loss):
    """How far one record moves the clipped sum of very many equal ones, in clip norms."""

    def total(differs):
        x = torch.linspace(-1, 2, 5).expand(MANY, 5).clone()
        y = torch.ones(MANY, dtype=torch.int64)
        if differs == "zeroed":
            x[5] = float("nan")
        if differs == "replaced":
            y[5] = 0
        if differs == "removed":
            x, y = x[1:], y[1:]
        run = private(network(), (x, y), loss=loss, sampling="full-batch", clip_norm=0.05)
        part, examples = next(run.parts(1))
        for piece in run.path.pieces(part.step, part.rows, examples):
            run.add(piece)
        return run._total.total.value()[:-1].double() * len(x) / 0.05

    return float((total(differs) - total("")).norm())


def linear(model, x, y):
    """Gradients of equal size in one direction."""
    return (model[0](x).sum() * 10) * (2 * y.sum() - 1)


@pytest.mark.parametrize("loss", [linear, pytest.param(loss_of, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("differs", "bound"), [("removed", 1), ("zeroed", 1), ("replaced", 2)])
def test_one_of_131072_records_moves_the_sum_of_a_run_by_its_bound(differs, bound, loss):
    assert 0.5 * bound < moved_by(differs, loss) <= 1.001 * bound


class Depth(nn.Module):
    """Layers that are left out by chance, with random numbers of Python."""

    def __init__(self, draw):
        super().__init__()
        self.layer, self.head, self.draw = nn.Linear(5, 5), nn.Linear(5, 2), draw

    def forward(self, x):
        return self.head(x + self.layer(x).tanh() if self.draw() < 0.5 else x)


@pytest.mark.parametrize("seed", range(3))
def test_random_numbers_of_python_belong_to_the_record_so_examples_are_computed_alone(
    seed, monkeypatch
):
    monkeypatch.delitem(sys.modules, "beartype", raising=False)  # which draws, too
    own = np.random.default_rng(seed)
    for draw in (random.random, np.random.rand, own.random):
        with pytest.warns(
            UserWarning, match="random numbers of NumPy or Python|not those of single"
        ):
            run = private(Depth(draw), steps=1, seed=seed)
        assert isinstance(run.path, Alone)


@quiet
def test_a_generator_that_a_model_keeps_gives_other_numbers_for_every_step_and_record(capsys):
    own = np.random.default_rng(0)

    def draw():
        found = own.random()
        print(found)  # a list would be put back
        return found

    run = private(Depth(draw), steps=2)
    capsys.readouterr()
    train(run)
    seen = capsys.readouterr().out.split()
    assert len(seen) > 10 and len({*seen}) == len(seen)


@quiet
def test_a_loss_may_be_the_method_of_a_trainer_that_holds_its_data():
    """The records are not walked over in every evaluation, and other state of the trainer is put back."""
    x, y = data()

    class Trainer:
        def __init__(self):
            self.rows, self.calls = [{"x": a, "y": b} for a, b in zip(x, y, strict=True)], 0

        def loss(self, model, x, y):
            self.calls += 1
            return loss_of(model, x, y)

    trainer = Trainer()
    run = train(private(dataset=trainer.rows, loss=trainer.loss, steps=2))
    names = run.path._together.state._walk.names
    assert id(trainer) in names and id(trainer.rows[0]) not in names and trainer.calls == 0
