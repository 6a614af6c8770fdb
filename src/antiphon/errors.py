"""Every exception that Antiphon raises on purpose.

::

    AntiphonError
    ├── DataError         a data set that is not where it was sought, or is not what its name says
    ├── LedgerError       a run that the budget forbids, or a record that cannot be trusted
    ├── PlanError         a value that no run can have: it says what was given and what is allowed
    ├── RunError          a step that is not part of the plan, or a run that cannot continue
    ├── StateError        a noise state that does not belong to the mechanism, tensors or step at hand,
    │                     or a checkpoint that cannot be written, read or trusted
    └── UnsupportedError  a question that has an answer, but none that we can prove

``PlanError`` and ``StateError`` are also ``ValueError``, so that code which knows nothing of Antiphon
catches them where it expects bad values.
"""

__all__ = [
    "AntiphonError",
    "DataError",
    "LedgerError",
    "PlanError",
    "RunError",
    "StateError",
    "UnsupportedError",
]


class AntiphonError(Exception):
    """Base of all errors raised by Antiphon."""


class DataError(AntiphonError):
    """A data set cannot be found, or its files are not what they should be."""


class PlanError(AntiphonError, ValueError):
    """A parameter is outside the range in which it has a meaning."""


class LedgerError(AntiphonError):
    """A ledger refuses a run, or is damaged."""


class RunError(AntiphonError):
    """A training step was refused, or a run was interrupted. What was released before it stays covered."""


class StateError(AntiphonError, ValueError):
    """A noise state does not belong where it was given, or a checkpoint cannot be written or trusted."""


class UnsupportedError(AntiphonError):
    """No proved bound is known for this question, so no number is returned."""
