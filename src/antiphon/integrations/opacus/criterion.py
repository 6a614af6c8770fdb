"""The criterion that comes back: the user's own, called for every example by itself."""

from collections.abc import Callable
from typing import Any, final

import torch
from torch.utils._pytree import tree_map

from antiphon.integrations.opacus.batch import Batch
from antiphon.integrations.opacus.loader_rows import plain

__all__ = ["PrivateCriterion"]


@final
class PrivateCriterion:
    """Losses of single examples: the criterion is given batches of one.

    What a call returns has ``backward()``. Its value is the mean over the examples (or the sum, with
    ``loss_reduction="sum"``); it is computed from the data without noise, so who shows it pays in privacy
    what no certificate covers.

    Args:
        criterion: Any function of the model's output and the loader's tensors.
        at_hand: The batch that was handed out and has had no step yet.
    """

    def __init__(self, criterion: Callable[..., Any], at_hand: Callable[[], Batch | None]) -> None:
        self._criterion, self._at_hand = criterion, at_hand

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The loss of a batch at hand; of other tensors, what the criterion itself returns."""
        batch = self._at_hand()
        if batch is None or not torch.is_grad_enabled():
            args, kwargs = tree_map(plain, (args, kwargs))
            return self._criterion(*args, **kwargs)
        return batch.criterion(self._criterion, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        """Attributes of the criterion, such as ``reduction``."""
        return getattr(self._criterion, name)
