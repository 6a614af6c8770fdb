"""The page's server: for this machine only, and for this page only.

It listens on 127.0.0.1, answers only requests addressed to that (other names that resolve to it are how a
foreign page would reach a local server), and serves nothing but its own assets and computations.
"""

import contextlib
import json
import select
import socket
import sys
import threading
from collections.abc import Iterator
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any, final
from urllib.parse import parse_qsl, urlsplit

from antiphon.errors import AntiphonError
from antiphon.reports.explore.answer import answers
from antiphon.reports.explore.candidates import mechanism_of
from antiphon.reports.explore.jobs import Busy, Job, Jobs
from antiphon.reports.explore.question import Question, Refused

__all__ = ["Server"]

_MOST_BYTES = 4096  # of a request's body
_PAGES = {
    "/": ("explore/assets/explore.html", "text/html"),
    "/explore.js": ("explore/assets/explore.js", "text/javascript"),
    "/explore.css": ("explore/assets/explore.css", "text/css"),
    "/base.css": ("assets/base.css", "text/css"),
    "/icon.svg": ("explore/assets/icon.svg", "image/svg+xml"),
}
_SAFETY = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@final
class Server(ThreadingHTTPServer):
    """A server on 127.0.0.1, listening once it is made; `serve_forever` answers.

    Args:
        port: 0 for any free one.

    Raises:
        OSError: If the port is taken.
    """

    daemon_threads = True
    request_queue_size = 32

    def __init__(self, port: int = 0) -> None:
        self.jobs = Jobs()
        self.turns = threading.Lock()  # one computation at a time: others would only slow it down
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.server_port}/"

    def server_bind(self) -> None:
        """Bind without asking the network for this machine's name, which may take seconds."""
        socket_address = self.server_address
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(socket_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def server_close(self) -> None:
        """Stop listening, and end what is computed."""
        super().server_close()
        self.jobs.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A page that goes away in the middle of an answer is no error; all else is a bug, and shown."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Gone(Exception):
    """The client has closed the connection."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "antiphon"
    sys_version = ""
    timeout = 60
    server: Server

    def do_GET(self) -> None:
        """The page, its parts, the answer to a question, the state of a job."""
        url = urlsplit(self.path)
        if not self._is_ours():
            return
        if url.path in _PAGES:
            self._send(200, _asset(url.path), _PAGES[url.path][1])
        elif url.path == "/api/plan":
            self._plan(dict(parse_qsl(url.query, keep_blank_values=True)))
        elif (job := self._job(url.path)) is not None:
            self._json(200, vars(job))
        else:
            self._refuse(404, "there is nothing here.")

    def do_POST(self) -> None:
        """Start a certification, or end it."""
        url = urlsplit(self.path)
        if not self._is_ours():
            return
        if self.headers.get("Origin") not in {f"http://{host}" for host in self._hosts()}:
            self._refuse(403, "only the page itself may ask for this.")
        elif url.path == "/api/certify":
            if (values := self._body()) is not None:
                self._certify(values)
        elif url.path.endswith("/cancel") and (job := self._job(url.path[: -len("/cancel")])):
            if self._body() is not None:
                self.server.jobs.cancel(job)
                self._json(200, vars(job))
        else:
            self._refuse(404, "there is nothing here.")

    def _no_method(self) -> None:
        self._refuse(405, f"{self.command} is not answered here.", {"Allow": "GET, POST"})

    do_HEAD = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = _no_method

    def log_message(self, format: str, *args: Any) -> None:
        """The terminal is for the user."""

    def _plan(self, values: dict[str, str]) -> None:
        """A stream of JSON lines; a refusal is a plain answer instead."""
        try:
            parts = answers(Question.read(values), self._turn)
            first = next(parts)
        except AntiphonError as error:
            field = error.field if isinstance(error, Refused) else None
            self._json(400, {"error": _one_line(error), "field": field})
            return
        self._head(200, "application/x-ndjson", {"Transfer-Encoding": "chunked"})
        with contextlib.suppress(_Gone, ConnectionError, TimeoutError):
            self._chunk(first)
            try:
                for part in parts:
                    self._chunk(part)
            except AntiphonError as error:
                self._chunk({"kind": "error", "error": _one_line(error)})
            self.wfile.write(b"0\r\n\r\n")
            return
        self.close_connection = True

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait for the others; then end all if no client waits for this one any more."""
        with self.server.turns:
            readable, _, _ = select.select([self.connection], [], [], 0)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                raise _Gone
            yield

    def _certify(self, values: dict[str, Any]) -> None:
        key = str(values.pop("mechanism", ""))
        try:
            question = Question.read(values)
            plan = question.plan("auto")
            with self._turn():
                plan = question.plan(mechanism_of(key, plan, question.lam))
            job = self.server.jobs.start(plan, question.epsilon, question.delta)
        except Busy as error:
            self._json(409, {"error": str(error), "field": None, "job": vars(error.job)})
        except AntiphonError as error:
            field = error.field if isinstance(error, Refused) else None
            self._json(400, {"error": _one_line(error), "field": field})
        except _Gone:
            self.close_connection = True
        else:
            self._json(202, vars(job))

    def _job(self, path: str) -> Job | None:
        start = "/api/jobs/"
        return self.server.jobs.get(path[len(start) :]) if path.startswith(start) else None

    def _hosts(self) -> set[str]:
        return {f"{name}:{self.server.server_port}" for name in ("127.0.0.1", "localhost")}

    def _is_ours(self) -> bool:
        """Whether the request is addressed to this server, and no other site's page made it."""
        if self.headers.get("Host") not in self._hosts():
            self._refuse(403, "this server answers to 127.0.0.1 and localhost only.")
            return False
        if self.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
            self._refuse(403, "only the page itself may ask for this.")
            return False
        return True

    def _body(self) -> dict[str, Any] | None:
        """The JSON object that was sent, or None after a refusal."""
        kind = self.headers.get("Content-Type", "").split(";")[0].strip()
        length = self.headers.get("Content-Length", "")
        if kind != "application/json":
            self._refuse(415, "send JSON, as application/json.")
        elif not (length.isascii() and length.isdigit()):
            self._refuse(411, "say how long the request is.")
        elif len(length) > 9 or int(length) > _MOST_BYTES:
            self._refuse(413, f"a request has at most {_MOST_BYTES} bytes.")
        else:
            try:
                values = json.loads(self.rfile.read(int(length)))
            except (ValueError, RecursionError):
                values = None
            if isinstance(values, dict):
                return values
            self._json(400, {"error": "a request is a JSON object.", "field": None})
        return None

    def _refuse(self, code: int, text: str, headers: dict[str, str] | None = None) -> None:
        self.close_connection = True  # the rest of what was sent is not read
        self._json(code, {"error": text, "field": None}, headers)

    def _json(self, code: int, values: Any, headers: dict[str, str] | None = None) -> None:
        text = json.dumps(values, allow_nan=False).encode()
        self._send(code, text, "application/json", headers)

    def _send(
        self, code: int, body: bytes, kind: str, headers: dict[str, str] | None = None
    ) -> None:
        with contextlib.suppress(ConnectionError, TimeoutError):
            self._head(code, kind, {"Content-Length": str(len(body)), **(headers or {})})
            if self.command != "HEAD":
                self.wfile.write(body)

    def _head(self, code: int, kind: str, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in {"Content-Type": f"{kind}; charset=utf-8", **_SAFETY, **headers}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def _chunk(self, part: dict[str, Any]) -> None:
        line = json.dumps(part, allow_nan=False).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))


@cache
def _asset(path: str) -> bytes:
    return files("antiphon.reports").joinpath(_PAGES[path][0]).read_bytes()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
