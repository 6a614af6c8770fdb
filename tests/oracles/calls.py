"""Commands as a test runs them: in this process, or in one of their own that hears Ctrl-C."""

import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from antiphon.commands import main


def caller(capsys):
    """A function from arguments to exit code, output and errors."""

    def call(*arguments):
        code = main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return call


def assert_refused(result, *words):
    """One line on the error stream, and nothing else."""
    code, out, err = result
    assert (code, out) == (1, "")
    assert err.startswith("antiphon: error: ") and err.count("\n") == 1
    for word in words:
        assert word in err, err


def assert_misused(capsys, arguments, *words):
    """Exit code 2, and one line."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert err.startswith("antiphon: error: ") and err.count("\n") == 1
    for word in words:
        assert word in err, err


@contextmanager
def started(*arguments, **options):
    """The program in a process that hears Ctrl-C, also where tests run in the background, and ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "antiphon", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **options,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
