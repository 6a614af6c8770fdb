"""The circulant square root of prefix sums."""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from scipy.linalg import circulant, toeplitz

from antiphon.mechanisms.abstract_mechanism import check_dense_steps
from antiphon.mechanisms.abstract_stored import AbstractStored, prefix_factor
from antiphon.numerics import Matrix, Vector

__all__ = ["FFT"]


@final
@dataclass(frozen=True)
class FFT(AbstractStored):
    """Prefix sums inside a circulant matrix of size 2T, split by the square root of its spectrum.

    With h the real inverse transform of that root, C is the first T columns and D the first T rows of
    circ(h) [MultiEpoch23]. What runs is A⁻¹L with LLᵀ = DDᵀ.

    Guarantee:
        ``sensitivity`` is that of the published C, an upper bound for the square encoder that runs
        (``is_exact`` is False).
    """

    name: ClassVar[str] = "fft"
    gram_is_own: ClassVar[bool] = False

    def encoder(self, T: int) -> Matrix:
        """The square encoder L⁻¹A."""
        D = circulant(_root(T))[:T]
        return prefix_factor(D @ D.T)

    def gram(self, T: int) -> Matrix:
        """CᵀC of the published C: the circular autocorrelation of h."""
        spectrum = np.abs(np.fft.fft(_root(T))) ** 2
        return toeplitz(np.fft.ifft(spectrum).real[:T])


def _root(T: int) -> Vector:
    """h: its circular square is T ones, then T zeros."""
    check_dense_steps(T)
    column = np.repeat([1.0, 0.0], T)
    return np.fft.ifft(np.sqrt(np.fft.fft(column))).real
