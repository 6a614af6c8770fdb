"""What is changed about torch while a loss is evaluated, and what is refused there."""

import sys
import warnings

import pytest
import torch
from torch import nn
from torch._C import _functorch as functorch
from torch._functorch.autograd_function import custom_function_call
from torch.func import vmap
from torch.utils import checkpoint

from antiphon.errors import UnsupportedError
from antiphon.models import splines
from antiphon.numerics import UniformSplines
from antiphon.training.gradients.batched import Batched
from antiphon.training.gradients.calls import check_call
from antiphon.training.gradients.context import evaluation
from antiphon.training.gradients.examples import Examples

EXAMPLES = 4


class Doubled(torch.autograd.Function):
    """Twice the input; torch makes its batching rule."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return 2 * g


class Mixing(Doubled):
    """A batching rule of the user's own, which mixes examples."""

    generate_vmap_rule = False

    @staticmethod
    def vmap(info, in_dims, x):
        return 2 * x + x.mean(in_dims[0], keepdim=True), in_dims[0]


@torch.library.custom_op("antiphon_tests::mixing", mutates_args=())
def mixing(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


@mixing.register_fake
def _(x):
    return torch.empty_like(x)


mixing.register_vmap(lambda info, in_dims, x: (2 * x + x.mean(), in_dims[0]))
mixing.register_autograd(lambda ctx, g: 2 * g)


@torch.library.custom_op("antiphon_tests::unbatched", mutates_args=())
def unbatched(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


unbatched.register_autograd(lambda ctx, g: 2 * g)


def of_model(middle):
    """A model, its loss with something in the middle, and examples."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()

    def loss(model, x):
        return model[2](middle(model[1](model[0](x)))).square().sum()

    return model, loss, torch.randn(EXAMPLES, 1, 3, dtype=torch.float64)


def check_equal(middle, alone=None):
    """Gradients of a batch are those of its examples by plain autograd."""
    model, loss, x = of_model(middle)
    path = Batched(model, loss, dict(model.named_parameters()), bytes(32))
    _, factors = path.evaluate(0, torch.arange(EXAMPLES), Examples.of((x,)))
    plain = loss if alone is None else of_model(alone)[1]
    by_number = [factors[p].dense() for p in model.parameters()]
    for i in range(EXAMPLES):
        alone = torch.autograd.grad(plain(model, x[i]), list(model.parameters()))
        for rows, one in zip(by_number, alone, strict=True):
            torch.testing.assert_close(rows[i].view(one.shape), one)


def check_refused(middle, error=UnsupportedError, match="batching rule of its own"):
    model, loss, x = of_model(middle)
    path = Batched(model, loss, dict(model.named_parameters()), bytes(32))
    with pytest.raises(error, match=match):
        path.evaluate(0, torch.arange(EXAMPLES), Examples.of((x,)))


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_change_no_gradient(reentrant):
    inner = nn.Tanh()
    check_equal(lambda x: checkpoint.checkpoint(inner, x, use_reentrant=reentrant), inner)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_around_trained_layers_change_no_gradient(reentrant):
    model, _, x = of_model(None)

    def loss(model, x):
        x = checkpoint.checkpoint_sequential(model, 2, x, use_reentrant=reentrant)
        return x.square().sum()

    path = Batched(model, loss, dict(model.named_parameters()), bytes(32))
    _, factors = path.evaluate(0, torch.arange(EXAMPLES), Examples.of((x,)))
    for i in range(EXAMPLES):
        found = [factors[p].dense()[i].view(p.shape) for p in model.parameters()]
        one = model(x[i]).square().sum()
        torch.testing.assert_close(found, list(torch.autograd.grad(one, list(model.parameters()))))


def test_hooks_on_saved_tensors_are_refused():
    def packed(x):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            return x.sin()

    def on_cpu(x):
        with torch.autograd.graph.save_on_cpu():
            return x.sin()

    for middle in (packed, on_cpu):
        check_refused(middle, RuntimeError, "Hooks on saved tensors")


def test_batching_rules_of_users_are_refused():
    check_refused(Mixing.apply)


def test_batching_rules_that_torch_makes_are_not():
    check_equal(Doubled.apply)


def test_registered_batching_rules_of_users_are_refused():
    check_refused(mixing)
    check_refused(torch.ops.antiphon_tests.mixing)
    check_refused(torch.ops.antiphon_tests.mixing.default)


def test_registered_operations_without_one_are_left_to_single_examples():
    """Torch would call them for one example after another, without putting state back between."""
    check_refused(unbatched, match="does not have a batching rule")


def test_operations_of_torch_pass():
    check_equal(torch.ops.aten.sin)
    check_equal(torch.ops.aten.sin.default)
    check_call(torch.sin)


@pytest.mark.parametrize("order", [0, 1])
def test_our_own_batching_rules_keep_rows_apart(order):
    """They are trusted: another row changes no result and no gradient, wherever the axis of rows is."""
    grid = UniformSplines(5)
    x = torch.rand(EXAMPLES, 6, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(EXAMPLES, 6, 8, dtype=torch.float64)

    def one(x, w):
        return (splines.spline_basis(x, grid, order) * w).sum()

    changed = x.detach().clone()
    changed[1] = torch.rand(6, dtype=torch.float64) - 1
    found = []
    for rows in (x, changed.requires_grad_()):
        for axis in (0, 1):
            with evaluation():
                out = vmap(one, (axis, 0))(rows.movedim(0, axis), weights)
            found.append((out, torch.autograd.grad(out.sum(), rows)[0]))
    alone = torch.stack([one(row, w) for row, w in zip(x, weights, strict=True)])
    for out, gradient in found:
        torch.testing.assert_close(out[[0, 2, 3]], alone[[0, 2, 3]])
        torch.testing.assert_close(gradient[[0, 2, 3]], found[0][1][[0, 2, 3]])
    assert not torch.equal(found[0][0][1], found[2][0][1])


def settings():
    """All that an evaluation changes."""
    tracing = getattr(sys.modules.get("transformers.utils.import_utils"), "is_tracing", None)
    return (
        torch.is_grad_enabled(),
        torch.backends.mha.get_fastpath_enabled(),
        torch._C._autograd._saved_tensors_hooks_get_disabled_error_message(),
        checkpoint._checkpoint_without_reentrant_generator,
        checkpoint.CheckpointFunction,
        custom_function_call.functorch_table[functorch.TransformType.Vmap],
        getattr(tracing, "__code__", None),
    )


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_all_settings_are_put_back(error):
    import transformers.utils.import_utils  # noqa: F401

    with torch.no_grad():
        before = settings()
    try:
        with torch.no_grad(), evaluation():
            within = settings()
            assert all(
                one is not other
                for one, other in zip(within, before, strict=True)
                if not isinstance(one, bool)
            )
            with evaluation():
                pass
            assert settings() == within
            if error is not None:
                raise error
    except (ValueError, KeyboardInterrupt):
        pass
    with torch.no_grad():
        assert settings() == before


def test_other_threads_wait_for_the_end():
    import threading

    seen = []

    def enter():
        with evaluation():
            seen.append(len(seen))

    with evaluation():
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join(0.05)
        assert not seen
    thread.join()
    assert seen == [0]


def test_slow_operations_are_not_remarked_on_but_other_warnings_stay():
    def loss(x):
        warnings.warn("mine", UserWarning, stacklevel=1)
        return torch.histc(x, 3, 0.0, 1.0)

    x = torch.rand(EXAMPLES, 5)
    with warnings.catch_warnings(record=True) as seen, evaluation():
        warnings.simplefilter("always")
        vmap(loss)(x)
    assert [str(w.message) for w in seen] == ["mine"]
    with pytest.warns(UserWarning, match="performance drop"):
        vmap(lambda x: torch.histc(x, 3, 0.0, 1.0))(x)


def test_masks_are_unread_only_under_vmap_and_within():
    from transformers.utils import import_utils

    by_name = import_utils.is_tracing
    x = torch.ones(EXAMPLES)

    def answers(row):
        found.append((by_name(row), import_utils.is_tracing(x), by_name()))
        return row

    found = []
    with evaluation():
        vmap(answers)(x)
    vmap(answers)(x)
    assert found == [(True, False, False), (False, False, False)]


def test_asking_for_gradients_within_the_model_changes_none():
    def asked(x):
        return x.requires_grad_() * 2

    def assigned(x):
        x.requires_grad = True
        return x * 2

    check_equal(asked)
    check_refused(lambda x: x.detach().requires_grad_(False), RuntimeError, "requires_grad_")
    check_equal(assigned, lambda x: x * 2)
