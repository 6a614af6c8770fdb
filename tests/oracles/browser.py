"""A real headless Chromium for tests of pages: the fixture `chromium`, and `visit`."""

import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def chromium():
    """Not for the whole session: while it is open, no other test of this process may run an event loop."""
    path = os.environ.get("ANTIPHON_CHROMIUM") or shutil.which("chromium")
    if path is None:
        pytest.skip("no Chromium found: apt-get install chromium")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@dataclass
class Visit:
    """A page, every request since it was opened, and what it complained about."""

    page: Any
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@contextmanager
def visit(chromium, url, *, width=1280, **context):
    opened = chromium.new_context(viewport={"width": width, "height": 900}, **context)
    try:
        seen = Visit(opened.new_page())
        seen.page.on("request", lambda request: seen.requests.append(request.url))
        seen.page.on("console", lambda message: seen.complaints.append(message.text))
        seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))
        seen.page.goto(url)
        yield seen
    finally:
        opened.close()
