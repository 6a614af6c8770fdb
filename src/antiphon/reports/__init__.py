"""Pages that a person reads: self-contained HTML, without network and without scripts from elsewhere."""

__all__: list[str] = []
