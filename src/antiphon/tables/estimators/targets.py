"""Labels and numbers to predict: what is public of them, and the loss of one example."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from antiphon.errors import PlanError

__all__ = ["AbstractTarget", "Classes", "Interval"]


class AbstractTarget(ABC):
    """What a model predicts."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Numbers that the model puts out."""

    @property
    @abstractmethod
    def assumptions(self) -> tuple[str, ...]:
        """What a certificate must say of it."""

    @abstractmethod
    def encode(self, y: NDArray[Any]) -> Tensor:
        """The targets of all examples, as the loss wants them."""

    @abstractmethod
    def loss(self, out: Tensor, target: Tensor) -> Tensor:
        """One loss per example."""


@final
@dataclass(frozen=True, eq=False)
class Classes(AbstractTarget):
    """Labels out of a public list.

    Attributes:
        labels: All that can occur, sorted.
        is_declared: Whether the user named them; else those in y are taken to be public.
    """

    labels: NDArray[Any]
    is_declared: bool

    @classmethod
    def of(cls, y: NDArray[Any], declared: Sequence[Any] | None) -> "Classes":
        """The declared labels, or those that occur."""
        labels = np.unique(np.asarray(y if declared is None else declared))
        if len(labels) < 2:
            raise PlanError(
                f"a classifier needs at least two classes; got {len(labels)} class. Declare all labels "
                "that can occur: classes=[...]."
            )
        if declared is not None and not np.isin(y, labels).all():
            raise PlanError(
                f"y has labels that are not among the declared classes, {labels.tolist()}. Declare them, "
                "or leave these records out."
            )
        return cls(labels, declared is not None)

    @property
    def outputs(self) -> int:
        """One logit for two classes, else one for each."""
        return 1 if len(self.labels) == 2 else len(self.labels)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Where the list comes from."""
        which = f"the list of the {len(self.labels)} classes is public"
        return (which if self.is_declared else f"{which}: it was taken from the labels in y",)

    def encode(self, y: NDArray[Any]) -> Tensor:
        """Places in the list."""
        places = torch.as_tensor(np.searchsorted(self.labels, y))
        return places.float() if self.outputs == 1 else places

    def loss(self, out: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy."""
        if self.outputs == 1:
            return binary_cross_entropy_with_logits(out[:, 0], target, reduction="none")
        return cross_entropy(out, target, reduction="none")


@final
@dataclass(frozen=True)
class Interval(AbstractTarget):
    """Numbers between two public bounds; what lies outside counts as the nearest of them."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.high - self.low) and self.low < self.high):
            raise PlanError(
                f"target_bounds are finite, with low below high; got [{self.low}, {self.high}]."
            )

    @property
    def outputs(self) -> int:
        """One."""
        return 1

    @property
    def assumptions(self) -> tuple[str, ...]:
        """None: what is outside is moved, so nothing is assumed of it."""
        return ()

    def encode(self, y: NDArray[Any]) -> Tensor:
        """Scaled to [-1, 1]."""
        inside = np.clip(np.asarray(y, float), self.low, self.high)
        return torch.as_tensor(2 * (inside - self.low) / (self.high - self.low) - 1).float()

    def decode(self, out: NDArray[np.float64]) -> NDArray[np.float64]:
        """From the model's scale back, within the bounds."""
        return self.low + (np.clip(out, -1, 1) + 1) / 2 * (self.high - self.low)

    def loss(self, out: Tensor, target: Tensor) -> Tensor:
        """Half the squared error."""
        return 0.5 * (out[:, 0] - target).square()
