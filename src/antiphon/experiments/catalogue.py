"""Which experiments there are: every module of this package that is one."""

import pkgutil
from importlib import import_module
from pathlib import Path

from antiphon.errors import PlanError
from antiphon.experiments.base import Experiment

__all__ = ["experiment", "experiments"]

# Modules whose names begin so are experiments; an id belongs to the paper it begins with.
_PAPERS = ("kan_sgd", "kan_gd", "relu", "cnn", "dp_ftrl")


def experiments() -> tuple[str, ...]:
    """The ids of all experiments.

    Example:
        >>> "kan-sgd-noise-growth" in experiments()
        True
    """
    modules = (found.name for found in pkgutil.iter_modules([str(Path(__file__).parent)]))
    papers = tuple(f"{paper}_" for paper in _PAPERS)
    return tuple(sorted(name.replace("_", "-") for name in modules if name.startswith(papers)))


def experiment(id: str) -> Experiment:
    """The experiment of this id.

    Example:
        >>> experiment("kan-sgd-noise-growth").title
        'How the noise in the sum of all gradients grows, with and without correlation.'
    """
    if id not in experiments():
        raise PlanError(f"no experiment is called {id!r}; there are {', '.join(experiments())}.")
    return Experiment(id, import_module(f"antiphon.experiments.{id.replace('-', '_')}"))
