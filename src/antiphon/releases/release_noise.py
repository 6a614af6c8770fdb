"""Noise of releases, which no two different releases can share."""

import math
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from antiphon.numerics import Generator, add_noise

__all__ = ["gumbels", "noised"]


def noised(
    counts: NDArray[Any], scale: float, what: str, generator: Generator | None
) -> NDArray[np.float64]:
    """The counts plus white Gaussian noise of standard deviation ``scale``.

    Guarantee:
        The noise is keyed by the secret generator *and* by what it is added to, so one generator given
        twice never puts the same noise on different counts, whose difference would then be known. The
        generator's key must stay secret: it tells the noise. The sums are rounded once, onto the public
        grid of `antiphon.numerics.grid`.
    """
    source = _source(generator, what, counts, scale)
    z = source.normal(torch.empty(counts.shape, dtype=torch.float64), step=0)
    add_noise(torch.from_numpy(np.array(counts, dtype=np.float64)), z, scale, z)
    return z.numpy()


def gumbels(
    utilities: NDArray[np.float64], epsilon: float, what: str, generator: Generator | None
) -> NDArray[np.float64]:
    """One standard Gumbel variable per utility, keyed as in `noised`."""
    words = _source(generator, what, utilities, epsilon).words(len(utilities), step=0).numpy()
    # Above 0 and below 1: the middle of each of 2**53 cells.
    uniform = ((words.view(np.uint64) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    uniform = np.minimum(uniform, math.nextafter(1.0, 0.0))
    return np.asarray(-np.log(-np.log(uniform)))


def _source(
    generator: Generator | None, what: str, values: NDArray[Any], scale: float
) -> Generator:
    digest = blake2b(np.ascontiguousarray(values, dtype=np.float64).tobytes(), digest_size=32)
    label = f"release: {values.shape} {scale.hex()} {digest.hexdigest()} {what}"
    return (generator or Generator.secure()).spawn(label)
