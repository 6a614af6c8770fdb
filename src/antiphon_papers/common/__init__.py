"""What several papers share: experiments and how they are run, printed theorems, two-layer KANs."""

__all__: list[str] = []
