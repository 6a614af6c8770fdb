"""All mechanisms for one plan and one budget: certified noise, error, memory, and which to take."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

from rich.table import Table

from antiphon.accounting.search.auto import usual_participation
from antiphon.accounting.search.calibration import calibrate, choose_mechanism
from antiphon.accounting.search.registry import sampled_routes
from antiphon.errors import UnsupportedError
from antiphon.mechanisms import AbstractMechanism, buffers_of, figure
from antiphon.plain_text import plain_text
from antiphon.plans import Plan, named_mechanism, named_mechanisms

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Compared", "Comparison", "compare", "mechanism_names"]


@final
@dataclass(frozen=True)
class Compared:
    """One mechanism.

    Attributes:
        label: What to call it.
        mechanism: The mechanism.
        noise: Noise multiplier for the budget.
        is_certified: Whether that noise is proved to be enough, or an estimate by which it was ranked.
        error: Root mean square error of the prefix sums, at unit noise.
        buffers: Tensors of the model's size that its noise keeps.
    """

    label: str
    mechanism: AbstractMechanism
    noise: float
    is_certified: bool
    error: float
    buffers: int

    @property
    def product(self) -> float:
        """Noise × error: what the noise of a run leaves in its iterates."""
        return self.noise * self.error


@final
@dataclass(frozen=True)
class Comparison:
    """Rows in order of noise × error. Prints as text, renders in rich, exports as JSON.

    Attributes:
        plan: The recommended plan, with certified noise.
        epsilon: Budget for which noise was found.
        delta: Its δ.
        rows: Best first. The recommended one is the first that is certified.
        refused: Why mechanisms that were asked for are not among the rows, by name.
    """

    plan: Plan
    epsilon: float
    delta: float
    rows: tuple[Compared, ...]
    refused: dict[str, str]

    @property
    def recommended(self) -> Compared:
        """The smallest certified noise × error."""
        return next(row for row in self.rows if row.is_certified)

    def __rich__(self) -> Table:
        """For a rich console."""
        plan = self.plan
        notes = [
            "noise: multiplier of the clip norm, before correlation"
            + ("" if all(row.is_certified for row in self.rows) else "; ≈ is estimated only"),
            "error: of sums of gradients, per unit of noise; memory: in copies of the model",
            *(f"not {name}: {' '.join(why.split())}" for name, why in self.refused.items()),
        ]
        view = Table(
            title=f"ε = {self.epsilon:g}, δ = {self.delta:g}, {plan.relation}\n"
            f"{plan.n} {plan.unit}s, {plan.steps} steps, {plan.sampling}",
            title_justify="left",
            caption="\n".join(notes),
            caption_justify="left",
        )
        view.add_column("mechanism")
        for name in ("noise", "error", "noise × error", "memory"):
            view.add_column(name, justify="right")
        for row in self.rows:
            is_best = row is self.recommended
            view.add_row(
                f"{row.label}{' (recommended)' if is_best else ''}",
                f"{'' if row.is_certified else '≈ '}{row.noise:.4g}",
                f"{row.error:.4g}",
                f"{row.product:.4g}",
                f"{row.buffers}",
                style="bold" if is_best else "",
            )
        return view

    def __str__(self) -> str:
        return plain_text(self.__rich__())

    def to_json(self) -> str:
        """The recommended plan and every row."""
        best = self.recommended
        rows = [
            {
                **vars(row),
                "mechanism": row.mechanism.to_dict(),
                "product": row.product,
                "is_recommended": row is best,
            }
            for row in self.rows
        ]
        values = {"epsilon": self.epsilon, "delta": self.delta, "rows": rows}
        return json.dumps(
            {**values, "refused": self.refused, "plan": json.loads(self.plan.to_json())}
        )

    def plot(self) -> "Figure":
        """How each mechanism's noise is correlated, and how much of it is in sums of gradients."""
        return figure(
            {row.label: row.mechanism for row in self.rows},
            self.plan.steps,
            usual_participation(self.plan),
            noise={row.label: row.noise for row in self.rows},
        )


def mechanism_names(plan: Plan) -> tuple[str, ...]:
    """What `compare` can be asked for by name, for as many steps as the plan has."""
    return tuple(named_mechanisms(plan.steps, usual_participation(plan)))


def compare(
    plan: Plan,
    epsilon: float,
    delta: float,
    names: Sequence[str] | None = None,
    *,
    quick: bool = False,
    announce: Callable[[str], None] = lambda name: None,
) -> Comparison:
    """Mechanisms compared at the noise that each needs for (``epsilon``, ``delta``).

    Args:
        plan: Its sampling, relation, steps and clip norm are kept; its mechanism and noise are not.
        epsilon: ε to be proved.
        delta: δ to be proved.
        names: Out of `mechanism_names`. Unless given, those that `choose_mechanism` ranks; where noise is
            certified by Monte Carlo, only the best of them and independent noise are, which takes minutes.
            Named ones have the noise that accountants of curves prove, and the best of them less where
            Monte Carlo proves less.
        quick: Leave out Monte Carlo: noise may be larger.
        announce: Called with what is calibrated next.

    Guarantee:
        The noise of the recommended plan, and of every row that says so, is proved.

    Example:
        >>> from antiphon.plans import OnePass
        >>> plan = Plan(n=640, sampling=OnePass(10), steps=64, mechanism="auto", relation="zero-out")
        >>> found = compare(plan, 1.0, 1e-5, ["independent", "tree", "blt"])
        >>> [row.label for row in found.rows]
        ['blt', 'tree', 'independent']
        >>> found.recommended.is_certified
        True
    """
    refused: dict[str, str] = {}
    # A certificate's failure probability covers one choice by Monte Carlo and one rival, not one for each
    # name: named mechanisms are ranked by what accountants of curves prove, and the best is certified.
    is_sampled = names is not None and not quick
    found = _ranked(plan, epsilon, delta, quick) if names is None else _named(plan, names)
    rows = []
    for label, mechanism, noise, is_certified in found:
        candidate = replace(plan, mechanism=mechanism, noise_multiplier=None)
        if names is not None:
            announce(label)
            try:
                noise = calibrate(candidate, epsilon, delta, quick=True).known_noise()
            except UnsupportedError as refusal:
                refused[label] = str(refusal)
                continue
        # Without Monte Carlo, what ranks a mechanism is proved by an accountant of curves.
        is_certified |= names is not None or quick or not sampled_routes(candidate)
        error, buffers = mechanism.error(plan.steps), buffers_of(mechanism, plan.steps)
        rows.append(Compared(label, mechanism, noise, is_certified, error, buffers))
    if not rows:
        raise UnsupportedError(next(iter(refused.values())))
    rows.sort(key=lambda row: row.product)
    best = replace(plan, mechanism=rows[0].mechanism, noise_multiplier=None)
    if is_sampled and sampled_routes(best):
        announce(rows[0].label)
        rows[0] = replace(rows[0], noise=calibrate(best, epsilon, delta).known_noise())
    first = next(row for row in rows if row.is_certified)
    chosen = replace(plan, mechanism=first.mechanism, noise_multiplier=first.noise)
    return Comparison(chosen, epsilon, delta, tuple(rows), refused)


_Found = Iterator[tuple[str, AbstractMechanism, float, bool]]


def _ranked(plan: Plan, epsilon: float, delta: float, quick: bool) -> _Found:
    choice = choose_mechanism(replace(plan, mechanism="auto"), epsilon, delta, quick=quick)
    for row in choice.candidates:
        noise = row.estimate if row.certified is None else row.certified
        yield row.label, row.mechanism, noise, row.certified is not None


def _named(plan: Plan, names: Sequence[str]) -> _Found:
    usual = usual_participation(plan)
    found = {name: named_mechanism(name, plan.steps, usual) for name in names}
    for name, make in found.items():
        yield name, make(), 0.0, False
