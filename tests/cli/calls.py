"""Commands as a test runs them: in this process."""

import pytest

from antiphon.cli import main


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
