"""Who is protected: how two neighbouring data sets differ."""

from enum import StrEnum
from typing import final

from antiphon.errors import PlanError

__all__ = ["Relation"]


@final
class Relation(StrEnum):
    """How neighbouring data sets differ in one unit.

    - ``add-remove``: the unit is in one of them and not in the other.
    - ``zero-out``: both have it, but in one of them it contributes nothing.
    - ``replace-one``: the unit is another one. Its contributions may then point the opposite way, so the
      change is up to twice as large.
    """

    ADD_REMOVE = "add-remove"
    ZERO_OUT = "zero-out"
    REPLACE_ONE = "replace-one"

    @property
    def amplitude(self) -> float:
        """Largest change of one contribution, in units of the clip norm."""
        return 2.0 if self is Relation.REPLACE_ONE else 1.0

    @classmethod
    def of(cls, name: str) -> "Relation":
        """The relation of this name.

        Example:
            >>> Relation.of("replace-one").amplitude
            2.0
        """
        try:
            return cls(name)
        except ValueError as error:
            raise PlanError(
                f"the neighbouring relation is one of {', '.join(cls)}; got {name!r}."
            ) from error
