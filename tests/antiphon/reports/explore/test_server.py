"""The server over real HTTP: who is answered, what is refused, and the life of a certification."""

import http.client
import json
import socket
import threading
import time
from contextlib import contextmanager
from multiprocessing.connection import wait
from urllib.parse import urlencode

import pytest

from antiphon.accounting.search.registry import ACCOUNTANTS
from antiphon.certificates import Certificate
from antiphon.plans import Plan
from antiphon.reports.explore import Question, Server, answers

QUICK = {"n": 600, "batch": 150, "epochs": 2, "epsilon": 2, "delta": 1e-3, "lam": 0.5}
SHUFFLED = QUICK | {"sampling": "shuffled"}
SLOW = {"n": 60_000, "batch": 600, "epochs": 10, "epsilon": 2, "delta": 1e-8, "lam": 0.9}


@pytest.fixture(scope="module")
def server():
    with running() as started:
        yield started


@contextmanager
def running():
    with Server(0) as started:
        thread = threading.Thread(target=started.serve_forever, args=(0.02,))
        thread.start()
        yield started
        started.shutdown()
        thread.join()


def request(server, method, path, body=None, **headers):
    """Status, headers and body of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def get(server, path, **headers):
    status, _, body = request(server, "GET", path, **headers)
    return status, json.loads(body)


def post(server, path, values, **headers):
    own = {"Origin": server.url.rstrip("/"), "Content-Type": "application/json"}
    body = values if isinstance(values, str) else json.dumps(values)
    status, _, told = request(server, "POST", path, body, **(own | headers))
    return status, json.loads(told)


def ended(server, id, within=40):
    """The job once it does not run any more, and all the states that were seen."""
    seen, until = [], time.monotonic() + within
    while time.monotonic() < until:
        job = get(server, f"/api/jobs/{id}")[1]
        seen.append((job["what"], job["done"], job["all"]))
        if job["state"] != "running":
            return job, seen
        time.sleep(0.02)
    raise AssertionError(f"still {job}")


def test_the_page_and_its_parts_are_served_with_headers_that_keep_it_alone(server):
    kinds = {
        "/": "text/html",
        "/explore.js": "text/javascript",
        "/explore.css": "text/css",
        "/base.css": "text/css",
        "/icon.svg": "image/svg+xml",
    }
    for path, kind in kinds.items():
        status, headers, body = request(server, "GET", path)
        assert (status, headers.get_content_type()) == (200, kind)
        assert len(body) > 100
        assert headers["Content-Security-Policy"].startswith("default-src 'self';")
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in headers


def test_it_listens_on_this_machine_alone(server):
    assert server.socket.getsockname()[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.server_port}/"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "[::1]:80", ""])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_another_host_is_refused(server, host, method):
    status, _, body = request(server, method, "/", Host=host)
    assert status == 403
    assert "localhost only" in json.loads(body)["error"]


def test_localhost_is_this_host(server):
    assert request(server, "GET", "/", Host=f"localhost:{server.server_port}")[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/explore.html",
        "/assets/base.css",
        "/../base.css",
        "/..%2fbase.css",
        "/etc/passwd",
        "/api/jobs/none",
        "/api/jobs/",
        "/api/certify",
        "/server.py",
    ],
)
def test_nothing_else_is_served(server, path):
    status, told = get(server, path)
    assert (status, told) == (404, {"error": "there is nothing here.", "field": None})


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"])
def test_other_methods_are_refused(server, method):
    status, headers, _ = request(server, method, "/api/plan")
    assert (status, headers["Allow"]) == (405, "GET, POST")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_foreign_pages_request_is_refused(server, site):
    status, told = get(server, f"/api/plan?{urlencode(QUICK)}", **{"Sec-Fetch-Site": site})
    assert (status, told["error"]) == (403, "only the page itself may ask for this.")


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1"])
def test_a_job_is_started_by_the_page_alone(server, origin):
    status, told = post(server, "/api/certify", QUICK, Origin=origin)
    assert (status, told["error"]) == (403, "only the page itself may ask for this.")
    body = json.dumps(QUICK)
    kind = {"Content-Type": "application/json"}
    assert request(server, "POST", "/api/certify", body, **kind)[0] == 403


@pytest.mark.parametrize(
    ("body", "headers", "status", "words"),
    [
        ("{}", {"Content-Type": "text/plain"}, 415, "send JSON"),
        ("x" * 5000, {}, 413, "at most 4096 bytes"),
        ("{", {}, 400, "a JSON object"),
        ("[1]", {}, 400, "a JSON object"),
        ("[" * 4000, {}, 400, "a JSON object"),
        ("{}", {"Content-Length": "two"}, 411, "how long"),
        ('{"mechanism": "independent"}', {}, 400, "n must be a number"),
    ],
)
def test_a_bad_body_is_refused(server, body, headers, status, words):
    found, told = post(server, "/api/certify", body, **headers)
    assert found == status
    assert words in told["error"]


def test_the_answer_is_that_of_the_library_line_by_line(server):
    status, headers, body = request(server, "GET", f"/api/plan?{urlencode(SHUFFLED)}")
    assert (status, headers.get_content_type()) == (200, "application/x-ndjson")
    lines = [json.loads(line) for line in body.splitlines()]
    asked = Question.read({name: str(value) for name, value in SHUFFLED.items()})
    assert lines == json.loads(json.dumps([*answers(asked)]))


@pytest.mark.parametrize(
    ("changed", "field", "words"),
    [
        ({"n": "x"}, "n", "n must be a number; got 'x'."),
        ({"batch": 601}, "batch", "batch_size=601 is larger than the 600 units of the data."),
        ({"sampling": "shuffled", "relation": "add-remove"}, "relation", "gives places by row"),
        ({"shape": 1}, "shape", "there is no parameter 'shape'."),
    ],
)
def test_a_bad_question_is_refused_in_one_line_by_its_control(server, changed, field, words):
    status, told = get(server, f"/api/plan?{urlencode(QUICK | changed)}")
    assert (status, told["field"]) == (400, field)
    assert words in told["error"]
    assert "\n" not in told["error"]


def test_who_goes_away_is_not_computed_for(server):
    before = threading.active_count()
    text = (
        f"GET /api/plan?{urlencode(SLOW)} HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n"
    )
    with server.turns:  # somebody else's turn: all of these wait
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", server.server_port)) as gone:
                gone.sendall(text.encode())
                assert gone.recv(12) == b"HTTP/1.1 200"
        time.sleep(0.05)
    began = time.monotonic()
    while threading.active_count() > before:
        assert time.monotonic() - began < 1  # one of these answers alone would take longer
        time.sleep(0.01)


def test_a_certification_runs_shows_progress_and_ends_with_a_certificate(server):
    status, job = post(server, "/api/certify", QUICK | {"mechanism": "slider"})
    assert (status, job["state"]) == (202, "running")
    status, told = post(server, "/api/certify", QUICK | {"mechanism": "slider"})
    assert (status, told["error"]) == (409, "a certification is running already: cancel it first.")
    job, seen = ended(server, job["id"])
    assert job["state"] == "done"
    assert any(done > 0 and total > 0 for _, done, total in seen)
    result = job["result"]
    plan = Plan.from_json(json.dumps(result["plan"]))
    assert plan.noise_multiplier == result["noise"]
    certificate = Certificate.from_json(json.dumps(result["certificate"]))
    assert certificate.plan == plan
    assert certificate.epsilon <= 2
    assert [tuple(pair) for pair in result["lines"]] == certificate.lines()
    quick = ACCOUNTANTS["moments"].account(plan).profile.delta(2.0)
    assert certificate.confidence is not None or quick <= 1e-3


def test_a_certification_can_be_cancelled_and_another_one_started(server):
    _, job = post(server, "/api/certify", SLOW | {"mechanism": "slider"})
    process = server.jobs._process
    assert process.is_alive()
    status, told = post(server, f"/api/jobs/{job['id']}/cancel", {})
    assert (status, told["state"]) == (200, "cancelled")
    assert wait([process.sentinel], timeout=0)
    assert get(server, f"/api/jobs/{job['id']}")[1]["state"] == "cancelled"
    assert post(server, f"/api/jobs/{job['id']}/cancel", {})[1]["state"] == "cancelled"
    _, second = post(server, "/api/certify", SHUFFLED | {"mechanism": "independent"})
    assert ended(server, second["id"])[0]["state"] == "done"


def test_what_cannot_be_certified_says_why(server):
    asked = QUICK | {"sampling": "fixed-size", "relation": "add-remove", "delta": 1e-12}
    _, job = post(server, "/api/certify", asked | {"mechanism": "blt"})
    job, _ = ended(server, job["id"])
    assert job["state"] == "failed"
    assert job["error"].startswith("no accountant can bound this plan.")
    assert "\n" not in job["error"]


@pytest.mark.parametrize("key", ["tree", "", 3])
def test_an_unknown_mechanism_is_not_certified(server, key):
    status, told = post(server, "/api/certify", QUICK | {"mechanism": key})
    assert (status, told["field"]) == (400, "mechanism")


def test_closing_ends_what_is_running():
    with running() as started:
        post(started, "/api/certify", SLOW | {"mechanism": "slider"})
        process = started.jobs._process
    assert wait([process.sentinel], timeout=0)


def test_a_process_that_dies_is_a_failure(server):
    _, job = post(server, "/api/certify", SLOW | {"mechanism": "slider"})
    server.jobs._process.kill()
    job, _ = ended(server, job["id"])
    assert (job["state"], job["error"]) == ("failed", "the process ended without a result.")
