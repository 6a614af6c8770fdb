"""What a command has found, on standard output."""

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["show"]


@runtime_checkable
class _Found(Protocol):
    """A certificate, a comparison, a report of an audit."""

    def __rich__(self) -> "Table":
        """For people."""
        ...

    def to_json(self) -> str:
        """For programs."""
        ...


def show(found: _Found, *, is_json: bool) -> None:
    """Print it for people, or as JSON and nothing else."""
    if is_json:
        print(found.to_json())
        return
    from rich.console import Console

    Console().print(found)
