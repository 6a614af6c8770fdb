"""Published bounds as functions, one module per paper."""

__all__: list[str] = []
