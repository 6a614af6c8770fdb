"""What every sampling scheme says about itself."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, final

from antiphon.errors import PlanError
from antiphon.participation import AbstractParticipation, Relation

__all__ = ["AbstractSampling", "check_batch", "check_rate", "sampling_from_dict"]

_KINDS: dict[str, type["AbstractSampling"]] = {}


class AbstractSampling(ABC):
    """A way to draw the batch of every step. Subclasses are frozen values.

    Attributes:
        name: What it is called in plans.
        own_coin: Whether a record's steps depend on its own random numbers alone. Then adding a record
            leaves the batches of all others as they were; without it add-remove is not a change of one
            record, because row numbers or batch places shift.
    """

    name: ClassVar[str]
    own_coin: ClassVar[bool]

    def __init_subclass__(cls) -> None:
        _KINDS[cls.name] = cls

    @abstractmethod
    def check(self, n: int, steps: int) -> None:
        """Raise `PlanError` if n records and this many steps do not fit the scheme."""

    @abstractmethod
    def expected_batch(self, n: int) -> float:
        """Mean number of records in a batch: the divisor of the summed gradients."""

    @abstractmethod
    def participation(self, n: int, steps: int) -> AbstractParticipation:
        """Every pattern that can happen to one record, however unlikely."""

    @final
    def supports(self, relation: Relation) -> bool:
        """Whether the participation also bounds what a record of this relation changes."""
        return self.own_coin or relation is not Relation.ADD_REMOVE

    @final
    def to_dict(self) -> dict[str, Any]:
        """This value as JSON types; `sampling_from_dict` is its inverse."""
        return {"kind": self.name, **vars(self)}


def sampling_from_dict(values: Any) -> AbstractSampling:
    """The sampling that ``to_dict`` described."""
    kind = values.get("kind") if isinstance(values, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise PlanError(
            f"a sampling needs a 'kind' out of {', '.join(_KINDS)}; got {str(values)[:80]}."
        )
    arguments = {key: _tuples(value) for key, value in values.items() if key != "kind"}
    try:
        return _KINDS[kind](**arguments)
    except TypeError as error:
        raise PlanError(f"cannot read the sampling {str(values)[:80]}: {error}.") from error


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def check_rate(rate: float) -> None:
    """Raise unless the rate is a probability above 0."""
    if not 0 < rate <= 1:
        raise PlanError(f"the sampling rate must be in (0, 1]; got {rate}.")


def check_batch(batch: int, n: int) -> None:
    """Raise if a batch is larger than the data."""
    if batch > n:
        raise PlanError(f"a batch of {batch} is larger than the {n} records.")
