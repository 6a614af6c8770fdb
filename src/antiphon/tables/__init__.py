"""Private learning from tables: `data` reads and describes them, `estimators` learn from them."""

__all__: list[str] = []
