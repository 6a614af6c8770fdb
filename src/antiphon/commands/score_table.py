"""Scores as a table for the terminal."""

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType
from rich.table import Table

__all__ = ["score_table"]

_NONE = (
    "No score is shown: one on these records would tell more about them. Give public records (--test "
    "FILE), or pay for a noisy score (--evaluate 0.2)."
)


def score_table(evaluation: Mapping[str, Any] | None) -> RenderableType:
    """What is known of the model's quality, or why nothing is."""
    if evaluation is None:
        return _NONE
    is_paid = evaluation["kind"] == "paid"
    what = "held-out records, noisy and paid for" if is_paid else "public records"
    view = Table(title=f"On {evaluation['rows']} {what}", title_justify="left", show_header=False)
    view.add_column(style="bold")
    view.add_column(justify="right")
    for name, value in evaluation["metrics"].items():
        text = f"{value:.4g}"
        if name in (evaluation.get("interval") or {}):
            low, high = evaluation["interval"][name]
            text += f"  (95 %: {low:.4g} to {high:.4g})"
        view.add_row(name, text)
    return view
