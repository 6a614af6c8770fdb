"""Hypothesis draws the same examples in every run."""

from hypothesis import settings

settings.register_profile(
    "derandomised", derandomize=True, deadline=None, max_examples=50, database=None
)
settings.load_profile("derandomised")
