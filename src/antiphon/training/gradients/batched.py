"""All examples of a part at once, each by itself: the loss under ``torch.func.vmap``."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, final

from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from antiphon.errors import UnsupportedError
from antiphon.training.gradients.abstract_factor import AbstractFactor
from antiphon.training.gradients.examples import Examples
from antiphon.training.gradients.factors import merged
from antiphon.training.gradients.piece import AbstractPath, Piece, as_scalar, device_of
from antiphon.training.gradients.record_draws import RecordDraws
from antiphon.training.gradients.state import State
from antiphon.training.gradients.together import Together
from antiphon.training.gradients.units import Units

__all__ = ["Batched"]


@final
class Batched(AbstractPath):
    """Gradients of many examples by one evaluation of the loss under vmap.

    Args:
        model: The model, the first argument of the loss.
        loss: From the model and one example, as a batch of one, to a number.
        parameters: Those that are trained.
        key: Secret, from which random draws within the loss come.
        state: Of model and loss, if it is known.

    Guarantee:
        The gradient of an example is a function of the parameters, the key, the step, the example's id and
        the example alone: see `Together`. What no tap sees raises, as no gradient may be incomplete in
        silence.
    """

    text = "the loss was evaluated for each example by itself, under torch.func.vmap"

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[..., Any],
        parameters: Mapping[str, nn.Parameter],
        key: bytes,
        state: State | None = None,
    ) -> None:
        self._model, self._loss, self._key = model, loss, key
        self._names = {p: name for name, p in parameters.items()}
        self._together = Together(parameters, state or State(model, loss), key)

    @property
    def shares_draws(self) -> bool:
        """Whether random numbers were drawn that are one for all examples of a batch."""
        return self._together.shares_draws

    def pieces(
        self, step: int, ids: Tensor, examples: Examples, units: Units | None = None
    ) -> Iterator[Piece]:
        """One piece: all of the examples."""
        _, factors = self.evaluate(step, ids, examples)
        yield Piece(factors, units)

    def evaluate(
        self, step: int, ids: Tensor, examples: Examples
    ) -> tuple[Tensor, dict[nn.Parameter, AbstractFactor]]:
        """Losses and gradients of all examples."""
        leaves, form = tree_flatten((examples.args, examples.kwargs))
        device = device_of(self._names)
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        rows = [leaves[i].detach().to(device, non_blocking=True) for i in places]

        def one(*tensors: Tensor) -> Tensor:
            found = list(leaves)
            for place, tensor in zip(places, tensors, strict=True):
                found[place] = tensor
            args, kwargs = tree_unflatten(found, form)
            return as_scalar(self._loss(self._model, *args, **kwargs))

        draws = RecordDraws(self._key, step, ids)
        with self._together.evaluated(one, rows, step, draws) as (taps, losses):
            if not losses.requires_grad:
                raise UnsupportedError(
                    "the loss depends on no parameter that is trained: nothing would be learned. It is to "
                    "be computed from the model that it is given, without detach() or no_grad()."
                )
            # Here, since the backward pass may change Python's state, too.
            gradients = self._together.gradients(taps, losses, draws)
        if gradients.unseen:
            names = ", ".join(repr(self._names[p]) for p in gradients.unseen[:3])
            raise UnsupportedError(
                f"{names}: read in a way that cannot be followed under torch.func.vmap, such as by an "
                "autograd function or a compiled operation. Read parameters by plain torch operations."
            )
        return losses.detach(), {p: merged(found) for p, found in gradients.factors().items()}
