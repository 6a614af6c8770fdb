"""``antiphon explore``: a local page with sliders for what privacy costs."""

import argparse
import errno
import json
import sys
import threading
from typing import TYPE_CHECKING

from antiphon.commands.arguments import Commands, command, natural

if TYPE_CHECKING:
    from antiphon.reports.explore import Server

__all__ = ["add", "run"]

_USUAL_PORT = 8017
_LAST_PORT = 65_535


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = command(
        commands,
        "explore",
        "open a local page where sliders show certified noise, error and the best mechanism",
        "It runs on this machine (127.0.0.1) alone and sends nothing anywhere. Ctrl-C ends it, with exit "
        "code 0. --json prints the address as JSON.",
        """
antiphon explore
antiphon explore --port 0 --no-browser""",
    )
    parser.add_argument(
        "--port",
        metavar="P",
        type=_port,
        help=f"to listen on; 0 for any free one ({_USUAL_PORT}, or a free one if that is taken)",
    )
    parser.add_argument("--no-browser", action="store_true", help="print the address only")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve until interrupted."""
    try:
        server = _listening(options.port)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        why = "is taken" if error.errno == errno.EADDRINUSE else "is not allowed to you"
        print(
            f"antiphon: error: port {options.port} {why}: choose another with --port, or any free one "
            "with --port 0.",
            file=sys.stderr,
        )
        return 1
    with server:
        line = (
            json.dumps({"url": server.url}) if options.json else f"{server.url}  (Ctrl-C ends it)"
        )
        print(line, flush=True)
        if not options.no_browser:
            threading.Thread(target=_open, args=(server.url,), daemon=True).start()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("antiphon: the page is closed", file=sys.stderr)
    return 0


def _listening(port: int | None) -> "Server":
    """A server on the port; unless one is asked for, on the usual or a free one."""
    from antiphon.reports.explore import Server

    if port is not None:
        return Server(port)
    try:
        return Server(_USUAL_PORT)
    except OSError:
        server = Server(0)
        print(
            f"antiphon: note: port {_USUAL_PORT} is taken; this is {server.server_port}.",
            file=sys.stderr,
        )
        return server


def _open(url: str) -> None:
    import webbrowser

    webbrowser.open(url)


def _port(text: str) -> int:
    if (value := natural(text)) > _LAST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: 0 to {_LAST_PORT}")
    return value
