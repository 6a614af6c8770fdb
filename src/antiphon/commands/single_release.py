"""One Gaussian release by itself: its certificate, and its entry in a ledger."""

import math
from pathlib import Path
from typing import Any

from antiphon.accounting import gaussian_delta
from antiphon.certificates import NOISE, Ledger
from antiphon.errors import PlanError
from antiphon.mechanisms import Independent
from antiphon.participation import Relation
from antiphon.plans import FullBatch, GaussianRelease, Plan
from antiphon.version import __version__

__all__ = ["certificate_of", "pay"]


def certificate_of(event: GaussianRelease, epsilon: float, delta: float) -> dict[str, Any]:
    """What may be quoted of the release, as JSON types.

    Guarantee:
        The trade-off of μ-GDP has δ(ε) at most ``delta`` [BalleWang18, DongRothSu22]; else it is refused.
    """
    if gaussian_delta(event.mu, epsilon) > delta:
        raise PlanError(f"μ = {event.mu} is not ({epsilon}, {delta})-differentially private.")
    return {
        "epsilon": epsilon,
        "delta": delta,
        "relation": str(event.relation),
        "unit": "example",
        "theorem": f"one Gaussian release of μ = {event.mu!r}, whose exact δ(ε) is known",
        "references": ["BalleWang18", "DongRothSu22"],
        "assumptions": [
            "one row of the table is one person's",
            "the names of the columns are public",
            NOISE,
        ],
        "event": event.to_dict(),
        "version": __version__,
    }


def pay(path: Path, event: GaussianRelease) -> None:
    """Enter the release into the ledger, or refuse it, before anything is released.

    A ledger adds up plans: it gets one step on the full batch whose noise has exactly the release's μ,
    rounded up.
    """
    relation = Relation.of(event.relation or Relation.ADD_REMOVE)
    noise = math.nextafter(relation.amplitude / event.mu, 0.0)
    plan = Plan(
        n=1,
        sampling=FullBatch(),
        steps=1,
        mechanism=Independent(),
        relation=relation,
        noise_multiplier=noise,
    )
    Ledger(path).spend(plan, f"release: {event.what}")
