"""Private training of any PyTorch model: what a run writes down, so that no noise is ever used twice."""

__all__: list[str] = []
