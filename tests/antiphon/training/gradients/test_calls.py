"""Calls for which torch's batching rules are wrong: one example's values and gradients are its own.

Each is evaluated for three examples and for each alone; changing an example changes no other. Torch is
shown to be wrong where it is said to be, so that a version that is right is noticed.
"""

import pytest
import torch
from torch import nn
from torch.func import vmap
from torch.nn import functional as F

from antiphon.errors import UnsupportedError
from antiphon.training.gradients.alone import Alone
from antiphon.training.gradients.batched import Batched
from antiphon.training.gradients.examples import Examples

IDS = torch.arange(3)
X = torch.tensor([[1.0, 2.0, 0.5], [3.0, -4.0, 1.5], [5.0, 6.0, 2.5]])
TINY = torch.tensor([[1e-30, 1e-30, 1e20], [0.0, 1.0, 2.0], [1.0, 2.0, 3.0]])


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
        self.table = nn.Parameter(torch.arange(6.0).reshape(3, 2) / 7 + 0.3)


def gradients(loss, x):
    model = Scaled()
    named = dict(model.named_parameters())
    rows = Examples.of(x.unsqueeze(1))
    _, factors = Batched(model, loss, named, b"key").evaluate(0, IDS, rows)
    alone = Alone(model, loss, named, b"key")
    expected = [alone.gradients(0, i, rows, i) for i in range(len(x))]
    found = []
    for parameter in named.values():
        shape = (len(x), *parameter.shape)
        zero = torch.zeros(shape)
        found.append(factors[parameter].dense().view(shape) if parameter in factors else zero)
    return found, [torch.stack(rows) for rows in zip(*expected, strict=True)]


def rolled(model, x):
    return (x[0] * model.scale).sum().roll(1) * (1 + x[0, 0].roll(2))


def multiplied(model, x):
    return (x[0] * model.scale).prod() + (x * model.scale).prod(dim=1, keepdim=True).sum()


def masked_product(model, x):
    return torch.masked.prod(x[0] * model.scale, mask=torch.tensor([True, False, True]))


def own_table(model, x):
    words = (x[0].abs() > 2).long()
    return (F.embedding(words, model.table * x[0, 0], padding_idx=1) * model.scale[:, None]).sum()


def shown(model, x):
    return (x[0] * model.scale).sum() * (2.0 if "6." in str(x[0] * 1) else 1.0)


def all_and_any(model, x):
    total = (x[0] * model.scale).sum()
    signs = torch.where(torch._is_all_true(x > 0), 1, -1) + torch.where(
        torch._is_any_true(x > 4), 3, 0
    )
    return total * signs


@pytest.mark.parametrize("x", [X, TINY], ids=["plain", "with tiny numbers and zeros"])
@pytest.mark.parametrize("loss", [rolled, multiplied, masked_product, own_table, all_and_any])
def test_what_is_answered_is_what_it_is_alone(loss, x):
    for one, other in zip(*gradients(loss, x), strict=True):
        torch.testing.assert_close(one, other)


def test_text_shows_no_numbers():
    (scale, _), (_, _) = gradients(shown, X)
    torch.testing.assert_close(scale, X)


@pytest.mark.parametrize(
    "loss", [rolled, multiplied, masked_product, own_table, shown, all_and_any]
)
def test_a_changed_example_changes_no_other(loss):
    before, _ = gradients(loss, TINY)
    for other in (1e3 * TINY[1], TINY[1] * 0 + 1, torch.tensor([torch.nan, 1.0, 2.0])):
        changed = TINY.clone()
        changed[1] = other
        after, _ = gradients(loss, changed)
        for one, two in zip(before, after, strict=True):
            assert torch.equal(one[::2], two[::2])


def filled(model, x):
    return (x * model.scale).index_fill(1, torch.tensor([0]), x[0, 0]).sum()


def quantised(model, x):
    return torch.quantize_per_tensor_dynamic(x.detach(), torch.qint8, False).dequantize().sum()


def least_squares(model, x):
    return torch.linalg.lstsq(x.mT * model.scale[:, None], x.mT, driver="gelsd").residuals.sum()


def added(model, x):
    return (x * model.scale).addbmm_(x[None], torch.eye(3)[None]).sum()


def by_operation(model, x):
    return torch.ops.aten.prod(x * model.scale)


def resized(model, x):
    return (x * model.scale).resize_(2, 3).sum()


@pytest.mark.parametrize("loss", [filled, quantised, least_squares, added, by_operation, resized])
def test_others_are_refused_by_name(loss):
    with pytest.raises(UnsupportedError, match="does not keep examples apart"):
        gradients(loss, X)


def test_rows_that_share_memory_are_not_written_to_together():
    def loss(model, row, x):
        return (row[0].masked_fill_(x[0] > 2, 9.0) * model.scale).sum()

    model = Scaled()
    named, shared = dict(model.named_parameters()), torch.ones(1, 1, 3).expand(3, 1, 3)
    rows = Examples((shared, X.unsqueeze(1)), {})
    _, factors = Batched(model, loss, named, b"key").evaluate(0, IDS, rows)
    expected = torch.where(X > 2, 9.0, 1.0)
    torch.testing.assert_close(factors[model.scale].dense().view(3, 3), expected)
    assert bool((shared == 1).all())


def test_torch_is_wrong_there():
    assert vmap(lambda t: t.roll(1))(torch.tensor([1.0, 2.0, 3.0])).tolist() == [3, 1, 2]
    assert vmap(lambda t: "6." in str(t) and t)(X).tolist() == X.tolist()
    x = TINY.clone().requires_grad_()
    (g,) = torch.autograd.grad(vmap(torch.prod)(x).sum(), x)
    alone = TINY[:1].clone().requires_grad_()
    assert not torch.equal(g[0], torch.autograd.grad(alone[0].prod(), alone)[0][0])
    found = vmap(lambda v: torch.zeros(2).index_fill(0, torch.tensor([0]), v))(
        torch.tensor([1.0, 2.0, 3.0])
    )
    assert found[0].tolist() == [3, 0]
