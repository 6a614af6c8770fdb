"""Pages that a person reads: self-contained HTML, without network and without scripts from elsewhere."""

from antiphon.reports.contents import describe
from antiphon.reports.experiment import experiment_page
from antiphon.reports.files import read, write
from antiphon.reports.pages import page

__all__ = ["describe", "experiment_page", "page", "read", "write"]
