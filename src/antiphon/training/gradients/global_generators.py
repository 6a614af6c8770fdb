"""The global generators of torch, NumPy and Python, from which an example's loss or reading may draw."""

import ctypes
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, final

import numpy as np
import torch

from antiphon.training.gradients.record_draws import hashed

__all__ = ["GlobalGenerators", "python_seeds"]


@contextmanager
def python_seeds(
    key: bytes, step: int, record: int | None
) -> Iterator[Callable[[int | None], None]]:
    """Set the global generators of torch, NumPy and Python from key, step and record.

    What the context gives sets them again, for another record of the step: many records need one context.
    At the end the generators are put back as they were. Those of other devices than the CPU are not set.

    Args:
        key: Secret of the run; at most 64 bytes.
        step: Number of the step.
        record: Id of the record; None for what belongs to no record.

    Example:
        >>> with python_seeds(bytes(32), 7, 2) as seed:
        ...     first = random.random()
        ...     seed(2)
        ...     random.random() == first
        True
    """
    before = torch.default_generator.get_state(), np.random.get_state(), random.getstate()  # noqa: NPY002

    def seed(record: int | None) -> None:
        words = hashed(key, step, record, 32)
        torch.default_generator.manual_seed(int.from_bytes(words[:8], "little"))
        random.seed(int.from_bytes(words[8:16], "little"))
        np.random.seed(np.frombuffer(words, np.uint32, offset=16))  # noqa: NPY002

    seed(record)
    try:
        yield seed
    finally:
        torch.default_generator.set_state(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        random.setstate(before[2])


@final
class GlobalGenerators:
    """The global generators of torch, NumPy and Python as they are now.

    One number that NumPy's generator keeps back from a pair of normal numbers is not seen.
    """

    def __init__(self) -> None:
        self._torch = torch.default_generator.get_state()
        self._numpy = _numpy_words()
        self._python = random.getstate()

    def have_moved(self) -> bool:
        """Whether one of them was used since."""
        return not (
            torch.equal(self._torch, torch.default_generator.get_state())
            and self._numpy == _numpy_words()
            and self._python == random.getstate()
        )

    def have_moved_in_python(self) -> bool:
        """Whether NumPy's or Python's was used, of which all examples under ``vmap`` share a number.

        Type checkers draw from Python's, so where one is loaded only NumPy's is told.
        """
        if self._numpy != _numpy_words():
            return True
        return "beartype" not in sys.modules and self._python != random.getstate()

    def put_back(self) -> None:
        """As if they had not been used."""
        torch.default_generator.set_state(self._torch)
        ctypes.memmove(_numpy_address(), self._numpy, len(self._numpy))
        random.setstate(self._python)


_NUMPY_BYTES = 625 * 4  # of the Mersenne Twister: 624 words, and the place among them


def _numpy_address() -> Any:
    return np.random.get_bit_generator().ctypes.state_address  # type: ignore[attr-defined]


def _numpy_words() -> bytes:
    # A copy of its memory: asking NumPy for the state takes thirty times as long.
    return ctypes.string_at(_numpy_address(), _NUMPY_BYTES)
