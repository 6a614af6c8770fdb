"""What a user may quote: the (ε, δ) proved for a plan, why it holds, and what it means for a person."""

import json
import math
from dataclasses import dataclass
from typing import Any, final

from rich.table import Table

from antiphon.accounting import ConvexProfile, best_proof
from antiphon.errors import PlanError
from antiphon.participation import Relation
from antiphon.plain_text import plain_text
from antiphon.plans import Plan
from antiphon.version import __version__

__all__ = ["NOISE", "SEEDED", "Attacks", "Certificate", "certify", "round_up"]

NOISE = (
    "each released number's noise is Gaussian to a log-ratio of 2^-31, on a public grid; the rounding of "
    "sums before it is not covered"
)
SEEDED = (
    "noise and batches come from a seed: reproducible, not for release; the guarantee holds only "
    "for those who know neither the seed nor any other result drawn with it"
)

_RELATIONS = {
    Relation.ADD_REMOVE: "one {unit} more or less in the data",
    Relation.ZERO_OUT: "one {unit}'s contributions present or set to zero",
    Relation.REPLACE_ONE: "one {unit} replaced by any other",
}


@final
@dataclass(frozen=True)
class Attacks:
    """What the best possible attack on one unit's membership could reach, whatever else it knows.

    Attributes:
        accuracy: Share of right guesses, at even odds of membership.
        advantage: True-positive minus false-positive rate.
        true_positive_at_1_percent: Share of members found when 1 % of others are falsely accused.
        true_positive_at_01_percent: The same at 0.1 %.
    """

    accuracy: float
    advantage: float
    true_positive_at_1_percent: float
    true_positive_at_01_percent: float


@final
@dataclass(frozen=True)
class Certificate:
    """A proved guarantee and everything needed to check it.

    Attributes:
        epsilon: The privacy loss, proved for ``delta``.
        delta: Probability with which the promise may fail.
        relation: How neighbouring data sets differ.
        unit: What is protected.
        sampling: How batches are drawn.
        route: The accountant whose number is quoted.
        theorem: Why it holds.
        references: Keys of ``docs/references.bib``.
        assumptions: What must be true of the run, in words.
        curve: Points (ε, δ) that are all proved together: the corners of the proved δ(ε), between which
            it is linear in e^ε. `profile` evaluates it, and the trade-off curve that follows.
        attacks: What ε means: bounds on any attack; None where ε is infinite.
        confidence: One minus the failure probability of a Monte Carlo bound; None if there was none.
        is_tight: Whether some data set and attack reach it.
        plan: The plan itself.
        version: Of the library.
    """

    epsilon: float
    delta: float
    relation: Relation
    unit: str
    sampling: str
    route: str
    theorem: str
    references: tuple[str, ...]
    assumptions: tuple[str, ...]
    curve: tuple[tuple[float, float], ...]
    attacks: Attacks | None
    confidence: float | None
    is_tight: bool
    plan: Plan
    version: str

    @property
    def profile(self) -> ConvexProfile:
        """δ for every ε, and the most true positives for every rate of false ones."""
        return ConvexProfile(self.curve)

    def to_json(self) -> str:
        """Every field, the plan and its hash."""
        values: dict[str, Any] = dict(vars(self))
        values["relation"] = str(self.relation)
        values["attacks"] = None if self.attacks is None else vars(self.attacks)
        values["plan"] = json.loads(self.plan.to_json())
        values["plan_hash"] = self.plan.hash
        return json.dumps(values)

    @classmethod
    def from_json(cls, text: str) -> "Certificate":
        """The certificate that `to_json` wrote. It is read, not proved again."""
        try:
            values: dict[str, Any] = json.loads(text)
            plan, written = Plan.from_json(json.dumps(values["plan"])), values.pop("plan_hash")
            if plan.hash != written:
                raise PlanError(
                    "the certificate is not that of its plan: one of them was changed since it was written."
                )
            attacks = values["attacks"]
            return cls(
                **values
                | {
                    "relation": Relation.of(values["relation"]),
                    "references": tuple(values["references"]),
                    "assumptions": tuple(values["assumptions"]),
                    "curve": tuple((epsilon, delta) for epsilon, delta in values["curve"]),
                    "attacks": None if attacks is None else Attacks(**attacks),
                    "plan": plan,
                }
            )
        except (KeyError, TypeError, ValueError) as error:
            raise PlanError(f"this JSON is not a certificate: {error}.") from error

    def __rich__(self) -> Table:
        """For a rich console."""
        view = Table(
            title="Certificate of differential privacy", show_header=False, title_justify="left"
        )
        view.add_column(style="bold", no_wrap=True)
        view.add_column()
        for name, text in self.lines():
            view.add_row(name, text)
        return view

    def __str__(self) -> str:
        return plain_text(self.__rich__())

    def lines(self) -> list[tuple[str, str]]:
        """What it says, as pairs of a word and a text: what is printed, for pages of any kind."""
        neighbours = _RELATIONS[self.relation].format(unit=self.unit)
        lines = [
            (
                "guarantee",
                f"({round_up(self.epsilon)}, {round_up(self.delta)})-differential privacy",
            ),
            ("protects", f"{neighbours} ({self.relation})"),
            ("batches", self.sampling),
            ("because", self.theorem),
            (
                "tight",
                "yes: some data set and attack reach it" if self.is_tight else "no: an upper bound",
            ),
        ]
        if self.attacks is not None:
            a = self.attacks
            lines.append(
                (
                    "any attack",
                    f"guesses membership right in at most {round_up(100 * a.accuracy)} % of cases where "
                    "both answers are equally likely (a coin: 50 %); finds at most "
                    f"{round_up(100 * a.true_positive_at_1_percent)} % of members while accusing 1 % of "
                    f"others, {round_up(100 * a.true_positive_at_01_percent)} % at "
                    "0.1 %",
                )
            )
        if self.confidence is not None:
            failure = round(1 - self.confidence, 12)
            lines.append(
                (
                    "confidence",
                    f"Monte Carlo bound, wrong with probability at most {round_up(failure)}",
                )
            )
        lines += [("assumes", text) for text in self.assumptions]
        lines.append(("sources", ", ".join(self.references)))
        lines.append(("plan", f"{self.plan.hash[:16]}, antiphon {self.version}"))
        return lines


def certify(
    plan: Plan, delta: float, *, epsilon: float | None = None, tight: bool = False
) -> Certificate:
    """The smallest ε that any accountant proves for ``plan`` at ``delta``.

    Args:
        plan: With its noise.
        delta: δ.
        epsilon: The ε the plan was calibrated for, if any: a Monte Carlo accountant then certifies
            this point instead of searching for another. Unless given, the smallest ε is sought.
        tight: Where a Monte Carlo accountant is the best, draw three times as many paths.

    Raises:
        UnsupportedError: If no accountant can bound the plan; the message names each one's reason.
        PlanError: If ``epsilon`` is given and cannot be proved.

    Example:
        >>> from antiphon.mechanisms import Independent
        >>> from antiphon.plans import FullBatch
        >>> plan = Plan(n=1000, sampling=FullBatch(), steps=100, mechanism=Independent(),
        ...             noise_multiplier=40)
        >>> round(certify(plan, delta=1e-5).epsilon, 4)
        0.9263
    """
    proof, curve = best_proof(plan, delta, epsilon=epsilon, tight=tight)
    return Certificate(
        epsilon=proof.epsilon,
        delta=delta,
        relation=Relation.of(plan.relation),
        unit=plan.unit,
        sampling=str(plan.sampling),
        route=proof.route,
        theorem=proof.theorem,
        references=proof.references,
        assumptions=_assumptions(plan),
        curve=curve.points,
        attacks=_attacks(curve) if math.isfinite(proof.epsilon) else None,
        confidence=1 - proof.failure if proof.failure else None,
        is_tight=proof.is_tight,
        plan=plan,
        version=__version__,
    )


def _attacks(profile: ConvexProfile) -> Attacks:
    return Attacks(
        accuracy=profile.accuracy(),
        advantage=profile.advantage(),
        true_positive_at_1_percent=profile.true_positive(0.01),
        true_positive_at_01_percent=profile.true_positive(0.001),
    )


def _assumptions(plan: Plan) -> tuple[str, ...]:
    bounds = [f"at most {block.bound:g} in {block.name}" for block in plan.blocks]
    size = ", ".join(bounds) if bounds else f"at most {plan.clip_norm:g}"
    lines = [
        f"each {plan.unit}'s contribution to a step has norm {size}",
        f"the number of {plan.unit}s, {plan.n}, is public; sums are divided by {plan.expected_batch:g}",
        NOISE,
        "batches are drawn as stated, independently of the data's values",
    ]
    lines += [f"{event.what} was released: {event.cost}" for event in plan.extra]
    lines += [
        f"{event.what} was released from records that take part in no step: {event.cost}"
        for event in plan.apart
    ]
    return tuple(lines)


def round_up(value: float) -> str:
    """Four digits, rounded up: a printed bound is never below the proved one."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    scale = 10.0 ** (3 - math.floor(math.log10(abs(value))))
    return f"{math.ceil(value * scale * (1 - 1e-15)) / scale:.4g}"
