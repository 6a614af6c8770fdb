"""What a report says, as JSON values: everything that the page shows, and nothing that was not released."""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from antiphon.certificates import Certificate
from antiphon.errors import PlanError
from antiphon.reports.declared_score import checked_evaluation
from antiphon.reports.functions import functions_of
from antiphon.reports.noise_picture import noise_of
from antiphon.reports.plain import plain
from antiphon.tables.data import Column
from antiphon.tables.estimators import AbstractPrivateEstimator, Classes, Interval, schema_for
from antiphon.version import __version__

__all__ = ["FORMAT", "KIND", "describe"]

KIND = "antiphon report"
FORMAT = 1

# Rates of false alarms at which the trade-off curve is known: dense where it is steep.
_RATES = (0.0, *np.geomspace(1e-5, 0.01, 31).tolist(), *np.linspace(0.01, 1, 199)[1:].tolist())


def describe(
    estimator: AbstractPrivateEstimator,
    *,
    table: str,
    target: str,
    bounds_from: Mapping[str, str] | None = None,
    learning: Sequence[Mapping[str, Any]] = (),
    evaluation: Mapping[str, Any] | None = None,
    command: str | None = None,
    date: str | None = None,
) -> dict[str, Any]:
    """Everything that the page of a fitted estimator shows.

    Args:
        estimator: After `fit`.
        table: Name of the table.
        target: Name of the target's column.
        bounds_from: For columns (and the target), where their bounds come from, such as "declared" or
            "private"; unless given, as the estimator's own settings say.
        learning: The learning curve on public data: rows with "step" and one number for each name.
        evaluation: None, or a mapping with "kind" ("public": on records that are declared public; "paid":
            a noisy score that the certificate pays for), "rows", "metrics" (name to value), and, where
            there are any, "interval" (name of a metric to [low, high], and "confidence") and "pairs" for a
            picture: "bins" ([mean predicted, share observed, count]) of a classifier, "points"
            ([predicted, true]) of a regression. A paid evaluation has no pairs: they are not paid for. Its
            price is in the plan's extra releases; where it is not, "cost" says in words how it is paid.
        command: By which it was made.
        date: The day, as in 2026-01-31; today (UTC) unless given.

    Guarantee:
        All of it follows from the released model, its plan and certificate, from what was given here, and
        from nothing else: no record of the table is looked at, and seeds are left out.
    """
    check_is_fitted(estimator)
    certificate = estimator.certificate_
    if not math.isfinite(certificate.epsilon):
        raise PlanError("ε is infinite: there is no guarantee to report.")
    named_target = _target(estimator, target, bounds_from or {})
    return {
        "kind": KIND,
        "format": FORMAT,
        "version": __version__,
        "date": datetime.now(UTC).date().isoformat() if date is None else date,
        "trained": _trained(estimator, table, bounds_from) | {"target": named_target},
        "certificate": json.loads(certificate.to_json()),
        "trade_off": _trade_off(certificate),
        "noise": noise_of(certificate),
        "functions": functions_of(estimator, named_target),
        "learning": plain([dict(row) for row in learning]),
        "evaluation": checked_evaluation(evaluation, certificate),
        "command": command,
    }


def _trained(
    estimator: AbstractPrivateEstimator, table: str, bounds_from: Mapping[str, str] | None
) -> dict[str, Any]:
    plan, schema = estimator.plan_, estimator.schema_
    given = schema_for(schema.names, estimator.bounds, estimator.categories, schema.missing)
    sources = dict.fromkeys(schema.names, "declared") | dict.fromkeys(given.unbounded, "private")
    sources |= bounds_from or {}
    return {
        "table": str(table),
        "estimator": type(estimator).__name__,
        "model": type(estimator.model_).__name__,
        "parameters": sum(p.numel() for p in estimator.model_.parameters()),
        "units": plan.n,
        "unit": plan.unit,
        "columns": [_column(column, sources[column.name]) for column in schema.columns],
        "settings": {
            "steps": plan.steps,
            "expected_batch": plan.expected_batch,
            "sampling": str(plan.sampling),
            "clip_norm": plan.clip_norm,
            "mechanism": str(plan.mechanism),
            "noise_multiplier": plan.noise_multiplier,
            "learning_rate": getattr(estimator, "learning_rate_", None),
            "missing": schema.missing,
            "outside": schema.outside,
        },
    }


def _column(column: Column, source: str) -> dict[str, Any]:
    return {
        "name": column.name,
        "kind": column.kind,
        "bounds": plain(column.bounds),
        "categories": plain(column.categories),
        "from": source,
    }


def _target(
    estimator: AbstractPrivateEstimator, name: str, bounds_from: Mapping[str, str]
) -> dict[str, Any]:
    """What is predicted, and where that is known from."""
    match estimator.target_:
        case Classes(labels, is_declared):
            source = "declared" if is_declared else "the labels in the table"
            facts: dict[str, Any] = {"classes": plain(labels.tolist()), "bounds": None}
        case Interval(low, high):
            is_private = isinstance(getattr(estimator, "target_bounds", None), str)
            source = "private" if is_private else "declared"
            facts = {"classes": None, "bounds": [low, high]}
        case _:
            source, facts = "unknown", {"classes": None, "bounds": None}
    return {"name": str(name), **facts, "from": bounds_from.get(name, source)}


def _trade_off(certificate: Certificate) -> list[list[float]]:
    """Rates of false alarms, with the most true ones that the proved curve allows any attack.

    A Monte Carlo certificate's curve is a band that holds together with its point, so this has the same
    confidence.
    """
    profile = certificate.profile
    return [[rate, profile.true_positive(rate)] for rate in _RATES]
