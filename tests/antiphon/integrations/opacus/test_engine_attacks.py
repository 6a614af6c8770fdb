"""How far one record moves the clipped sum in loops with ``loss.backward()``: no more than its bound.

Each case is code that people write, and that mixes the examples of a batch in an ordinary loop.
"""

import math

import pytest
import torch
from oracles.loops import clipped_sum, engine_run, loader
from torch import nn
from torch.nn import functional as F

from antiphon.errors import AntiphonError, RunError, UnsupportedError

L = 16  # records, and places of each: that they coincide is part of some cases


class Positions(nn.Module):
    """A table of positions that is read without an axis for the batch."""

    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(L, 3), nn.Linear(3, 2)

    def forward(self, x):
        return self.out(x + self.table(torch.arange(L))).mean(1)


class Prototypes(nn.Module):
    """A layer over a constant with as many rows as the batch."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.randn(L, 3))
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return x.mean(1) @ self.layer(self.rows).T


class Mixed(nn.Module):
    """A layer that is zero at first, after something that ``mix`` does to the batch."""

    def __init__(self, mix, is_zero=True):
        super().__init__()
        self.first, self.last, self.mix = nn.Linear(3, 3), nn.Linear(3, 2), mix
        self.calls, self.kept = 0, []
        if is_zero:
            nn.init.zeros_(self.last.weight)

    def forward(self, x, *more):
        h = self.first(x.mean(1))
        return self.last(h + self.mix(self, h, *more))


def by_draw(model, h):
    return torch.where(torch.rand(()) > 0.5, 100 * h.mean(0), h)


def by_branch(model, h):
    return h.mean(0) if torch.rand(()) > 0.5 else h


def by_size(model, h):
    return h.mean(0) * 100 if len(h) == L else h


def by_counter(model, h):
    model.calls += 1
    return h.mean(0) * 100 if model.calls > 0 else h


def by_list(model, h):
    model.kept.append(h)
    return torch.stack(model.kept).mean()


def by_values(model, h):
    model.kept.append(h.detach().sum().item())
    return h


def mean_of_batch(model, h):
    return 100 * (h.mean(0) - h)


def given(model, h, statistic):
    return h * statistic


def usual(model, batch):
    F.cross_entropy(model(batch[0]), batch[1]).backward()


def with_weights(model, batch):
    F.cross_entropy(model(batch[0]), batch[1], weight=torch.tensor([1.0, 1000.0])).backward()


def with_weights_summed(model, batch):
    F.cross_entropy(model(batch[0]), batch[1], weight=torch.ones(2), reduction="sum").backward()


def weighted_by_hand(model, batch):
    losses = F.cross_entropy(model(batch[0]), batch[1], reduction="none")
    (losses * torch.softmax(losses.detach(), 0)).sum().backward()


def normalised(model, batch):
    loss = F.cross_entropy(model(batch[0]), batch[1])
    (loss / loss.detach().mean()).backward()


def scaled(model, batch):
    loss = F.cross_entropy(model(batch[0]), batch[1])
    (loss * (1 / loss.item())).backward()


def softened(model, batch):
    out = model(batch[0])
    F.cross_entropy(out, torch.softmax(out.detach() - out.detach().mean(0), 1)).backward()


def across(model, batch):
    F.log_softmax(model(batch[0]), 0).mean().backward()


def with_statistic(model, batch):
    F.cross_entropy(model(batch[0], batch[0].mean()), batch[1]).backward()


def with_a_copy(model, batch):
    F.cross_entropy(model(torch.from_numpy(batch[0].numpy() - 1)), batch[1]).backward()


def centred_before(model, batch):
    F.cross_entropy(model(batch[0] - batch[0].mean(0)), batch[1]).backward()


def changed_in_place(model, batch):
    batch[0].sub_(batch[0].mean(0))
    F.cross_entropy(model(batch[0]), batch[1]).backward()


def changed_in_secret(model, batch):
    array = batch[0].numpy()
    array[:] = array.mean(0)
    F.cross_entropy(model(batch[0]), batch[1]).backward()


def changed_output(model, batch):
    out = model(batch[0])
    out.data.copy_(out.data.mean(0).expand(out.shape))
    F.cross_entropy(out, batch[1]).backward()


def kept_in_the_model(model, batch):
    model.kept = batch[0]
    F.cross_entropy(model(batch[0]), batch[1]).backward()


def kept_in_a_buffer(model, batch):
    model.register_buffer("center", torch.zeros(3))
    model.center[:2].mul_(0.9)
    model.center[:2].add_(batch[0].mean((0, 1))[:2])
    F.cross_entropy(model(batch[0]), batch[1]).backward()


def permuted(model, batch):
    F.cross_entropy(model(batch[0].flip(0)), batch[1]).backward()


def turned(model, batch):
    F.cross_entropy(model(batch[0].transpose(0, 1)), batch[1]).backward()


def decayed_by_hand(model, batch):
    loss = F.cross_entropy(model(batch[0]), batch[1])
    (loss + 0.1 * sum(p.square().sum() for p in model.parameters())).backward()


def decayed_apart(model, batch):
    usual(model, batch)
    (0.1 * sum(p.square().sum() for p in model.parameters())).backward()


def gradients_by_hand(model, batch):
    usual(model, batch)
    model.last.weight.grad = torch.ones_like(model.last.weight)


def in_eval_mode(model, batch):
    model.eval()
    F.cross_entropy(
        model(batch[0]).as_subclass(torch.Tensor), batch[1].as_subclass(torch.Tensor)
    ).backward()


def by_forward(model, batch):
    usual(model, batch)
    x, y = (part.as_subclass(torch.Tensor) for part in batch)
    F.cross_entropy(model.forward(x), y).backward()


def of_the_whole_batch(model, batch):
    F.binary_cross_entropy_with_logits(
        model(batch[0]), torch.rand(len(batch[0]), 2), pos_weight=batch[0].mean()
    ).backward()


def broadcast(model, batch):
    F.mse_loss(model(batch[0])[:, :1], batch[1].float()).backward()


def as_one_distribution(model, batch):
    F.cross_entropy(model(batch[0])[:, 0], batch[1].float()).backward()


def twice(model, batch):
    loss = F.cross_entropy(model(batch[0]), batch[1])
    loss.backward(retain_graph=True)
    loss.backward()


def mean_and_sum(model, batch):
    out = model(batch[0])
    F.cross_entropy(out, batch[1]).backward()
    F.cross_entropy(out, batch[1], reduction="sum").backward()


def records(seed=0, **changes):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(L, L, 3, generator=generator)
    y = torch.arange(L) % 2
    return [[x[i], y[i]] for i in range(L)]


def zero(model, h):
    return 0


CASES = {
    "positions": (Positions, usual, None),
    "prototypes": (Prototypes, usual, None),
    "zero layer": (lambda: Mixed(mean_of_batch), usual, None),
    "draw": (lambda: Mixed(by_draw), usual, None),
    "branch": (lambda: Mixed(by_branch), usual, "ap.make_private evaluates"),
    "size": (lambda: Mixed(by_size), usual, None),
    "counter": (lambda: Mixed(by_counter), usual, None),
    "list": (lambda: Mixed(by_list), usual, None),
    "list of values": (lambda: Mixed(by_values), usual, "ap.make_private evaluates"),
    "class weights": (lambda: Mixed(zero), with_weights, "weight=.*criterion="),
    "class weights, sum": (lambda: Mixed(zero), with_weights_summed, "criterion="),
    "weights by hand": (lambda: Mixed(zero), weighted_by_hand, "computed by sum.*criterion="),
    "normalised loss": (lambda: Mixed(zero), normalised, "criterion="),
    "scaled loss": (lambda: Mixed(zero), scaled, "criterion="),
    "batch statistic in the target": (lambda: Mixed(zero), softened, "whose target was computed by"),
    "softmax over the batch": (lambda: Mixed(zero), across, "computed by mean"),
    "batch statistic as argument": (lambda: Mixed(given), with_statistic, "computed by mean"),
    "a tensor from elsewhere": (lambda: Mixed(zero), with_a_copy, "neither the loader's own"),
    "centred before": (lambda: Mixed(zero), centred_before, "computed by sub"),
    "changed in place": (lambda: Mixed(zero), changed_in_place, "changed in place"),
    "changed in secret": (lambda: Mixed(zero), changed_in_secret, None),
    "changed output": (lambda: Mixed(zero), changed_output, None),
    "kept in the model": (
        lambda: Mixed(lambda m, h: m.kept.mean((0, 1))), kept_in_the_model, "without having been given",
    ),
    "kept in a buffer": (
        lambda: Mixed(lambda m, h: m.center), kept_in_a_buffer, "without having been given",
    ),
    "rows in another order": (lambda: Mixed(zero), permuted, "computed by flip"),
    "turned": (lambda: Mixed(zero), turned, "computed by transpose"),
    "weight decay by hand": (lambda: Mixed(zero), decayed_by_hand, "computed by add"),
    "weight decay apart": (lambda: Mixed(zero), decayed_apart, "without clipping and noise"),
    "gradients by hand": (lambda: Mixed(zero), gradients_by_hand, "without clipping and noise"),
    "eval mode": (lambda: Mixed(zero), in_eval_mode, "no step was prepared|without clipping"),
    "forward": (lambda: Mixed(zero), by_forward, "without clipping and noise"),
    "statistic as weight": (lambda: Mixed(zero), of_the_whole_batch, "criterion="),
    "broadcast": (lambda: Mixed(zero), broadcast, "of shape"),
    "one distribution": (lambda: Mixed(zero), as_one_distribution, "of shape"),
    "twice": (lambda: Mixed(zero), twice, "a second time"),
    "mean and sum": (lambda: Mixed(zero), mean_and_sum, "by the batch's size"),
}  # fmt: skip


def made(make):
    torch.manual_seed(0)
    return make()


def neighbours():
    """The records with one of them replaced by a loud one, and without one, with the proved bounds.

    The last one is left out: random draws belong to row numbers.
    """
    rows, loud = records(), records(seed=1)[3]
    replaced = [*rows[:5], [100 * loud[0], 1 - rows[5][1]], *rows[6:]]
    return [(replaced, 2), (rows[:-1], 1)]


def check_bound(make, body, rows, others, **options):
    whole = clipped_sum(made(make), rows, body, **options)
    assert float(whole.norm()) > 0.01
    for other, bound in others:
        moved = float((whole - clipped_sum(made(make), other, body, **options)).norm())
        assert moved <= 1.001 * bound


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("name", CASES)
def test_one_record_moves_the_sum_by_its_bound_or_the_loop_is_refused(name):
    make, body, refusal = CASES[name]
    if refusal is None:
        check_bound(make, body, records(), neighbours())
    else:
        with pytest.raises(AntiphonError, match=refusal):
            clipped_sum(made(make), records(), body)


def through_the_criterion(model, criterion, batch):
    criterion(model(batch[0]), batch[1]).backward()


class Kept:
    """A criterion that compares with what it has seen."""

    def __init__(self):
        self.center = 0.0

    def __call__(self, out, y):
        self.center = 0.9 * self.center + out.detach().mean(0)
        return F.cross_entropy(out - self.center, y)


CRITERIA = {
    "class weights": nn.CrossEntropyLoss(weight=torch.tensor([1.0, 1000.0])),
    "normalised": lambda out, y: (lambda found: (found / found.detach().mean()).mean())(
        F.cross_entropy(out, y, reduction="none")
    ),
    "softmax over losses": lambda out, y: (lambda found: (found * found.softmax(0)).sum())(
        F.cross_entropy(out, y, reduction="none")
    ),
    "centred": lambda out, y: F.cross_entropy(out - out.detach().mean(0), y),
}


@pytest.mark.parametrize("name", CRITERIA)
def test_a_criterion_sees_one_example_at_a_time(name):
    if name == "centred":  # of one example, the mean is the example: nothing is left but a constant
        total = clipped_sum(
            made(lambda: Mixed(zero)), records(), through_the_criterion, criterion=CRITERIA[name]
        )
        assert math.isfinite(float(total.norm()))
    check_bound(
        lambda: Mixed(zero),
        through_the_criterion,
        records(),
        neighbours(),
        criterion=CRITERIA[name],
    )


def test_what_a_criterion_keeps_is_put_back():
    model = lambda: Mixed(zero)  # noqa: E731
    check_bound(model, through_the_criterion, records(), neighbours(), criterion=Kept())


def test_a_criterion_with_a_statistic_from_outside_is_refused():
    kept = []

    def criterion(out, y):
        return F.cross_entropy(out * kept[0], y)

    def body(model, criterion, batch):
        kept.append(batch[0].std())
        through_the_criterion(model, criterion, batch)

    with pytest.raises(UnsupportedError, match="without having been given"):
        clipped_sum(made(lambda: Mixed(zero)), records(), body, criterion=criterion)


def test_ignored_labels_move_nothing_but_themselves():
    rows = records()
    ignored = [[x, torch.tensor(-100)] for x, _ in rows[:12]] + rows[12:]
    others = [([*ignored[:5], rows[5], *ignored[6:]], 2), ([*ignored[:5], *ignored[6:]], 1)]
    check_bound(lambda: Mixed(zero), usual, ignored, others)
    check_bound(lambda: Mixed(zero), usual, ignored, [(ignored[:13] + ignored[14:], 1)])


def padded(rows):
    xs, ys = zip(*rows, strict=True)
    return nn.utils.rnn.pad_sequence(xs, batch_first=True), torch.tensor(ys)


def ragged(longest=9):
    generator = torch.Generator().manual_seed(0)
    lengths = [3, 4, 5, longest, 3, 4]
    return [(torch.randn(k, 3, generator=generator), i % 2) for i, k in enumerate(lengths)]


def test_padding_to_the_longest_of_a_batch_is_refused_with_the_remedy():
    with pytest.raises(UnsupportedError, match="pad_to"):
        clipped_sum(made(lambda: Mixed(zero)), ragged(), usual, loader={"collate_fn": padded})


def test_padding_to_a_declared_length_holds_the_bound():
    options = {"loader": {"collate_fn": padded}, "pad_to": {0: 9}}
    others = [(ragged(longest=3), 2), (ragged()[:3] + ragged()[4:], 1)]
    check_bound(lambda: Mixed(zero), usual, ragged(), others, **options)


def mixed_up(rows):
    xs, ys = torch.utils.data.default_collate(rows)
    share = 0.3
    return share * xs + (1 - share) * xs.flip(0), ys


def test_mixup_in_the_collate_function_mixes_a_record_with_itself():
    options = {"loader": {"collate_fn": mixed_up}}
    check_bound(lambda: Mixed(zero), usual, records(), neighbours(), **options)


def test_what_a_data_set_reads_of_other_rows_is_left_to_the_certificate():
    engine, *_ = engine_run()
    lines = " ".join(engine.certificate.assumptions)
    assert (
        "neither data set, collate function nor loss reads anything of the data but the example, "
        "or leaves anything behind for another one" in lines
    )


def test_a_number_of_the_batch_as_argument_is_refused_when_it_changes():
    model = Mixed(lambda model, h, size: h / size, is_zero=False)
    _, model, optimizer, batches = engine_run(model, data_loader=loader(records(), batch_size=5))
    with pytest.raises(UnsupportedError, match="A number that changes"):
        for x, y in batches:
            F.cross_entropy(model(x, len(x)), y).backward()
            optimizer.step()


class Holder:
    def __init__(self, x):
        self.x = x


@pytest.mark.parametrize("is_criterion", [False, True])
def test_an_object_that_may_hold_the_batch_is_refused(is_criterion):
    def body(model, criterion, batch):
        held = Holder(batch[0])
        criterion(model(batch[0]) if is_criterion else model(held), held).backward()

    with pytest.raises(UnsupportedError, match="an object of type Holder"):
        clipped_sum(
            made(lambda: Mixed(zero)), records(), body, criterion=lambda out, held: out.sum()
        )


def test_numbers_of_a_batch_are_not_written_to_parameters_by_the_loop():
    _, model, _, batches = engine_run(Mixed(zero), data_loader=loader(records()))
    for x, _ in batches:
        with (
            pytest.raises(UnsupportedError, match="written to a parameter, by add_"),
            torch.no_grad(),
        ):
            model.last.bias.add_(x.mean((0, 1))[:2])
        break


def test_numbers_of_a_batch_may_be_added_up_for_the_eye():
    _, model, optimizer, batches = engine_run(
        Mixed(zero), data_loader=loader(records(), batch_size=4)
    )
    right, losses = torch.zeros(()), torch.zeros(3)
    for step, (x, y) in enumerate(batches):
        out = model(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        right += (out.argmax(1) == y).sum()
        losses[step % 3] = loss.detach()
    assert 0 <= int(right) <= 3 * L and float(losses.sum()) > 0


def test_results_of_an_earlier_batch_are_refused():
    _, model, optimizer, batches = engine_run(
        Mixed(zero), data_loader=loader(records(), batch_size=4)
    )
    earlier = None
    with pytest.raises(AntiphonError, match="has had its step"):
        for x, y in batches:
            F.cross_entropy(model(x if earlier is None else earlier), y).backward()
            earlier = x
            optimizer.step()


def test_a_loss_of_an_earlier_batch_is_refused():
    _, model, optimizer, batches = engine_run(
        Mixed(zero), data_loader=loader(records(), batch_size=4)
    )
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        with pytest.raises(RunError, match="has had its step"):
            loss.backward()
        break
