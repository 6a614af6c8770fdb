"""Noise step by step, and the white noise to make it from."""

from collections.abc import Iterable

import torch
from torch import Tensor

from antiphon.mechanisms import AbstractMechanism


def white(T: int, *shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """T rows of reproducible white noise."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(T, *shape, generator=generator, dtype=torch.float64).to(dtype)


def stream(
    mechanism: AbstractMechanism, z: Iterable[Tensor], T: int, donate: bool = False
) -> Tensor:
    """All rows of C⁻¹z from `correlate`; every row given to the mechanism is a copy."""
    rows = [row.clone() for row in z]
    state = mechanism.init(rows[0], T)
    noise = []
    for row in rows:
        x, state = mechanism.correlate(row, state, donate=donate)
        noise.append(x.clone())
    return torch.stack(noise)


def dense(mechanism: AbstractMechanism, z: Tensor) -> Tensor:
    """All rows of C⁻¹z from the dense decoder."""
    return torch.tensordot(torch.as_tensor(mechanism.decoder(len(z))), z.double(), dims=1)
