"""Files that are whole or not there: what a crash leaves is the old file or the new one."""

import os
from contextlib import suppress
from os import PathLike
from pathlib import Path

__all__ = ["write_whole"]


def write_whole(path: str | PathLike[str], text: str, *, mode: int = 0o666) -> None:
    """Replace the file's text, and wait until it is on the disk.

    Args:
        path: The file; its folder is there.
        text: Written as UTF-8 with lines as they are.
        mode: Permissions of a new file, less the process's mask; 0o600 for what is secret.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_whole(f"{folder}/note", "first")
        ...     write_whole(f"{folder}/note", "second")
        ...     print(os.listdir(folder), Path(folder, "note").read_text())
        ['note'] second
    """
    path = Path(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
