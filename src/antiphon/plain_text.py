"""What is made for a terminal, as text for a file or a log."""

from io import StringIO

from rich.console import Console, RenderableType

__all__ = ["plain_text"]

_WIDTH = 100


def plain_text(shown: RenderableType) -> str:
    r"""The text that a terminal of 100 columns would show, without colours.

    Example:
        >>> plain_text("ε = [b]1[/b]")
        'ε = 1\n'
    """
    out = StringIO()
    Console(file=out, width=_WIDTH).print(shown)
    return out.getvalue()
