"""Other libraries' loops on the core of `antiphon.training`: Opacus' engine."""

__all__: list[str] = []
