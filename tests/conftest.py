"""Hypothesis draws the same examples in every run, and no test sees the user's cache."""

import pytest
from hypothesis import settings

settings.register_profile(
    "derandomised", derandomize=True, deadline=None, max_examples=50, database=None
)
settings.load_profile("derandomised")


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTIPHON_CACHE", str(tmp_path / "cache"))
