"""What a run does beside its plan: clipping, memory, reading, checkpoints. None of it changes ε."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from antiphon.checks import whole
from antiphon.errors import PlanError
from antiphon.training.gradients import AbstractClipping, Examples, clipping_of
from antiphon.training.run.block_bounds import Bounds

__all__ = ["Callback", "Options"]

Callback = Callable[[int, Mapping[str, float]], Mapping[str, float] | None]


@final
@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of `antiphon.make_private` that are seldom needed.

    Attributes:
        clipping: "flat", "per-layer", "automatic" or "adaptive", or a rule of `antiphon.training`.
        max_batch: Most examples that are computed together; the result is the same for any, up to rounding.
        loading: Options of the `DataLoader` that reads the rows, such as ``num_workers``.
        bounds: Declared bounds (low, high) of the batch's first tensor.
        outside: "raise" or "clamp" what is outside of them.
        callback: Called after every step with its number and metrics; what it returns is shown, so it must
            come from public data or from the model alone.
        checkpoint: Folder of the run. As secret as the data: it holds the noise's key.
        checkpoint_every: Steps between two checkpoints.
        resume: Go on from the folder's checkpoint.
        others: Objects with ``state_dict``, such as a scheduler, to be kept in checkpoints.
        tight: Let Monte Carlo accountants take three times as long for a little less noise.

    Example:
        >>> Options(max_batch=32).clipping
        Flat()
    """

    clipping: str | AbstractClipping = "flat"
    max_batch: int | None = None
    loading: Mapping[str, Any] = field(default_factory=dict)
    bounds: tuple[Any, Any] | Bounds | None = None
    outside: str = "raise"
    callback: Callback | None = None
    checkpoint: Path | str | None = None
    checkpoint_every: int = 100
    resume: bool = False
    others: Mapping[str, Any] = field(default_factory=dict)
    tight: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "clipping", clipping_of(self.clipping))
        whole("checkpoint_every", self.checkpoint_every)
        if self.max_batch is not None:
            whole("max_batch", self.max_batch)
        if self.outside not in ("raise", "clamp"):
            raise PlanError(f"outside is 'raise' or 'clamp'; got {self.outside!r}.")
        if self.bounds is not None and not isinstance(self.bounds, Bounds):
            if not isinstance(self.bounds, tuple | list) or len(self.bounds) != 2:
                raise PlanError(f"bounds are two, low and high; got {self.bounds!r}.")
            object.__setattr__(self, "bounds", Bounds(*self.bounds, self.outside))
        if self.callback is not None and not callable(self.callback):
            raise PlanError(
                f"callback is a function of a step and its metrics; got {self.callback!r}."
            )
        for name in ("loading", "others"):
            if not isinstance(getattr(self, name), Mapping):
                raise PlanError(f"{name} is a mapping by name; got {getattr(self, name)!r}.")
        if self.resume and self.checkpoint is None:
            raise PlanError("resume=True needs checkpoint=, the folder of the run.")

    def bounded(self, examples: Examples) -> Examples:
        """The examples within the declared bounds, if there are any."""
        if not isinstance(self.bounds, Bounds):
            return examples
        return Examples(*self.bounds.enforce((examples.args, examples.kwargs)))
