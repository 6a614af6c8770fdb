import io
from functools import partial

from rich.console import Console
from training.small import private, train

from antiphon.training import display


def test_a_terminal_shows_steps_the_planned_epsilon_and_what_the_callback_returned(monkeypatch):
    screen = io.StringIO()
    terminal = partial(Console, file=screen, force_terminal=True, width=160)
    monkeypatch.setattr(display, "Console", lambda stderr: terminal())
    run = private(steps=3, callback=lambda step, metrics: {"public loss": 0.25})
    train(run)
    text = screen.getvalue()
    assert "training privately" in text and "steps/s" in text and "public loss 0.25" in text
    assert f"ε {run.certificate.epsilon:.3g} (planned)" in text


def test_without_a_terminal_nothing_is_written(capsys):
    train(private(steps=3))
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err == ""


def test_a_loop_can_be_silent(monkeypatch):
    screen = io.StringIO()
    terminal = partial(Console, file=screen, force_terminal=True, width=160)
    monkeypatch.setattr(display, "Console", lambda stderr: terminal())
    run = private(steps=2)
    for x, y in run.batches(show=False):
        run.step((run.model(x) ** 2).sum(1) + 0 * y)
    assert screen.getvalue() == ""
