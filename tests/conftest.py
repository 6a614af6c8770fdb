"""Hypothesis draws the same examples in every run, and no test sees the user's cache.

Tests marked ``data`` see the folder that ANTIPHON_DATA names, and are skipped if it names none; no other
test sees it.
"""

import os

import pytest
from hypothesis import settings

settings.register_profile(
    "derandomised", derandomize=True, deadline=None, max_examples=50, database=None
)
settings.load_profile("derandomised")


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTIPHON_CACHE", str(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def folder_of_data(request, monkeypatch):
    if request.node.get_closest_marker("data") is None:
        monkeypatch.delenv("ANTIPHON_DATA", raising=False)
    elif not os.environ.get("ANTIPHON_DATA"):
        pytest.skip("ANTIPHON_DATA names no folder of archives")
