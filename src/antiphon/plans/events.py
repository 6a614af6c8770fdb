"""What happened beside training, as data: releases that a certificate must also pay for."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

from antiphon.errors import PlanError
from antiphon.participation import Relation

__all__ = ["Event", "GaussianRelease", "PureRelease", "event_from_dict"]


@final
@dataclass(frozen=True)
class GaussianRelease:
    """A statistic of the data with Gaussian noise of 1/``mu`` times its sensitivity: exactly μ-GDP.

    Attributes:
        mu: Sensitivity (under the plan's relation) over the noise's standard deviation.
        what: What was released, for the certificate.
        relation: How neighbours differ for whom ``mu`` was computed; a plan with another relation refuses
            the event. None if it holds for any, or nobody checked.
    """

    mu: float
    what: str = "a statistic"
    relation: Relation | str | None = None
    kind: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        if not 0 < self.mu < math.inf:
            raise PlanError(f"μ of a Gaussian release must be positive and finite; got {self.mu}.")
        _resolve(self)

    @property
    def cost(self) -> str:
        """In words."""
        return f"with Gaussian noise, μ = {self.mu:.4g}"

    def __str__(self) -> str:
        """What was released, and what it costs."""
        return f"{self.what} {self.cost}"

    def to_dict(self) -> dict[str, Any]:
        """As JSON types."""
        return _as_dict(self)


@final
@dataclass(frozen=True)
class PureRelease:
    """A release that is (``epsilon``, 0)-DP under the plan's relation, by whatever mechanism.

    Attributes:
        epsilon: Its privacy loss.
        what: What was released, for the certificate.
        relation: How neighbours differ for whom ``epsilon`` was computed; a plan with another relation
            refuses the event. None if it holds for any, or nobody checked.
    """

    epsilon: float
    what: str = "a statistic"
    relation: Relation | str | None = None
    kind: ClassVar[str] = "pure"

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < math.inf:
            raise PlanError(f"ε of a release must be positive and finite; got {self.epsilon}.")
        _resolve(self)

    @property
    def cost(self) -> str:
        """In words."""
        return f"with ε = {self.epsilon:.4g}"

    def __str__(self) -> str:
        """What was released, and what it costs."""
        return f"{self.what} {self.cost}"

    def to_dict(self) -> dict[str, Any]:
        """As JSON types."""
        return _as_dict(self)


Event = GaussianRelease | PureRelease

_KINDS: dict[str, type[GaussianRelease] | type[PureRelease]] = {
    "gaussian": GaussianRelease,
    "pure": PureRelease,
}


def _resolve(event: Event) -> None:
    if event.relation is not None:
        object.__setattr__(event, "relation", Relation.of(event.relation))


def _as_dict(event: Event) -> dict[str, Any]:
    relation = None if event.relation is None else str(event.relation)
    return {"kind": event.kind, **vars(event), "relation": relation}


def event_from_dict(values: Any) -> Event:
    """The event that ``to_dict`` described."""
    kind = values.get("kind") if isinstance(values, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise PlanError(
            f"an event needs a 'kind' out of {', '.join(_KINDS)}; got {str(values)[:80]}."
        )
    try:
        return _KINDS[kind](**{key: value for key, value in values.items() if key != "kind"})
    except TypeError as error:
        raise PlanError(f"cannot read the event {str(values)[:80]}: {error}.") from error
