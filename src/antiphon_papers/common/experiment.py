"""What an experiment is: independent configurations, each of which gives rows, and a picture of them."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, final

from antiphon.errors import PlanError
from antiphon.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Experiment", "Row", "config_hash"]

Row = dict[str, Any]  # from names to JSON scalars

PRESETS = ("ci", "full")
_PARTS = ("Config", "configs", "run", "plot")


@final
class Experiment:
    """One module of a paper's ``experiments`` with the parts that every experiment has.

    The module has a frozen dataclass ``Config`` of JSON values, ``configs(preset, seeds)``,
    ``run(config)`` and ``plot(rows)``; ``summary(rows)`` if there is something to average. A module with
    ``VARIANTS``, the default first, has ``configs(preset, seeds, variant)``.

    Args:
        id: Its name, such as "kan-sgd-figure-1".
        module: The module.
    """

    def __init__(self, id: str, module: ModuleType) -> None:
        lacking = [part for part in _PARTS if not hasattr(module, part)]
        if lacking:
            raise PlanError(f"{module.__name__} is no experiment: it lacks {', '.join(lacking)}.")
        self.id, self._module = id, module

    @property
    def title(self) -> str:
        """The first line of the module's description."""
        return (self._module.__doc__ or self.id).splitlines()[0]

    @property
    def description(self) -> str:
        """What follows the first line: what is seen, also where that is not what a paper shows."""
        lines = (self._module.__doc__ or "").splitlines()[1:]
        return "\n".join(lines).strip()

    @property
    def variants(self) -> tuple[str, ...]:
        """Names of its variants, the default first; none if there is one form only."""
        return tuple(getattr(self._module, "VARIANTS", ()))

    def configs(
        self, preset: str, seeds: int | None = None, variant: str | None = None
    ) -> tuple[Any, ...]:
        """All configurations of a preset.

        Args:
            preset: "ci" takes seconds and shows that everything works; "full" is the experiment.
            seeds: Repetitions in place of the preset's own number.
            variant: One of ``variants``; the first unless given.
        """
        if preset not in PRESETS:
            raise PlanError(f"preset is one of {', '.join(PRESETS)}; got {preset!r}.")
        if seeds is not None and seeds < 1:
            raise PlanError(f"seeds must be at least 1; got {seeds}.")
        found: tuple[Any, ...]
        if variant is None:
            found = self._module.configs(preset, seeds)
        elif variant in self.variants:
            found = self._module.configs(preset, seeds, variant)
        else:
            known = ", ".join(self.variants) or "none"
            raise PlanError(f"variants of {self.id}: {known}; got {variant!r}.")
        return found

    def run(self, config: Any) -> list[Row]:
        """The rows of one configuration; the same in every run, as its seed is part of it."""
        rows: list[Row] = self._module.run(config)
        return rows

    def summary(self, rows: Sequence[Row]) -> list[Row]:
        """Means and standard errors, or the rows themselves if there is nothing to average."""
        summarised = getattr(self._module, "summary", None)
        found: list[Row] = list(rows) if summarised is None else summarised(rows)
        return found

    def plot(self, rows: Sequence[Row]) -> "Figure":
        """A matplotlib figure, bound to no window."""
        figure: Figure = self._module.plot(rows)
        return figure


def config_hash(id: str, config: Any) -> str:
    """By what a configuration's rows are kept: all its values, and the library's version."""
    values: Mapping[str, Any] = dataclasses.asdict(config)
    text = json.dumps([id, __version__, values], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]
