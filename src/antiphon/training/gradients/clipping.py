"""How one unit's gradient is shortened to the clip norm.

Every rule returns factors in [0, 1 or more) by which the gradients of the units are multiplied, per layer.
Guarantee of all: after multiplication no unit's gradient is longer than the clip norm. Norms come with an
error of up to one part in a million, so the factors aim that much below it.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor

from antiphon.checks import positive
from antiphon.errors import PlanError

__all__ = ["AbstractClipping", "Adaptive", "Automatic", "Flat", "PerLayer", "clipping_of"]

_INSIDE = 1 - 3e-6


class AbstractClipping(ABC):
    """A way to bound every unit's contribution."""

    @abstractmethod
    def weights(self, squared: Mapping[str, Tensor], clip_norm: float) -> dict[str, Tensor]:
        """Factors for every layer and unit.

        Args:
            squared: Squared norms (float64) of every unit's gradient, by layer.
            clip_norm: Bound on the norm of all layers together.
        """


@final
@dataclass(frozen=True)
class Flat(AbstractClipping):
    """The whole gradient is shortened to the clip norm if it is longer: the default, as in DP-SGD."""

    def weights(self, squared: Mapping[str, Tensor], clip_norm: float) -> dict[str, Tensor]:
        """The smaller of 1 and clip norm / norm."""
        factor = _shorten(_total(squared), clip_norm)
        return dict.fromkeys(squared, factor)


@final
@dataclass(frozen=True)
class Automatic(AbstractClipping):
    """Every gradient is divided by its norm: no clip norm to tune [AutoClip22].

    Attributes:
        stability: Added to the norm, so that small gradients stay small.
    """

    stability: float = 0.01

    def __post_init__(self) -> None:
        positive("stability", self.stability)

    def weights(self, squared: Mapping[str, Tensor], clip_norm: float) -> dict[str, Tensor]:
        """Clip norm / (norm + stability)."""
        factor = clip_norm * _INSIDE / (_total(squared).sqrt() + self.stability)
        return dict.fromkeys(squared, factor)


@final
@dataclass(frozen=True)
class PerLayer(AbstractClipping):
    """Each layer's gradient is shortened to a bound of its own.

    Attributes:
        bounds: By name of the layer, as in ``model.named_modules()``; their squares add up to that of the
            clip norm. Unless given, all layers share it equally.
    """

    bounds: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, bound in self.bounds.items():
            positive(f"the clip norm of layer {name!r}", bound)
        object.__setattr__(self, "bounds", dict(self.bounds))

    def weights(self, squared: Mapping[str, Tensor], clip_norm: float) -> dict[str, Tensor]:
        """The smaller of 1 and bound / norm, layer by layer."""
        return {name: _shorten(square, self.bounds[name]) for name, square in squared.items()}

    def for_layers(self, layers: Iterable[str], clip_norm: float) -> "PerLayer":
        """The same with a bound for every layer, whose squares add up to at most that of ``clip_norm``."""
        names = set(layers)
        if not self.bounds:
            return PerLayer(dict.fromkeys(names, clip_norm / math.sqrt(len(names))))
        if set(self.bounds) != names:
            raise PlanError(
                f"per-layer clip norms are needed for exactly the trained layers {sorted(names)}; got them "
                f"for {sorted(self.bounds)}."
            )
        if math.hypot(*self.bounds.values()) > clip_norm * (1 + 1e-9):
            raise PlanError(
                f"the clip norms of the layers make {math.hypot(*self.bounds.values()):g} together, more "
                f"than the clip norm {clip_norm:g} for which the noise is made."
            )
        return self


@final
@dataclass(frozen=True)
class Adaptive(AbstractClipping):
    """The clip norm follows a quantile of the gradients' norms, released with noise [Andrew21].

    With a clip norm G_t that depends on earlier releases only, the stream g_t / G_t has clip norm 1, and so
    the noise of step t is noise multiplier × G_t × (C⁻¹z)_t. Each unit also adds ±1/2 to the number of
    those within G_t; both are noised together and paid for together (`antiphon.plans.Block`).

    Attributes:
        quantile: Share of units whose gradients should stay whole.
        rate: How quickly log G_t follows.
        share: Share of the privacy cost (of 1/noise²) that the quantile may take.
    """

    quantile: float = 0.5
    rate: float = 0.2
    share: float = 0.01

    def __post_init__(self) -> None:
        for name in ("quantile", "share"):
            if not 0 < getattr(self, name) < 1:
                raise PlanError(f"{name} must be between 0 and 1; got {getattr(self, name)}.")
        positive("rate", self.rate)

    def weights(self, squared: Mapping[str, Tensor], clip_norm: float) -> dict[str, Tensor]:
        """As `Flat`."""
        return Flat().weights(squared, clip_norm)

    def votes(self, squared: Mapping[str, Tensor], clip_norm: float) -> Tensor:
        """+1/2 for every unit within the clip norm, -1/2 for every other."""
        return (_total(squared).sqrt() <= clip_norm).double() - 0.5

    def next_norm(self, clip_norm: float, noisy_share: float) -> float:
        """The clip norm after a step, from the noisy sum of votes per expected unit."""
        step = self.rate * (noisy_share + 0.5 - self.quantile)
        # A single noisy vote must not throw the clip norm out of the range of numbers.
        return clip_norm * math.exp(min(max(-step, -3.0), 3.0))


def clipping_of(name: "str | AbstractClipping") -> AbstractClipping:
    """The rule of this name, with its defaults."""
    if isinstance(name, AbstractClipping):
        return name
    rules = {"flat": Flat, "automatic": Automatic, "per-layer": PerLayer, "per_layer": PerLayer,
             "adaptive": Adaptive}  # fmt: skip
    if name not in rules:
        raise PlanError(
            f"clipping is 'flat', 'automatic', 'per-layer' or 'adaptive', or a rule of "
            f"antiphon.training; got {name!r}."
        )
    return rules[name]()


def _total(squared: Mapping[str, Tensor]) -> Tensor:
    return torch.stack(list(squared.values())).sum(0)


def _shorten(squared: Tensor, bound: float) -> Tensor:
    return (bound * _INSIDE / squared.sqrt()).clamp_(max=1.0)
