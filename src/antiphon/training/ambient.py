"""The random numbers that a run does not own: those of dropout and of data augmentation.

They come from the global generators of torch, NumPy and Python, in the process that computes. A resumed run
must find them as they were: another dropout mask would be another gradient.
"""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["ambient_state", "set_ambient_state"]

_TORCH, _CUDA, _NUMPY = "ambient.torch", "ambient.cuda", "ambient.numpy"


def ambient_state(device: torch.device) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The states of all generators, those of ``device`` among them, as tensors and JSON."""
    state: Any = np.random.get_state()  # noqa: NPY002 (the global one is meant)
    tensors = {_TORCH: torch.get_rng_state(), _NUMPY: torch.from_numpy(state[1].astype(np.int64))}
    if device.type == "cuda":
        tensors[_CUDA] = torch.cuda.get_rng_state(device)
    version, words, gauss = random.getstate()
    return tensors, {"numpy": [state[0], *state[2:]], "python": [version, list(words), gauss]}


def set_ambient_state(
    tensors: Mapping[str, Tensor], meta: Mapping[str, Any], device: torch.device
) -> None:
    """Set all generators to what `ambient_state` returned."""
    torch.set_rng_state(tensors[_TORCH])
    if device.type == "cuda" and _CUDA in tensors:
        torch.cuda.set_rng_state(tensors[_CUDA], device)
    name, *rest = meta["numpy"]
    words = tensors[_NUMPY].numpy().astype(np.uint32)
    np.random.set_state((name, words, *rest))  # noqa: NPY002
    version, state, gauss = meta["python"]
    random.setstate((version, tuple(state), gauss))
