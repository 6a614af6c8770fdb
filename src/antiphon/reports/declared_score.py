"""The score that a report is given: whether it is public or paid for, and nothing else."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from antiphon.certificates import Certificate
from antiphon.errors import PlanError
from antiphon.reports.plain import plain
from antiphon.reports.wording import is_of_training

__all__ = ["checked_evaluation"]

_MOST_POINTS = 2000  # of a picture of predictions


def checked_evaluation(
    given: Mapping[str, Any] | None, certificate: Certificate
) -> dict[str, Any] | None:
    """The evaluation that `describe` was given, as JSON values, with fewer points where there are many.

    Raises:
        PlanError: If a private score is not paid for, or parts are unknown or missing.
    """
    if given is None:
        return None
    if given.get("kind") not in ("public", "paid"):
        raise PlanError(f"an evaluation's kind is 'public' or 'paid'; got {given.get('kind')!r}.")
    unknown = sorted(set(given) - {"kind", "rows", "metrics", "interval", "pairs", "cost"})
    lacking = sorted({"rows", "metrics"} - set(given))
    if unknown or lacking:
        raise PlanError(f"an evaluation has unknown parts {unknown} and lacks {lacking}.")
    pairs = given.get("pairs")
    if given["kind"] == "paid" and pairs:
        raise PlanError(
            "pairs of a paid evaluation come from private records, and only its score is paid for. Leave "
            "them out, or evaluate on public records."
        )
    if given["kind"] == "paid" and not given.get("cost") and not _paid(certificate):
        raise PlanError(
            "the score is called paid, but the certificate pays for nothing of the kind. Plan for it (the "
            "extra releases of a plan), or say with 'cost' how it is paid."
        )
    found: dict[str, Any] = plain({"interval": None, "pairs": None, "cost": None, **given})
    if pairs and len(pairs.get("points", ())) > _MOST_POINTS:
        places = np.linspace(0, len(pairs["points"]) - 1, _MOST_POINTS).astype(int)
        found["pairs"]["points"] = [found["pairs"]["points"][place] for place in places]
    return found


def _paid(certificate: Certificate) -> bool:
    """Whether something beside the training and what it needs is paid for."""
    return any(not is_of_training(event.what) for event in certificate.plan.extra)
