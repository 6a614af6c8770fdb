import io
from functools import partial

import pytest
from oracles.small_models import private, train
from rich.console import Console

from antiphon.training.run import display


@pytest.fixture
def screen(monkeypatch):
    """A terminal that keeps what is written to it."""
    kept = io.StringIO()
    terminal = partial(Console, file=kept, force_terminal=True, width=160)
    monkeypatch.setattr(display, "Console", lambda stderr: terminal())
    return kept


def test_a_terminal_shows_steps_the_planned_epsilon_and_what_the_callback_returned(screen):
    run = private(steps=3, callback=lambda step, metrics: {"public loss": 0.25})
    run.train()
    text = screen.getvalue()
    assert "training privately" in text and "steps/s" in text and "public loss 0.25" in text
    assert f"ε {run.certificate.epsilon:.3g} (planned)" in text


def test_without_a_terminal_nothing_is_written(capsys):
    private(steps=3).train()
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err == ""


def test_a_loop_can_be_silent(screen):
    train(private(steps=2))
    for _ in private(steps=2).take(show=False):
        pass
    assert screen.getvalue() == ""


def test_a_loop_that_is_left_gives_the_terminal_back(screen):
    run = private(steps=3)
    for _ in run:
        break
    shown = screen.getvalue()
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1  # the cursor goes and comes
    with pytest.raises(ZeroDivisionError):
        for _ in run:
            raise ZeroDivisionError
    shown = screen.getvalue()
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 2
