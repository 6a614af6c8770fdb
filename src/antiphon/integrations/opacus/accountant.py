"""What all runs of one engine cost together."""

from collections.abc import Callable, Sequence
from typing import Any, final

from antiphon.accounting import check_delta, pld_together
from antiphon.certificates import Certificate, certify
from antiphon.errors import RunError, UnsupportedError

__all__ = ["EngineAccountant", "epsilon_of"]

_EXACT = (
    "pld",
    "gaussian",
)  # routes that composing privacy loss distributions does not fall behind


def epsilon_of(runs: Sequence[Certificate], delta: float) -> float:
    """The ε that is proved at this δ for all of these runs together.

    Args:
        runs: What is proved of each of them.
        delta: δ of them together.

    Guarantee:
        One run: the smallest ε of all accountants. Several: the smaller of their privacy loss
        distributions composed, where a run with correlated noise counts without amplification, and of the
        sum of ε of each at δ divided by their number. It holds for runs that were fixed before the first
        one started; a `antiphon.Ledger` is for runs that are chosen in view of earlier results.
    """
    check_delta(delta)
    if len(runs) == 1:
        (run,) = runs
        return run.epsilon if delta == run.delta else certify(run.plan, delta).epsilon
    kinds = {(str(run.relation), run.unit) for run in runs}
    if len(kinds) > 1:
        texts = ", ".join(f"{relation} of one {unit}" for relation, unit in sorted(kinds))
        raise UnsupportedError(
            f"the runs of this engine have different guarantees ({texts}), which do not add up to any of "
            "them. Use an engine for each."
        )
    ways: list[Callable[[], float]] = [
        lambda: pld_together([run.plan for run in runs]).epsilon(delta)
    ]
    if not all(run.route in _EXACT for run in runs):
        ways.append(lambda: sum(certify(run.plan, delta / len(runs)).epsilon for run in runs))
    found, refusals = list[float](), list[str]()
    for way in ways:
        try:
            found.append(way())
        except UnsupportedError as refusal:
            refusals.append(str(refusal))
    if not found:
        raise UnsupportedError(f"the runs cannot be composed: {' '.join(refusals)}")
    return min(found)


@final
class EngineAccountant:
    """All runs of an engine, with the names that scripts for Opacus use.

    Attributes:
        runs: What is proved of each run.
    """

    def __init__(self) -> None:
        self.runs: list[Certificate] = []

    def __len__(self) -> int:
        """Noisy steps of all runs, as planned."""
        return sum(run.plan.steps for run in self.runs)

    @property
    def history(self) -> list[tuple[float | None, float, int]]:
        """Noise multiplier, expected share of the data in a batch, and steps, of every run as planned."""
        plans = [run.plan for run in self.runs]
        return [(p.noise_multiplier, p.expected_batch / p.n, p.steps) for p in plans]

    def get_epsilon(self, delta: float, **options: Any) -> float:
        """The ε of all runs as planned; ``options`` of Opacus' accountants have no effect."""
        if not self.runs:
            raise RunError("there is no run yet: call make_private first.")
        return epsilon_of(self.runs, delta)
