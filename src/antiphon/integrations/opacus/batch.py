"""One part of a batch, from the loader to the optimizer's step: the rows of every example, and the taps.

Each call of the model or the criterion is evaluated under ``torch.func.vmap`` over the examples, surrounded
by all that surrounds an evaluation in `antiphon.training.gradients.batched`. Its taps stay alive until the
optimizer's step, where one backward pass of the examples' own losses gives the gradients.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from antiphon.errors import RunError, UnsupportedError
from antiphon.integrations.opacus.evaluations import (
    CONSTANTS,
    TENSOR,
    Setting,
    as_call,
    constant,
    followed,
)
from antiphon.integrations.opacus.loader_rows import (
    REMEDY,
    Loss,
    Rows,
    closed_to_loops,
    plain,
    unknown,
)
from antiphon.training.gradients import (
    AbstractFactor,
    RecordDraws,
    TappedGradients,
    Taps,
    as_scalar,
    device_of,
    evaluation,
    kept,
    merged,
)

__all__ = ["Batch"]


@final
class Batch:
    """One part of a batch.

    Args:
        setting: Of the run.
        step: Number of the private step.
        ids: Row numbers of the examples, on which random draws depend.

    Guarantee:
        A row that is kept here for an example is a function of that example, the parameters, the key, the
        step and the example's id: tensors of unknown origin are refused, and each example is evaluated by
        itself. So is its gradient.
    """

    def __init__(self, setting: Setting, step: int, ids: Tensor) -> None:
        self._setting, self._step, self._ids = setting, step, ids
        self._draws = RecordDraws(setting.key, step, ids)  # a second call draws other numbers
        self._rows: list[Tensor] = []
        self._losses: list[Tensor] = []
        self._taps: list[Taps] = []
        self._asked: dict[int, Tensor] = {}  # losses of which the gradient was asked for
        self._is_mean: bool | None = None  # of these losses
        self._calls: dict[str, int] = {}
        self.is_open = True

    def close(self) -> None:
        """Let go of all rows and graphs: what the loop still holds are values."""
        self.is_open = False
        for kept_things in (self._rows, self._losses, self._taps, self._asked):
            kept_things.clear()

    def shown(self, rows: Tensor, value: Tensor | None = None) -> Rows:
        """What the loop handles in place of these rows: a copy, unless ``value`` is one."""
        if not rows.ndim or len(rows) != len(self._ids):
            raise UnsupportedError(f"a tensor of a batch has lost its examples. {REMEDY}")
        if value is None:
            value = rows.detach().flatten(0, 1).clone()
        found = plain(value).as_subclass(Rows)
        found.batch, found.place, found.version = self, len(self._rows), found._version
        self._rows.append(rows)
        return found

    def handed_out(self, thing: Any) -> Any:
        """What the loop handles in place of a part of the loader's batch."""
        return self.shown(thing) if isinstance(thing, Tensor) else thing

    def rows_of(self, tensor: Rows) -> Tensor:
        """The rows of a tensor whose rows are known, one entry for every example."""
        return self._rows[tensor.place]

    def evaluate(
        self,
        what: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Call the model or the criterion for each example by itself, and show what it returns."""
        results, constants, form = self._evaluate(what, function, args, kwargs)
        found = iter(results)
        leaves = [self._result(next(found)) if c is TENSOR else c for c in constants]
        return tree_unflatten(leaves, form)

    def criterion(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Loss:
        """The losses of the examples by a criterion."""

        def one(*args: Any, **kwargs: Any) -> Tensor:
            return as_scalar(function(*args, **kwargs))

        (losses,), _, _ = self._evaluate("the criterion", one, args, kwargs)
        return self._loss(losses, self._setting.is_mean)

    def loss_by_example(
        self, one: Callable[..., Tensor], tensors: Sequence[Any], is_mean: bool
    ) -> Loss:
        """The losses of the examples by a function of torch."""
        rows = [self.rows_of(tensor) for tensor in tensors]
        with self._evaluated("the loss", lambda *example: as_scalar(one(*example)), rows) as losses:
            return self._loss(losses, is_mean)

    def sum_of(self, one: Loss, other: Loss) -> Any:
        """The sum of two losses."""
        if one.is_mean is not other.is_mean:
            return "the sum of a mean over the examples and a sum over them"
        found = (plain(one) + plain(other)).as_subclass(Loss)
        found.batch, found.parts = self, one.parts | other.parts
        found.is_mean = one.is_mean
        if len(found.parts) < len(one.parts) + len(other.parts):
            return "the sum of a loss and itself"
        return found

    def backward(self, loss: Loss) -> None:
        """Ask for the gradient of a loss."""
        if not self.is_open:
            raise RunError(
                "the batch of this loss has had its step: one loss.backward(), or several of different "
                "losses, then one optimizer.step()."
            )
        if loss.parts & set(self._asked):
            raise RunError(
                "backward() was called a second time for the same loss: it would count twice. Call it once."
            )
        if self._is_mean not in (None, loss.is_mean):
            raise UnsupportedError(
                "a mean over the examples and a sum over them are trained together, which weighs one of "
                f"them by the batch's size. Use one reduction. {REMEDY}"
            )
        self._is_mean = loss.is_mean
        self._asked |= {place: self._losses[place] for place in loss.parts}

    def factors(self) -> dict[nn.Parameter, AbstractFactor]:
        """The gradients of every example, of the losses that were asked for."""
        if not self._asked:
            raise RunError(
                "no step was prepared: call loss.backward() on a loss of this batch, then optimizer.step()."
            )
        setting = self._setting.together
        losses, names = torch.stack([*self._asked.values()]).sum(0), setting.parameters
        if not losses.requires_grad:
            raise UnsupportedError("the loss does not depend on the parameters that are trained.")
        whole = Taps(names.values(), len(self._ids))
        for taps in self._taps:
            whole.caught += [*taps.caught, *(as_call(p, leaf) for p, leaf in taps.leaves.items())]
        # The backward pass may change Python's state, too.
        with evaluation(), closed_to_loops(), kept(setting.state):
            gradients = TappedGradients(whole, losses)
        if gradients.unseen:
            unseen = set(gradients.unseen)
            texts = [repr(name) for name, p in names.items() if p in unseen]
            raise UnsupportedError(
                f"{', '.join(texts[:3])}: read in a way that cannot be followed under torch.func.vmap. "
                "Read parameters within the model, by plain torch operations."
            )
        return {p: merged(found) for p, found in gradients.factors().items()}

    def check_constants(self, what: str, values: Mapping[Any, Any]) -> None:
        """Refuse a number that changes from step to step: it may be one of the batch."""
        call = self._calls[what] = self._calls.get(what, -1) + 1
        for place, (name, value) in enumerate(values.items()):
            if not isinstance(value, CONSTANTS):
                raise UnsupportedError(
                    f"{what} is given an object of type {type(value).__name__}, which may hold anything of "
                    "the batch. Give tensors in tuples, lists and dicts."
                )
            first = self._setting.constants.setdefault((what, call, place), repr(value))
            if first != repr(value):
                raise UnsupportedError(
                    f"{what} is given {value!r} where it was given {first} in an earlier step (argument "
                    f"{name!r}). A number that changes may be one of the batch. Compute it within the "
                    f"model from the example. {REMEDY}"
                )

    def _evaluate(
        self,
        what: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> tuple[tuple[Tensor, ...], list[Any], Any]:
        leaves, form = tree_flatten((tuple(args), dict(kwargs)))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        self.check_constants(
            what, {i: leaf for i, leaf in enumerate(leaves) if not isinstance(leaf, Tensor)}
        )
        device = device_of(self._setting.together.parameters.values())
        rows = [self._known(what, leaves[i]).to(device) for i in places]
        constants, forms = list[Any](), list[Any]()

        def one(*tensors: Tensor) -> tuple[Tensor, ...]:
            found = list(leaves)
            for place, tensor in zip(places, tensors, strict=True):
                found[place] = tensor
            args, kwargs = tree_unflatten(found, form)
            results, shape = tree_flatten(function(*args, **kwargs))
            constants[:], forms[:] = [constant(thing) for thing in results], [shape]
            return tuple(thing for thing in results if isinstance(thing, Tensor))

        with self._evaluated(what, one, rows) as results:
            return results, list(constants), forms[0]

    @contextmanager
    def _evaluated(
        self, what: str, function: Callable[..., Any], rows: Sequence[Tensor]
    ) -> Iterator[Any]:
        """The results of all examples, each by itself; its taps are kept for the step."""
        evaluated = self._setting.together.evaluated(function, rows, self._step, self._draws)
        with closed_to_loops(), followed(what), evaluated as (taps, results):
            self._taps.append(taps)
            yield results

    def _known(self, what: str, tensor: Tensor) -> Tensor:
        why = unknown(tensor)
        if why is None and isinstance(tensor, Rows):
            if tensor.batch is not self:
                raise RunError("a tensor of another loader's batch is used.")
            return self.rows_of(tensor)
        raise UnsupportedError(
            f"{what} is given a tensor of shape {tuple(tensor.shape)} that {why}: each example could see "
            "the others in it. Compute it in the data set, or within the model from the example; give "
            f"public data under torch.no_grad(). {REMEDY}"
        )

    def _result(self, rows: Tensor) -> Tensor:
        """A result of the model: a number for each example is its loss."""
        if rows.ndim > 1:
            return self.shown(rows)
        if not rows.is_floating_point():
            return self.shown(rows[:, None])
        return self._loss(rows, self._setting.is_mean)

    def _loss(self, losses: Tensor, is_mean: bool) -> Loss:
        values = losses.detach()
        found = (values.mean() if is_mean else values.sum()).as_subclass(Loss)
        found.batch, found.parts, found.is_mean = self, frozenset({len(self._losses)}), is_mean
        self._losses.append(losses)
        return found
