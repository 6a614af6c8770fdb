"""The frozen recipe of a private run: everything on which its privacy depends, and nothing else."""

import hashlib
import json
from dataclasses import dataclass, fields, replace
from typing import Any, final

from antiphon.checks import positive, whole
from antiphon.errors import PlanError
from antiphon.mechanisms import AbstractMechanism, Independent
from antiphon.mechanisms import from_dict as mechanism_from_dict
from antiphon.participation import AbstractParticipation, Relation
from antiphon.plans.events import Event, GaussianRelease, PureRelease, event_from_dict
from antiphon.plans.sampling.abstract_sampling import AbstractSampling, sampling_from_dict
from antiphon.plans.sampling.one_pass import OnePass
from antiphon.plans.sampling.shuffled_epochs import ShuffledEpochs

__all__ = ["Block", "Plan"]


@final
@dataclass(frozen=True)
class Block:
    """A part of the gradient that is clipped and noised by itself, such as one layer.

    Attributes:
        name: What it is.
        bound: Its clip norm.
        noise_multiplier: Standard deviation of its white noise per unit of ``bound``.
    """

    name: str
    bound: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        positive(f"bound of block {self.name!r}", self.bound)
        positive(f"noise multiplier of block {self.name!r}", self.noise_multiplier)


@final
@dataclass(frozen=True)
class Plan:
    """What will run. Equal plans have equal privacy; what runs is what is certified.

    Attributes:
        n: Public nominal number of units; the summed gradient is divided by the expected batch size.
        sampling: How batches are drawn.
        steps: Number of noisy releases.
        clip_norm: Bound on the norm of one unit's contribution to a step.
        mechanism: The correlated noise; "independent" is `Independent`, "auto" waits for `calibrate` to
            choose one. `mechanism_of` finds those of other names.
        relation: How neighbouring data sets differ.
        noise_multiplier: Standard deviation of the white noise per unit of clip norm, before correlation;
            None until it is calibrated.
        unit: What one person contributes: "example" or "user".
        blocks: If given, the gradient's parts with noise multipliers of their own; ``noise_multiplier`` is
            then unused.
        extra: Releases paid beside training.
        apart: Gaussian releases from records that take part in no step, such as votes on a clip norm. The
            batches are disjoint, as are the records of these releases, and which records are in them does
            not depend on values: so a unit pays for the steps or for one of these, whichever costs more.

    Example:
        >>> from antiphon.mechanisms import LambdaCGD
        >>> from antiphon.plans import Poisson
        >>> plan = Plan(n=60_000, sampling=Poisson(0.01), steps=100, mechanism=LambdaCGD(0.5))
        >>> Plan.from_json(plan.to_json()) == plan
        True
    """

    n: int
    sampling: AbstractSampling
    steps: int
    mechanism: AbstractMechanism | str
    clip_norm: float = 1.0
    relation: Relation | str = Relation.ADD_REMOVE
    noise_multiplier: float | None = None
    unit: str = "example"
    blocks: tuple[Block, ...] = ()
    extra: tuple[Event, ...] = ()
    apart: tuple[GaussianRelease, ...] = ()

    def __post_init__(self) -> None:
        for name in ("n", "steps"):
            object.__setattr__(self, name, whole(name, getattr(self, name)))
        positive("clip_norm", self.clip_norm)
        if self.noise_multiplier is not None:
            positive("noise_multiplier", self.noise_multiplier)
        if self.unit not in ("example", "user"):
            raise PlanError(f"unit is 'example' or 'user'; got {self.unit!r}.")
        object.__setattr__(self, "mechanism", _mechanism(self.mechanism))
        if not isinstance(self.sampling, AbstractSampling):
            raise PlanError(f"sampling must be one of antiphon.plans; got {self.sampling!r}.")
        if not all(isinstance(event, GaussianRelease | PureRelease) for event in self.extra):
            raise PlanError("extra holds releases of antiphon.plans only.")
        object.__setattr__(self, "relation", Relation.of(self.relation))
        for event in (*self.extra, *self.apart):
            if event.relation not in (None, self.relation):
                raise PlanError(
                    f"{event.what} was released for neighbours under {event.relation}, but the plan's "
                    f"relation is {self.relation}: its cost differs here. Release it again, or plan for "
                    f"{event.relation}."
                )
        object.__setattr__(self, "blocks", tuple(self.blocks))
        object.__setattr__(self, "extra", tuple(self.extra))
        object.__setattr__(self, "apart", tuple(self.apart))
        self.sampling.check(self.n, self.steps)
        if self.apart:
            self._check_apart()

    @property
    def amplitude(self) -> float:
        """Largest change of one contribution, in units of the clip norm."""
        return Relation.of(self.relation).amplitude

    @property
    def participation(self) -> AbstractParticipation:
        """Every pattern that can happen to one unit."""
        return self.sampling.participation(self.n, self.steps)

    @property
    def expected_batch(self) -> float:
        """The public divisor of the summed gradients."""
        return self.sampling.expected_batch(self.n)

    @property
    def noise_scale(self) -> float:
        """Standard deviation of the white noise on the summed gradients."""
        return self.known_noise() * self.clip_norm

    @property
    def hash(self) -> str:
        """SHA-256 of the plan's JSON: what a certificate and a cache refer to."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def _check_apart(self) -> None:
        """Raise unless a record stands in one place of one batch, whatever the other records are."""
        if not all(isinstance(event, GaussianRelease) for event in self.apart):
            raise PlanError("apart holds Gaussian releases of antiphon.plans only.")
        batches = -(-self.n // getattr(self.sampling, "batch", self.n))
        is_pass = isinstance(self.sampling, OnePass | ShuffledEpochs) and self.steps <= batches
        if not (is_pass and self.sampling.supports(Relation.of(self.relation))):
            raise PlanError(
                "releases apart from the steps need one pass in disjoint batches (OnePass or "
                "ShuffledEpochs) and relation='zero-out' or 'replace-one', so that a record is in one of "
                f"them or in one step; got {self.sampling}, {self.steps} steps, {self.relation}. Put them "
                "into extra, which adds them up."
            )

    def known_noise(self) -> float:
        """The noise multiplier, or an error that says how to get one."""
        if self.noise_multiplier is None:
            raise PlanError(
                "the plan has no noise multiplier yet; calibrate(plan, epsilon, delta) sets it."
            )
        return self.noise_multiplier

    def known_mechanism(self) -> AbstractMechanism:
        """The mechanism, or an error that says how to get one."""
        if isinstance(self.mechanism, str):
            raise PlanError(
                "the plan's mechanism is still 'auto'; calibrate(plan, epsilon, delta) chooses one."
            )
        return self.mechanism

    def with_noise(self, noise_multiplier: float) -> "Plan":
        """The same plan with this noise."""
        return replace(self, noise_multiplier=float(noise_multiplier))

    def to_json(self) -> str:
        """One line of JSON with sorted keys; floats keep every digit."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values["sampling"] = self.sampling.to_dict()
        values["relation"] = str(self.relation)
        values["blocks"] = [vars(block) for block in self.blocks]
        values["extra"] = [event.to_dict() for event in self.extra]
        values["apart"] = [event.to_dict() for event in self.apart]
        if not self.apart:  # so that plans without have the hash that they always had
            del values["apart"]
        if isinstance(self.mechanism, AbstractMechanism):
            values["mechanism"] = self.mechanism.to_dict()
        return json.dumps(values, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """The plan that `to_json` wrote."""
        try:
            values: Any = json.loads(text)
        except json.JSONDecodeError as error:
            raise PlanError(f"this is not JSON: {error}.") from error
        if not isinstance(values, dict):
            raise PlanError(f"a plan is a JSON object; got {text[:60]}.")
        try:
            if not isinstance(values["mechanism"], str):
                values["mechanism"] = mechanism_from_dict(values["mechanism"])
            values["sampling"] = sampling_from_dict(values["sampling"])
            values["blocks"] = tuple(Block(**block) for block in values.get("blocks", ()))
            values["extra"] = tuple(event_from_dict(event) for event in values.get("extra", ()))
            values["apart"] = tuple(event_from_dict(event) for event in values.get("apart", ()))
            return cls(**values)
        except (KeyError, TypeError) as error:
            raise PlanError(f"this JSON is not a plan: {error}.") from error


def _mechanism(given: Any) -> AbstractMechanism | str:
    """What a plan holds: names of families need the plan's steps, so they are read by `mechanism_of`."""
    match given:
        case AbstractMechanism() | "auto":
            return given
        case Independent.name:
            return Independent()
    raise PlanError(
        "mechanism is 'auto', 'independent' or a mechanism such as antiphon.mechanisms.LambdaCGD(0.9); got "
        f"{given!r}. One of another name is antiphon.plans.mechanism_of(name, plan), with plan's own "
        "mechanism 'auto'."
    )
