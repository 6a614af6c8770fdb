"""Which experiments there are: every module in the folder ``experiments`` of a paper that is one."""

import pkgutil
from importlib import import_module
from pathlib import Path

from antiphon.errors import PlanError
from antiphon_papers.common.experiment import Experiment

__all__ = ["experiment", "experiments"]

# Modules of a paper whose names begin with its own are experiments.
_PAPERS = ("kan_sgd", "kan_gd", "relu", "cnn", "dp_ftrl")
_HOME = Path(__file__).parents[1]


def experiments() -> tuple[str, ...]:
    """The ids of all experiments.

    Example:
        >>> "kan-sgd-noise-growth" in experiments()
        True
    """
    return tuple(sorted(_modules()))


def experiment(id: str) -> Experiment:
    """The experiment of this id.

    Example:
        >>> experiment("kan-sgd-noise-growth").title
        'How the noise in the sum of all gradients grows, with and without correlation.'
    """
    modules = _modules()
    if id not in modules:
        raise PlanError(f"no experiment is called {id!r}; there are {', '.join(experiments())}.")
    return Experiment(id, import_module(modules[id]))


def _modules() -> dict[str, str]:
    """The module of every experiment, by id."""
    return {
        found.name.replace("_", "-"): f"antiphon_papers.{paper}.experiments.{found.name}"
        for paper in _PAPERS
        for found in pkgutil.iter_modules([str(_HOME / paper / "experiments")])
        if found.name.startswith(f"{paper}_")
    }
