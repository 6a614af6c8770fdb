"""The report page: one HTML file that needs nothing else."""

from functools import partial
from typing import Any

from antiphon.reports.model_figures import learned_functions, quality_figures
from antiphon.reports.numerals import number
from antiphon.reports.rendering import render
from antiphon.reports.run_figures import learning_curves, noise_figures, trade_off

__all__ = ["page"]


def page(report: dict[str, Any]) -> str:
    """The whole page of a report.

    Args:
        report: From `describe` or `read`.

    Guarantee:
        The page loads nothing, sends nothing and runs no script. Every bound is rounded up: none is below
        the one that is proved. All texts from outside are escaped.
    """
    return render(
        "report.html",
        report=report,
        number=partial(number, report),
        trade_off=trade_off(report),
        quality=quality_figures(report),
        learning=learning_curves(report),
        noise=noise_figures(report),
        functions=learned_functions(report),
    )
