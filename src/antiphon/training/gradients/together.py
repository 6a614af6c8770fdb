"""What surrounds every evaluation of many examples at once, each by itself."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, final

from torch import Tensor, nn
from torch.func import vmap

from antiphon.errors import UnsupportedError
from antiphon.training.gradients.context import evaluation
from antiphon.training.gradients.global_generators import GlobalGenerators, python_seeds
from antiphon.training.gradients.leaks import no_leaks
from antiphon.training.gradients.own_generators import seed_generators, state_of
from antiphon.training.gradients.piece import device_of, kept
from antiphon.training.gradients.record_draws import RecordDraws
from antiphon.training.gradients.state import State
from antiphon.training.gradients.taps import TappedGradients, Taps

__all__ = ["Together"]


@final
class Together:
    """Evaluates functions of an example under ``torch.func.vmap``.

    Args:
        parameters: Those that are trained, by name.
        state: Of all that is called.
        key: Secret, from which random draws come.

    Guarantee:
        What is computed for an example is a function of the parameters, the key, the step, the example's
        id and the example alone. Under vmap no operation sees two examples, but for what `evaluation` and
        `antiphon.training.gradients.calls` refuse; draws are made by record; python's state is put back
        after every evaluation; a tensor of the batch that outlives it is refused, and so is a function
        that continues after an error of torch, which is raised for all examples at once.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], state: State, key: bytes) -> None:
        self.parameters, self.state = parameters, state
        self._key = key
        # Whether every operation is watched, which takes time: for random numbers, and for errors in what
        # hides its calls. Draws are seen of a CPU's generators only.
        self._is_watched = device_of(parameters.values()).type != "cpu"
        self.shares_draws = False

    @contextmanager
    def evaluated(
        self,
        function: Callable[..., Any],
        rows: Sequence[Tensor],
        step: int,
        draws: RecordDraws,
    ) -> Iterator[tuple[Taps, Any]]:
        """Taps and results of an evaluation. Within, `gradients` may be asked for."""
        with evaluation() as seen:
            if not self._is_watched:
                generators = GlobalGenerators()
                with no_leaks(), kept(self.state):
                    before = self._seeded(step)
                    # A copy: the function may change what it is given, and be evaluated again.
                    taps, results = self._evaluate(function, [row.clone() for row in rows])
                    self.shares_draws |= before != [*map(state_of, self.state.generators)]
                    self.shares_draws |= generators.have_moved_in_python()
                    if not (taps.is_opaque or seen.a_function or generators.have_moved()):
                        _check_error(taps.error)
                        yield taps, results
                        return
                del taps, results  # what was computed is forgotten
                generators.put_back()
                self._is_watched = True
            with no_leaks(), kept(self.state):
                self._seeded(step)
                with python_seeds(self._key, step, None), draws:
                    taps, results = self._evaluate(function, rows)
                _check_error(taps.error or draws.error)
                yield taps, results

    def _seeded(self, step: int) -> list[bytes]:
        """Set the generators that model and loss keep; return their states."""
        seed_generators(self.state.generators, self._key, step, None)
        return [*map(state_of, self.state.generators)]

    def gradients(self, taps: Taps, losses: Tensor, draws: RecordDraws) -> TappedGradients:
        """The gradients of all examples, by one backward pass."""
        if not self._is_watched:
            return TappedGradients(taps, losses)
        with draws:
            found = TappedGradients(taps, losses)
        _check_error(draws.error)
        return found

    def _evaluate(self, function: Callable[..., Any], rows: Sequence[Tensor]) -> tuple[Taps, Any]:
        if self.state.scripts:
            raise UnsupportedError(
                f"{self.state.scripts[0]} is a function of torch.jit.script, which hides what it calls."
            )
        taps = Taps(self.parameters.values(), len(rows[0]))

        def tapped(*example: Tensor) -> Any:
            with taps.begin():
                return function(*example)

        # Rows that share memory (as `expand` makes them) would be written to together.
        own = [row.contiguous() for row in rows]
        results = vmap(tapped, randomness="different")(*own)
        taps.end()
        return taps, results


def _check_error(error: str | None) -> None:
    if error is not None:
        raise UnsupportedError(
            f"an error of torch was caught within the loss ({error}). Under torch.func.vmap it is raised "
            "for all examples at once, so each would learn of the others. Catch no errors there."
        )
