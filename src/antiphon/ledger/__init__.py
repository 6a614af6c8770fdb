"""What was spent on a data set, and what is left."""

from antiphon.ledger.ledger import Entry, Ledger

__all__ = ["Entry", "Ledger"]
