"""A local page where sliders show what privacy costs: see `antiphon.reports.explore.server`."""

from antiphon.reports.explore.answer import answers
from antiphon.reports.explore.question import Question, Refused
from antiphon.reports.explore.server import Server

__all__ = ["Question", "Refused", "Server", "answers"]
