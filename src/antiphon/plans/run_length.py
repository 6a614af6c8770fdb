"""How long a run is: in epochs or in steps, and always known in advance."""

from antiphon.checks import positive, whole
from antiphon.errors import PlanError

__all__ = ["check_length", "steps_of"]


def check_length(epochs: float | None, steps: int | None) -> None:
    """Raise unless exactly one of the two says how long the run is."""
    if (epochs is None) == (steps is None):
        raise PlanError(
            "private training must know its length in advance, because the noise depends on it: give "
            f"either epochs or steps; got epochs={epochs} and steps={steps}."
        )


def steps_of(epochs: float | None, steps: int | None, n: int, batch: float) -> int:
    """The number of steps, from epochs in batches that are expected to be so large if those are given."""
    check_length(epochs, steps)
    if steps is not None:
        return whole("steps", steps)
    return max(1, round(positive("epochs", epochs) * n / batch))
