"""From what a user asks for to a plan with its noise and its certificate."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from antiphon.accounting import calibrate
from antiphon.certificates import Certificate, certify
from antiphon.checks import positive
from antiphon.errors import PlanError
from antiphon.mechanisms import AbstractMechanism
from antiphon.plans import (
    AbstractSampling,
    Block,
    Event,
    Plan,
    delta_of,
    mechanism_of,
    relation_of,
    sampling_of,
    steps_of,
)
from antiphon.training.gradients import AbstractClipping, Adaptive
from antiphon.training.run.private_sum import VOTE, VOTES

__all__ = ["Recipe", "check_size", "make_recipe"]


@final
@dataclass(frozen=True)
class Recipe:
    """What a user asks for, before the noise is known.

    Attributes:
        plan: Without noise.
        epsilon: ε to be reached; None if the noise is given.
        delta: δ.
        clipping: How gradients are shortened.
        tight: Whether Monte Carlo accountants may take three times as long.
        proved: The certificate of the plan, if there is one already.
    """

    plan: Plan
    epsilon: float | None
    delta: float
    clipping: AbstractClipping
    tight: bool = False
    proved: Certificate | None = None

    def certified(self) -> tuple[Plan, Certificate]:
        """The plan with its noise, and what is proved of exactly that plan."""
        plan = self.plan
        if self.proved is not None:
            return plan, self.proved
        if plan.blocks:
            return plan, certify(plan, self.delta, tight=self.tight)
        if self.epsilon is not None:
            plan = calibrate(plan, self.epsilon, self.delta, tight=self.tight)
        if isinstance(self.clipping, Adaptive):
            plan = _with_votes(plan, self.clipping)
        return plan, certify(plan, self.delta, epsilon=self.epsilon, tight=self.tight)

    def asked(self) -> dict[str, Any]:
        """What fixes the noise beside the plan, as JSON types."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "noise_multiplier": self.plan.noise_multiplier,
            "clipping": repr(self.clipping),
            "blocks": repr(self.plan.blocks),
        }

    def check_same(self, saved: Plan, saved_asked: Mapping[str, Any]) -> None:
        """Raise if a saved run was made for another recipe."""
        names = ("n", "sampling", "steps", "clip_norm", "relation", "unit", "extra", "mechanism")
        pairs = {name: (getattr(self.plan, name), getattr(saved, name)) for name in names}
        if self.plan.mechanism == "auto":
            del pairs["mechanism"]
        pairs |= {name: (asked, saved_asked.get(name)) for name, asked in self.asked().items()}
        for name, (asked, kept) in pairs.items():
            if asked != kept:
                raise PlanError(
                    f"the checkpoint is of a run with {name} = {kept}, but {name} = {asked} was asked for. "
                    "A run is resumed as it was planned; another plan needs a new run, in another folder."
                )


def _with_votes(plan: Plan, clipping: Adaptive) -> Plan:
    """The plan that pays for the votes on the clip norm out of the same budget.

    1/κ² = 1/κ_gradient² + 1/κ_votes²: together they cost as much as the gradients alone would with κ.
    """
    noise = plan.known_noise() * (1 + 1e-12)  # so that rounding does not make the two cost more
    gradient = Block("gradient over clip norm", 1.0, noise / math.sqrt(1 - clipping.share))
    votes = Block(VOTES, VOTE, noise / math.sqrt(clipping.share))
    return replace(plan, blocks=(gradient, votes))


def check_size(plan: Plan, count: int) -> None:
    """Batches that are given by row need as many units as the plan has."""
    if not plan.sampling.own_coin and plan.n != count:
        raise PlanError(
            f"the plan is for {plan.n} units and the data has {count}; {plan.sampling} gives batches by "
            "row, so they must be equal."
        )


def make_recipe(
    *,
    n: int,
    unit: str = "example",
    epsilon: float | None,
    delta: float | None,
    epochs: float | None,
    steps: int | None = None,
    batch_size: int | None,
    clip_norm: float,
    mechanism: str | AbstractMechanism,
    sampling: str | AbstractSampling,
    relation: str | None,
    noise_multiplier: float | None = None,
    extra: Sequence[Event] = (),
    clipping: AbstractClipping,
    tight: bool,
) -> Recipe:
    """The recipe of what a plan is made of; of ε and the noise, one is given."""
    if (epsilon is None) == (noise_multiplier is None):
        raise PlanError(
            "say how private the run is: give epsilon, for which the least noise is found, or a plan with "
            f"its noise; got epsilon={epsilon} and a noise multiplier of {noise_multiplier}."
        )
    drawn = sampling_of(sampling, n, batch_size)
    length = steps_of(epochs, steps, n, drawn.expected_batch(n))
    plan = Plan(
        n=n,
        sampling=drawn,
        steps=length,
        clip_norm=clip_norm,
        mechanism="auto",
        relation=relation_of(relation, drawn),
        unit=unit,
        extra=tuple(extra),
    )
    plan = replace(plan, mechanism=mechanism_of(mechanism, plan))
    if noise_multiplier is not None:
        if plan.mechanism == "auto":
            raise PlanError(
                'mechanism="auto" compares mechanisms at one ε: give epsilon, or name the mechanism.'
            )
        plan = plan.with_noise(positive("noise_multiplier", noise_multiplier))
    return Recipe(plan, epsilon, delta_of(delta, n), clipping, tight)
