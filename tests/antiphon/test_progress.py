"""A bar appears on a terminal, late; elsewhere nothing is written."""

import os
import pty
import subprocess
import sys

from antiphon.progress import bar, heard_by

CODE = """
from antiphon import progress
progress._PATIENCE = {patience}
with progress.bar("counting") as update:
    for i in range(5):
        update(i + 1, 5)
"""


def run(patience):
    """What the program writes to a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", CODE.format(patience=patience)],
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    process.wait()
    os.close(theirs)
    written = b""
    try:
        while part := os.read(ours, 4096):
            written += part
    except OSError:  # the other end is closed and all is read
        pass
    os.close(ours)
    assert process.returncode == 0
    return written.decode()


def test_a_bar_is_drawn_on_a_terminal_once_it_takes_long():
    assert "counting" in run(patience=0)
    assert "counting" not in run(patience=60)


def test_a_file_gets_nothing():
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(patience=0)], capture_output=True, check=True
    )
    assert done.stderr == b""


def test_a_listener_hears_every_bar_within_its_block_and_none_after_it():
    heard = []
    with heard_by(lambda *told: heard.append(told)):
        with bar("first") as update:
            update(1, 3)
        with bar("second") as update:
            update(2, 2)
    with bar("third") as update:
        update(1, 1)
    assert heard == [("first", 1, 3), ("second", 2, 2)]
