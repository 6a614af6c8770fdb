"""A real Chromium, for tests of pages."""

import os
import shutil
from contextlib import contextmanager

import pytest

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium_path():
    """Where Chromium is: as ``ANTIPHON_CHROMIUM`` says, else on the path; None if nowhere."""
    return os.environ.get("ANTIPHON_CHROMIUM") or shutil.which("chromium")


@contextmanager
def browser():
    """A headless Chromium, driven by Playwright; the test is skipped where there is none."""
    path = chromium_path()
    if path is None:
        pytest.skip("no Chromium found: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, headless=True, args=FLAGS)
        try:
            yield started
        finally:
            started.close()
