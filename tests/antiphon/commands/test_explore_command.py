"""``antiphon explore`` as a user runs it: the address, a port that is taken, Ctrl-C."""

import json
import signal
import socket
import urllib.request

import pytest
from oracles.calls import started

from antiphon.commands import main
from antiphon.commands.explore_command import _listening


@pytest.fixture
def taken():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        yield held.getsockname()[1]


def test_it_serves_until_ctrl_c_which_is_one_line_and_exit_code_0():
    with started("explore", "--port", 0, "--no-browser", "--json") as process:
        url = json.loads(process.stdout.readline())["url"]
        assert url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(url, timeout=10) as page:
            assert b"What does privacy cost?" in page.read()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "", "antiphon: the page is closed\n")


def test_a_port_that_is_asked_for_and_taken_is_one_line_with_the_remedy(taken, capsys):
    assert main(["explore", "--port", str(taken), "--no-browser"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        f"antiphon: error: port {taken} is taken: choose another with --port, or any free one with "
        "--port 0.\n"
    )


def test_the_usual_port_gives_way_to_a_free_one_with_a_note(taken, capsys, monkeypatch):
    monkeypatch.setattr("antiphon.commands.explore_command._USUAL_PORT", taken)
    with _listening(None) as server:
        assert server.server_port not in (0, taken)
        note = f"antiphon: note: port {taken} is taken; this is {server.server_port}.\n"
        assert capsys.readouterr().err == note


def test_the_browser_is_opened_unless_that_is_not_wanted(monkeypatch, capsys):
    opened = []

    def closed(server):
        raise KeyboardInterrupt

    class Here:
        def __init__(self, target, args, daemon):
            self.start = lambda: opened.extend(args)

    monkeypatch.setattr("antiphon.reports.explore.Server.serve_forever", closed)
    monkeypatch.setattr("antiphon.commands.explore_command.threading.Thread", Here)
    assert main(["explore", "--port", "0"]) == 0
    assert f"{opened[0]}  (Ctrl-C ends it)\n" == capsys.readouterr().out
    assert main(["explore", "--port", "0", "--no-browser"]) == 0
    assert len(opened) == 1


@pytest.mark.parametrize("port", ["65536", "-1", "http"])
def test_a_port_that_is_none_is_wrong_usage(port, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["explore", "--port", port])
    assert ended.value.code == 2
    assert "see antiphon explore --help" in capsys.readouterr().err
