"""Learning from sensitive data with noise that answers itself.

Start with `antiphon.mechanisms`: every correlated-noise mechanism, its sensitivity, its error and its
noise, step by step. Names load when they are first used, so that ``import antiphon`` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antiphon import errors, linalg, mechanisms, participation, randomness

__version__ = "0.1.0"

__all__ = ["errors", "linalg", "mechanisms", "participation", "randomness"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f"antiphon.{name}")
    raise AttributeError(f"module 'antiphon' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
