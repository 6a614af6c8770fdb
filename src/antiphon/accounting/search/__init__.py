"""Over all accountants: the smallest ε, the least noise, the best mechanism, most steps."""

__all__: list[str] = []
