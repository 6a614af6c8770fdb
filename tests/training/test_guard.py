"""The model sees the run's own batch, and keeps nothing of it."""

import math

import pytest
import torch
from torch import nn

from antiphon.errors import RunError, UnsupportedError
from antiphon.training.guard import Guard
from antiphon.training.tape import Tape


class Counting(nn.Module):
    """Keeps a running mean if told to."""

    def __init__(self, how="not"):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("grid", torch.arange(3.0))
        self.register_buffer("mean", torch.zeros(3))
        self.how = how

    def forward(self, x):
        if self.how == "in place":
            self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
        if self.how == "new":
            self.mean = x.detach().mean(0)
        if self.how == "another shape":
            self.mean = x.detach()
        if self.how == "one more":
            self.register_buffer("seen", x.detach())
        if self.how == "gone":
            self.mean = None
        return self.linear(x * self.grid)


def watched(model, drawn, *fed):
    tape = Tape(model, list(model.parameters()))
    guard = Guard(model)
    guard.hand_out(drawn)
    tape.start()
    loss = sum(model(x).sum() for x in fed)
    return guard, tape.used(loss, 1.0)


X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x,
        lambda x: x.clone(),
        lambda x: x.double().float(),
        lambda x: x.view(4, 3),
        lambda x: x.reshape(2, 6).reshape(4, 3),
        lambda x: x.detach().requires_grad_(),
    ],
)
def test_the_batch_is_recognised_moved_cast_and_reshaped(change):
    guard, records = watched(Counting(), (X, torch.zeros(4)), change(X))
    guard.check(records)


def test_a_batch_with_missing_numbers_is_recognised():
    data = X.clone()
    data[1, 2] = math.nan
    guard, records = watched(Counting(), {"x": data}, data.clone())
    guard.check(records)


def test_missing_numbers_may_be_filled_in_and_no_others_lost():
    data = X.clone()
    data[1, 2] = math.nan
    guard, records = watched(Counting(), (data,), data.nan_to_num(7.0))
    guard.check(records)
    guard, records = watched(Counting(), (X,), data)
    with pytest.raises(RunError, match="other data"):
        guard.check(records)


def test_one_number_of_the_batch_is_not_taken_for_all_of_it():
    guard, records = watched(Counting(), (torch.zeros(1),), torch.zeros(4, 3))
    with pytest.raises(RunError, match="other data"):
        guard.check(records)


def test_the_batch_before_is_refused():
    model = Counting()
    tape, guard = Tape(model, list(model.parameters())), Guard(model)
    for drawn in (X, X + 1):
        guard.hand_out((drawn,))
    tape.start()
    with pytest.raises(RunError, match="other data"):
        guard.check(tape.used(model(X).sum(), 1.0))


def test_other_data_is_refused_unless_declared():
    guard, records = watched(Counting(), (X,), X + 1)
    with pytest.raises(RunError, match=r"run\.derived"):
        guard.check(records)
    derived = X + 1
    guard, records = watched(Counting(), (X,), derived)
    guard.allow([derived])
    guard.check(records)


def test_one_call_on_other_data_among_several_is_refused():
    guard, records = watched(Counting(), (X,), X, X + 1)
    with pytest.raises(RunError, match="other data"):
        guard.check(records)


def test_a_loss_must_come_through_the_model():
    guard, _ = watched(Counting(), (X,), X)
    with pytest.raises(RunError, match="does not depend on the model's parameters"):
        guard.check([])


def test_a_layer_called_by_itself_is_refused_by_name():
    model = Counting()
    tape, guard = Tape(model, list(model.parameters())), Guard(model)
    guard.hand_out((X,))
    tape.start()
    with pytest.raises(RunError, match="'linear' was called by itself"):
        guard.check(tape.used(model.linear(X).sum(), 1.0))


@pytest.mark.parametrize("how", ["in place", "new"])
def test_buffers_that_follow_the_data_are_refused_and_set_back(how):
    model = Counting(how)
    guard, records = watched(model, (X,), X)
    assert float(model.mean.norm()) > 0
    with pytest.raises(UnsupportedError, match="its buffer 'mean' while it ran"):
        guard.check(records)
    assert torch.equal(model.mean, torch.zeros(3))
    assert torch.equal(model.grid, torch.arange(3.0))


def test_a_buffer_of_another_shape_keeps_nothing_of_the_data():
    model = Counting("another shape")
    tape, guard = Tape(model, list(model.parameters())), Guard(model)
    for how in (
        "another shape",
        "in place",
    ):  # the second would change what the first was set back to
        model.how = how
        guard.hand_out((X,))
        tape.start()
        with pytest.raises(UnsupportedError, match="'mean'"):
            guard.check(tape.used(model(X).sum(), 1.0))
        assert torch.equal(model.mean, torch.zeros(3))


def test_a_buffer_that_vanishes_is_refused_and_set_back():
    model = Counting("gone")
    guard, records = watched(model, (X,), X)
    with pytest.raises(UnsupportedError, match="'mean'"):
        guard.check(records)
    assert torch.equal(model.mean, torch.zeros(3))


def test_a_buffer_with_two_names_is_set_back_under_both():
    model = Counting("in place")
    model.also = nn.Identity()
    model.also.register_buffer("mean", model.mean)
    guard, records = watched(model, (X,), X)
    with pytest.raises(UnsupportedError, match="'mean'"):
        guard.check(records)
    assert torch.equal(model.mean, torch.zeros(3)) and model.also.mean is model.mean


def test_a_buffer_that_is_made_on_the_way_is_refused_and_emptied():
    model = Counting("one more")
    guard, records = watched(model, (X,), X)
    with pytest.raises(UnsupportedError, match="'seen'"):
        guard.check(records)
    assert model.seen is None


def test_a_buffer_in_the_place_of_a_former_one_is_seen():
    for calls in range(2, 6):  # freed memory is used again
        guard, records = watched(Counting("new"), (X,), *[X] * calls)
        with pytest.raises(UnsupportedError, match="'mean'"):
            guard.check(records)


def test_what_changes_between_two_steps_only_is_accepted():
    model = Counting()
    tape, guard = Tape(model, list(model.parameters())), Guard(model)
    for _ in range(3):
        guard.hand_out((X,))
        tape.start()
        guard.check(tape.used(model(X).sum(), 1.0))
        with torch.no_grad():
            model.linear.weight.add_(0.1)
            model.grid.mul_(0.5)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x[:1].expand_as(x),  # one row for all: its example would count as often
        lambda x: x.T,  # columns in place of rows
        lambda x: x.flip(0),
    ],
)
def test_other_rows_of_the_same_memory_are_refused(change):
    square = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
    guard, records = watched(Counting(), (square,), change(square))
    with pytest.raises(RunError, match=r"run\.derived"):
        guard.check(records)


def test_rows_that_overlap_in_the_batchs_memory_are_refused():
    guard, records = watched(Counting(), (X,), X.as_strided((2, 2, 3), (3, 3, 1)))
    with pytest.raises(RunError, match=r"run\.derived"):
        guard.check(records)


def test_axes_within_a_row_may_move():
    class Image(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution = nn.Conv2d(3, 2, 1)

        def forward(self, x):
            return self.convolution(x)

    images = torch.randn(4, 5, 5, 3)
    guard, records = watched(Image(), (images,), images.permute(0, 3, 1, 2))
    guard.check(records)
    guard, records = watched(Image(), (images[:1],), images[0].permute(2, 0, 1)[None])
    guard.check(records)


def test_a_batch_that_was_mixed_in_place_is_refused_unless_declared():
    # As some libraries mix up examples: what is fed is the tensor that was handed out.
    data, model = X.clone(), Counting()
    guard, tape = Guard(model), Tape(model, list(model.parameters()))
    guard.hand_out((data,))
    tape.start()
    other = data.flip(0).mul_(0.5)
    data.mul_(0.5).add_(other)
    records = tape.used(model(data).sum(), 1.0)
    with pytest.raises(RunError, match="changed in place"):
        guard.check(records)
    guard.allow([data])
    guard.check(records)


def test_a_parameter_that_the_model_changes_by_itself_is_refused():
    class Codebook(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 2)
            self.code = nn.Parameter(torch.zeros(3), requires_grad=False)

        def forward(self, x):
            with torch.no_grad():
                self.code.lerp_(x.mean(0), 0.1)
            return self.linear(x)

    guard, records = watched(Codebook(), (X,), X)
    with pytest.raises(UnsupportedError, match="'code' was changed"):
        guard.check(records)


def test_what_is_made_of_a_batch_without_tensors_is_declared():
    guard, records = watched(Counting(), ["some", "words"], X)
    with pytest.raises(RunError, match=r"run\.derived"):
        guard.check(records)
    guard.allow([X])
    guard.check(records)
