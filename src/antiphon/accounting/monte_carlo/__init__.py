"""Points (ε, δ) proved by independent paths, with a failure probability that is part of the result."""

__all__: list[str] = []
