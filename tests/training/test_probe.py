"""Mixtures of examples are found on the first batch, honest models and losses pass, nothing is touched."""

import copy
import math
from contextlib import nullcontext
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from antiphon.errors import UnsupportedError
from antiphon.training import make_private
from antiphon.training.buffer import Buffer
from antiphon.training.probe import check_mean, probe
from antiphon.training.tape import Tape


class Apply(nn.Module):
    def __init__(self, run, *modules):
        super().__init__()
        self.run, self.parts = run, nn.ModuleList(modules)

    def forward(self, *args, **kwargs):
        return self.run(*self.parts, *args, **kwargs)


def look(model, args, loss_of, around=None):
    """What a run does with its first batch; the model is called within ``around``."""
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    tape = Tape(model, list(named.values()))
    try:
        tape.start()
        with around or nullcontext():
            out = model(*args)
        loss = loss_of(out)
        rows = len(args[0])
        scale = float(rows) if loss.ndim == 0 else 1.0
        records = tape.used(loss, scale, retain_graph=True)
        start = torch.full_like(loss, scale)
        plain = torch.autograd.grad(
            loss, list(named.values()), start, retain_graph=True, allow_unused=True
        )
        by_parameter = dict(zip(named.values(), plain, strict=True))
        with tape.paused():
            return probe(model, tape, records, rows, by_parameter, Buffer(named), loss)
    finally:
        tape.detach()


def squares(out):
    return out.reshape(len(out), -1).square().sum(1)


def x(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def batch_normalised(layer, x):
    h = layer(x)
    return (h - h.mean(0)) / (h.std(0) + 1)


def across(layer, last, x):
    h = layer(x)
    return last(torch.softmax(h @ h.T, dim=-1) @ h)


def time_first(layer, x):
    return layer(x.transpose(0, 1)).transpose(0, 1)


L = nn.Linear
MIXING_MODELS = {
    "batch normalisation": lambda: Apply(batch_normalised, L(3, 2)),
    "less the batch mean": lambda: Apply(lambda a, x: a(x) - a(x).mean(0), L(3, 2)),
    "a little of the mean": lambda: Apply(lambda a, x: a(x) + 1e-3 * a(x).mean(0), L(3, 2)),
    "attention across the batch": lambda: Apply(across, L(3, 3), L(3, 2)),
    "less the first": lambda: Apply(lambda a, x: a(x - x[:1]), L(3, 2)),
    "less the last": lambda: Apply(lambda a, x: a(x - x[-1:]), L(3, 2)),
    "sums so far": lambda: Apply(lambda a, x: a(x.cumsum(0)), L(3, 2)),
    "the neighbour": lambda: Apply(lambda a, x: a(x + 0.1 * x.roll(1, 0)), L(3, 2)),
    "the next but one": lambda: Apply(lambda a, x: a(x + 0.1 * x.roll(2, 0)), L(3, 2)),
    "the largest": lambda: Apply(lambda a, x: a(x) + a(x).amax(0), L(3, 2)),
    "mixed and unmixed": lambda: Apply(lambda a, x: a(x.flip(0)).flip(0), L(3, 2)),
}


@pytest.mark.parametrize("rows", [2, 5, 8])
@pytest.mark.parametrize("name", MIXING_MODELS)
def test_a_model_that_mixes_examples_is_refused(name, rows):
    if name == "the next but one" and rows == 2:
        return  # then it is the example itself
    if name == "mixed and unmixed" and rows % 2:
        rows += 1
    with pytest.raises(UnsupportedError, match="the model mixes"):
        look(MIXING_MODELS[name](), (x(rows, 3),), squares)
    with pytest.raises(UnsupportedError, match="mixes"):
        look(MIXING_MODELS[name](), (x(rows, 3),), lambda out: squares(out).mean())


def test_a_layer_that_sees_time_first_is_refused_even_if_time_is_as_long_as_the_batch():
    with pytest.raises(UnsupportedError, match="batch_first"):
        look(Apply(time_first, L(3, 2)), (x(4, 4, 3),), squares)
    with pytest.raises(UnsupportedError, match="first axis"):
        look(Apply(time_first, L(3, 2)), (x(4, 6, 3),), squares)
    encoder = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0)  # not batch_first
    with pytest.raises(UnsupportedError, match="batch_first"):
        look(Apply(time_first, encoder), (x(4, 4, 4),), squares)


MIXING_LOSSES = {
    "square of the mean": lambda out: out.mean().square(),
    "variance": lambda out: out.var(0).sum(),
    "contrast": lambda out: F.cross_entropy(out @ out.T, torch.arange(len(out))),
    "scaled by the batch": lambda out: (out.square().sum() / out.detach().square().sum()).square(),
    "log of the mean": lambda out: out.exp().mean().log(),
    "per row: less the mean": lambda out: squares(out - out.mean(0)),
    "per row: a rank": lambda out: F.relu(out[:, 0, None] - out[None, :, 0]).sum(1),
    "per row: contrast": lambda out: F.cross_entropy(
        out @ out.T, torch.arange(len(out)), reduction="none"
    ),
    "per row: the largest": lambda out: squares(out) + out.amax(),
    "per row: the first": lambda out: squares(out) + out[:1].sum(),
    "per row: the last": lambda out: squares(out) + out[-1:].sum(),
    "per row: only the third": lambda out: squares(out) + out[2].sum() * torch.tensor([0, 1, 0, 0]),
}  # fmt: skip


@pytest.mark.parametrize("name", MIXING_LOSSES)
def test_a_loss_that_mixes_examples_is_refused(name):
    with pytest.raises(UnsupportedError, match="the loss mixes"):
        look(nn.Sequential(L(3, 4), nn.Tanh(), L(4, 3)), (x(4, 3),), MIXING_LOSSES[name])


LABELS = torch.tensor([0, 2, 1, 2])


@pytest.mark.parametrize("wrap", [lambda t: t, lambda t: 2 * t + 1, lambda t: (t / 3).sum()])
@pytest.mark.parametrize(
    "options",
    [{"weight": torch.tensor([1.0, 2.0, 3.0])}, {"ignore_index": 1}, {"ignore_index": 2}],
)
def test_a_mean_that_divides_by_labels_of_the_batch_is_refused(options, wrap):
    out = x(4, 3).requires_grad_()
    with pytest.raises(UnsupportedError, match="reduction='none'"):
        check_mean(wrap(F.cross_entropy(out, LABELS, **options)))
    images = x(4, 3, 2, 2).requires_grad_()
    with pytest.raises(UnsupportedError, match="reduction='none'"):
        check_mean(wrap(F.cross_entropy(images, LABELS[:, None, None].expand(4, 2, 2), **options)))


def test_an_honest_mean_divides_by_the_number_of_labels():
    out = x(4, 3).requires_grad_()
    check_mean(F.cross_entropy(out, LABELS))
    check_mean(F.cross_entropy(out, LABELS, ignore_index=7))
    check_mean(F.cross_entropy(out, LABELS, weight=torch.ones(3), reduction="sum"))
    check_mean(out.sum())


POSITIVE = torch.tensor([0.0, 1.0, 1.0, 0.0])[:, None].expand(4, 3)


def reduced(losses, reduction):
    return losses if reduction == "none" else losses.mean()


LOSSES = {
    "cross entropy": lambda out, r: F.cross_entropy(out, LABELS, reduction=r),
    "smoothed": lambda out, r: F.cross_entropy(out, LABELS, label_smoothing=0.1, reduction=r),
    "binary": lambda out, r: F.binary_cross_entropy_with_logits(out, POSITIVE, reduction=r),
    "squared": lambda out, r: F.mse_loss(out, POSITIVE, reduction=r),
    "absolute": lambda out, r: F.l1_loss(out, POSITIVE, reduction=r),
    "huber": lambda out, r: F.huber_loss(out, POSITIVE, reduction=r),
    "hinge": lambda out, r: reduced(F.relu(1 - (2 * POSITIVE - 1) * out), r),
    "divergence": lambda out, r: F.kl_div(
        out.log_softmax(1), POSITIVE + 0.1, reduction={"mean": "batchmean"}.get(r, r)
    ),
    "linear": lambda out, r: out if r == "none" else out.mean(),
    "poisson": lambda out, r: F.poisson_nll_loss(out, POSITIVE, reduction=r),
}


@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("name", LOSSES)
def test_honest_losses_pass(name, reduction):
    model = nn.Sequential(L(3, 4), nn.Dropout(0.5), nn.Tanh(), L(4, 3))
    assert look(model, (x(4, 3),), lambda out: LOSSES[name](out, reduction))


@dataclass
class Result:
    logits: torch.Tensor


def transformer():
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.2, batch_first=True)
    return nn.Sequential(layer, L(4, 2))


def keys_and_queries(q, k, v, x):
    return torch.softmax(q(x) @ k(x).mT, -1) @ v(x)


HONEST = {
    "transformer": (transformer, (x(4, 5, 4),), squares),
    "as long as the batch": (transformer, (x(4, 4, 4),), squares),
    "tokens": (
        lambda: nn.Sequential(nn.Embedding(5, 3), L(3, 5)),
        (torch.arange(12).view(4, 3) % 5,),
        lambda out: F.cross_entropy(out.mT, torch.ones(4, 3).long(), reduction="none"),
    ),
    "tokens, mean": (
        lambda: nn.Sequential(nn.Embedding(5, 3), L(3, 5)),
        (torch.arange(12).view(4, 3) % 5,),
        lambda out: F.cross_entropy(out.mT, torch.ones(4, 3).long()),
    ),
    "a mask as large as the batch": (
        lambda: Apply(
            lambda a, x, mask: a(x, x, x, attn_mask=mask)[0],
            nn.MultiheadAttention(4, 2, batch_first=True),
        ),
        (x(4, 4, 4), torch.triu(torch.ones(4, 4), 1) > 0),
        squares,
    ),
    "a bias without effect": (
        lambda: Apply(keys_and_queries, L(4, 3), L(4, 3), L(4, 3)),
        (x(4, 5, 4),),
        squares,
    ),
    "a data class": (
        lambda: Apply(lambda a, x: Result(a(x)), L(3, 2)),
        (x(4, 3),),
        lambda out: squares(out.logits).mean(),
    ),
    "a dictionary": (
        lambda: Apply(lambda a, x: {"y": a(x), "n": 3, "is": a(x) > 0}, L(3, 2)),
        (x(4, 3),),
        lambda out: squares(out["y"]).mean(),
    ),
    "equal rows": (lambda: L(3, 2), (torch.ones(4, 3),), squares),
    "rows of zeros": (lambda: L(3, 2), (torch.zeros(4, 3),), squares),
    "half precision": (
        lambda: nn.Sequential(L(3, 4), nn.Tanh(), L(4, 2)).bfloat16(),
        (x(4, 3).bfloat16(),),
        squares,
    ),
    "checkpointed": (
        lambda: Apply(
            lambda a, b, x: checkpoint(b, a(x), use_reentrant=False),
            L(3, 3),
            nn.Sequential(L(3, 3), nn.Tanh()),
        ),
        (x(4, 3),),
        squares,
    ),
    "many rows": (lambda: L(3, 2), (x(67, 3),), squares),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_models_pass(name):
    torch.manual_seed(0)
    build, args, loss = HONEST[name]
    assert look(build(), args, loss)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e38])
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_an_example_that_is_not_finite_is_no_mixture_and_leaves_the_probe_open(bad, reduction):
    torch.manual_seed(0)
    data = x(4, 3)
    data[1] = bad
    model = nn.Sequential(L(3, 4), nn.Tanh(), nn.LayerNorm(4), L(4, 3))
    is_finite = look(model, (data,), lambda out: F.cross_entropy(out, LABELS, reduction=reduction))
    assert is_finite == math.isfinite(bad)


def test_a_mixture_is_found_beside_an_example_that_is_not_finite():
    data = x(4, 3)
    data[1] = math.nan
    with pytest.raises(UnsupportedError, match="the model mixes"):
        look(MIXING_MODELS["the neighbour"](), (data,), squares)


def test_a_loss_without_second_derivative_must_be_given_by_example():
    with pytest.raises(UnsupportedError, match="second derivative"):
        look(L(3, 3), (x(4, 3),), lambda out: F.multi_margin_loss(out, LABELS))
    assert look(L(3, 3), (x(4, 3),), lambda o: F.multi_margin_loss(o, LABELS, reduction="none"))


def test_a_mean_of_hidden_outputs_must_be_given_by_example():
    class Hidden:
        def __init__(self, out):
            self.out = out

    model = Apply(lambda a, x: Hidden(a(x)), L(3, 2))
    with pytest.raises(UnsupportedError, match="reduction='none'"):
        look(model, (x(4, 3),), lambda hidden: squares(hidden.out).mean())
    assert look(model, (x(4, 3),), lambda hidden: squares(hidden.out))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.mid = L(3, 3)

    def forward(self, index):
        return F.linear(self.mid(self.embed(index)), self.embed.weight)


def test_a_functional_use_of_a_weight_is_refused_by_name():
    with pytest.raises(UnsupportedError, match=r"'embed\.weight' is used where no layer shows it"):
        look(Tied(), (torch.tensor([0, 1, 2, 4]),), squares)


@pytest.mark.parametrize("loss_of", [squares, lambda out: squares(out).mean()])
def test_a_penalty_on_weights_is_refused_by_name_and_with_the_remedy(loss_of):
    model = L(3, 2)
    with pytest.raises(
        UnsupportedError, match=r"'weight' is used where .* penalty .* weight_decay="
    ):
        look(model, (x(4, 3),), lambda out: loss_of(out) + 0.1 * model.weight.square().sum())


def shifted_in_secret(layer, x):
    """A mixture that no gradient shows."""
    return layer(x - x.mean(0).detach())


def test_a_square_batch_is_exchanged_as_any_other():
    with pytest.raises(UnsupportedError, match="the model mixes"):
        look(Apply(shifted_in_secret, L(3, 2)), (x(3, 3),), squares)


def test_a_number_of_outputs_that_follows_the_batch_is_a_mixture():
    model = Apply(lambda a, x: [a(x)] * len(x.unique(dim=0)), L(3, 2))
    with pytest.raises(UnsupportedError, match="the model mixes"):
        look(model, (x(4, 3),), lambda outs: squares(outs[0]))


def test_rows_that_are_lost_with_other_rows_are_a_mixture():
    model = Apply(
        lambda a, x: a(x) * (1.0 if len(x.unique(dim=0)) == len(x) else math.nan), L(3, 2)
    )
    with pytest.raises(UnsupportedError, match="mixes the examples"):
        look(model, (x(4, 3),), squares)


def test_a_model_of_anything_but_tensors_cannot_be_checked():
    model = Apply(lambda a, rows: a(torch.tensor(rows)), L(3, 2))
    with pytest.raises(UnsupportedError, match="no argument of the model"):
        look(model, (x(4, 3).tolist(),), squares)


def test_every_call_of_the_model_is_looked_at():
    model = Apply(lambda a, x, m=False: shifted_in_secret(a, x) if m else a(x), L(3, 2))
    data = x(4, 3)
    assert look(model, (data,), lambda out: squares(out) + squares(model(data)))
    with pytest.raises(UnsupportedError, match="the model mixes"):
        look(model, (data,), lambda out: squares(out) + squares(model(data, True)))


def test_the_model_runs_again_in_the_precision_it_had():
    model = Apply(lambda a, x: a(x.bfloat16()).float(), L(3, 2))
    assert look(model, (x(4, 3),), squares, torch.autocast("cpu", dtype=torch.bfloat16))


def test_a_mean_whose_mixture_cancels_under_equal_weights_is_found():
    def loss(out):
        return (out[:, 0] - out[:, 1]).sum() * (out[:, 2] - out[:, 3]).sum()

    with pytest.raises(UnsupportedError, match="the loss mixes"):
        look(L(3, 4), (x(4, 3),), loss)


def test_rounding_is_no_mixture():
    def shifted(layer, x):
        out = layer(x.bfloat16())
        shift = out.detach().mean(0) / 8
        return (out + shift) - shift  # the rest is rounding

    assert look(Apply(shifted, L(3, 2).bfloat16()), (x(4, 3),), lambda out: squares(out.float()))


def test_rough_gradients_need_not_add_up_to_the_last_digits():
    model = Apply(lambda a, x: a(x) - a(0.95 * x), nn.Linear(20, 8, bias=False).bfloat16())
    assert look(model, (x(16, 20).bfloat16(),), lambda out: out.float().sum(1))


def test_class_weights_are_refused_also_where_their_sum_is_the_count():
    out, labels = x(4, 2).requires_grad_(), torch.tensor([0, 1, 0, 1])
    with pytest.raises(UnsupportedError, match="divided by a sum over the batch's labels"):
        check_mean(F.cross_entropy(out, labels, weight=torch.tensor([0.5, 1.5])))


def test_small_gradients_are_checked_as_well():
    with pytest.raises(UnsupportedError, match=r"embed\.weight"):
        look(Tied(), (torch.tensor([0, 1, 2, 4]),), lambda out: 1e-9 * squares(out))


@pytest.mark.filterwarnings("ignore:torch.utils.checkpoint")
def test_reentrant_checkpoints_are_refused():
    block = nn.Sequential(L(3, 3), nn.Tanh())
    model = Apply(lambda a, b, x: checkpoint(b, a(x), use_reentrant=True), L(3, 3), block)
    with pytest.raises(UnsupportedError, match="use_reentrant=False"):
        look(model, (x(4, 3),), squares)


def test_nothing_is_touched():
    torch.manual_seed(0)
    model = nn.Sequential(L(3, 4), nn.Dropout(0.5), L(4, 3))
    model.register_buffer("grid", torch.arange(3.0))
    state = copy.deepcopy(model.state_dict())
    versions = [t._version for t in (*model.parameters(), *model.buffers())]
    data, before = x(4, 3), x(4, 3)
    model(data)
    torch.manual_seed(1)
    model(data)
    expected = torch.random.get_rng_state()
    torch.manual_seed(1)
    assert look(model, (data,), lambda out: F.cross_entropy(out, LABELS))
    assert torch.equal(torch.random.get_rng_state(), expected)
    assert all(torch.equal(state[k], v) for k, v in model.state_dict().items())
    assert versions == [t._version for t in (*model.parameters(), *model.buffers())]
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(data, before)


@pytest.mark.parametrize("bad", ["model", "loss", "weight"])
def test_a_run_refuses_before_its_first_release(bad):
    torch.manual_seed(0)
    model = {"model": MIXING_MODELS["less the batch mean"](), "loss": L(3, 2), "weight": L(3, 2)}[
        bad
    ]
    before = copy.deepcopy(model.state_dict())
    run = make_private(
        model, torch.optim.SGD(model.parameters(), lr=1.0), (x(8, 3),), noise_multiplier=1.0, delta=1e-5,
        steps=2, sampling="full-batch", mechanism="independent", seed=0,
    )  # fmt: skip
    (data,) = next(iter(run.batches()))
    out = model(data)
    loss = {
        "model": lambda: squares(out),
        "loss": lambda: out.mean().square(),
        "weight": lambda: squares(out) + model.weight.sum(),
    }[bad]()
    with pytest.raises(UnsupportedError):
        run.step(loss)
    assert run.steps_taken == 0
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    run.close()


def test_examples_whose_gradients_cancel_pass_and_a_hidden_use_is_still_found():
    # Balanced classes at a start that answers 0: what is left of the sums is rounding.
    model = nn.Linear(2, 3)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    x, y = torch.full((30, 2), 0.3), torch.arange(30) // 10
    run = make_private(
        model, torch.optim.SGD(model.parameters(), lr=0.1), (x, y), noise_multiplier=1.0, delta=1e-3,
        steps=1, sampling="full-batch", mechanism="independent", seed=0,
    )  # fmt: skip
    with run:
        for rows, labels in run.batches():
            run.step(F.cross_entropy(model(rows), labels, reduction="none"))
    with pytest.raises(UnsupportedError, match="'bias' is used where no layer shows it"):
        look(
            model,
            (x,),
            lambda out: F.cross_entropy(out, y, reduction="none") + 1e-3 * model.bias.sum(),
        )
