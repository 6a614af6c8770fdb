"""Pages that a person reads: self-contained HTML, without network and without scripts from elsewhere."""

from antiphon.reports.axes import brief
from antiphon.reports.contents import describe
from antiphon.reports.pages import page
from antiphon.reports.plain import plain
from antiphon.reports.rendering import render
from antiphon.reports.report_files import read, write

__all__ = ["brief", "describe", "page", "plain", "read", "render", "write"]
