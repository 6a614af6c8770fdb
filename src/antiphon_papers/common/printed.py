"""A printed theorem at given parameters: its noise, its claim, and what is true of both."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from antiphon.errors import PlanError

__all__ = ["Printed", "PrintedTheoremWarning", "check_choice", "check_count", "failures", "result"]


class PrintedTheoremWarning(UserWarning):
    """A printed theorem was evaluated outside the conditions under which it is proved."""


@final
@dataclass(frozen=True)
class Printed:
    """A theorem at given parameters.

    Attributes:
        theorem: Where it stands.
        noise: The noise it asks for (or, where it states an ε, the noise it was given), in the unit of
            the function that made this.
        claimed_epsilon: The ε it promises, at ``delta``.
        delta: δ.
        true_epsilon: What an accountant proves for this noise at ``delta``.
        true_delta: What it proves at ``claimed_epsilon``.
        accountant: Which one, and whether the two numbers are exact or upper bounds.
        failed: The conditions that do not hold, in words.
    """

    theorem: str
    noise: float
    claimed_epsilon: float
    delta: float
    true_epsilon: float
    true_delta: float
    accountant: str
    failed: tuple[str, ...] = ()

    @property
    def conditions_hold(self) -> bool:
        """Whether the theorem is proved here."""
        return not self.failed

    @property
    def is_confirmed(self) -> bool:
        """Whether the accountant proves the promise, whatever the theorem's conditions."""
        return self.true_epsilon <= self.claimed_epsilon


def failures(*conditions: tuple[bool, str]) -> tuple[str, ...]:
    """The words of the conditions that do not hold."""
    return tuple(words for holds, words in conditions if not holds)


def result(
    theorem: str,
    noise: float,
    claimed_epsilon: float,
    delta: float,
    true_epsilon: float,
    true_delta: float,
    accountant: str,
    failed: Iterable[str],
) -> Printed:
    """The result, with a warning to the caller's caller if a condition fails."""
    result = Printed(
        theorem,
        noise,
        claimed_epsilon,
        delta,
        true_epsilon,
        true_delta,
        accountant,
        tuple(failed),
    )
    if not result.conditions_hold:
        warnings.warn(
            f"{theorem} is not proved here: {'; '.join(result.failed)}. By the accountant "
            f"({accountant}) this noise has ε = {true_epsilon:.6g} at δ = {delta:g}.",
            PrintedTheoremWarning,
            stacklevel=3,
        )
    return result


def check_count(what: str, value: int) -> None:
    """Raise unless there is at least one."""
    if not value >= 1:
        raise PlanError(f"{what} must be at least 1; got {value}.")


def check_choice(what: str, value: object, allowed: tuple[object, ...]) -> None:
    """Raise unless the value is one of those allowed."""
    if value not in allowed:
        raise PlanError(f"{what} is one of {', '.join(map(repr, allowed))}; got {value!r}.")
