"""Coordinates in which a run on signal-and-noise data is small.

All gradients lie in the span of μ and the noise patches ξ_1, ..., ξ_n, which has 1 + min(n, d - 1)
dimensions. In an orthonormal basis with μ first, the patches are the rows of a lower triangular matrix if
n < d - 1, so that products with them cost half. Isotropic noise stays isotropic.
"""

from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, qr

from antiphon_papers.cnn.patches import SignalPatches

__all__ = ["Span"]

Array = NDArray[Any]


@final
class Span:
    """An orthonormal basis of all patches, and the patches in it.

    Args:
        data: Records whose noise patches are orthogonal to the signal.
        dtype: Of the products.

    Attributes:
        y: Labels.
        d: Numbers in a patch.
        signal: ‖μ‖.
        spread: σ_p.
        patches: Noise patches in the basis, without the coordinate along μ, which is 0.
        energies: ‖ξ_i‖².
        is_triangular: Whether ``patches`` is.
    """

    def __init__(self, data: SignalPatches, dtype: Any = np.float64) -> None:
        self.y = data.y.astype(dtype)
        self.d, self.signal = len(data.signal), float(np.linalg.norm(data.signal))
        self.spread = data.spread
        self._direction = data.signal / self.signal
        self._inner = self._reflected(data.noise)[:, 1:]
        self.is_triangular = len(self.y) < self.d - 1
        # The patches in the basis of a QR decomposition are the transposed R, and Q is seldom needed.
        inner = (
            qr(self._inner.T, mode="r")[0][: len(self.y)].T if self.is_triangular else self._inner
        )
        self.patches = np.asfortranarray(
            np.tril(inner) if self.is_triangular else inner, dtype=dtype
        )
        self.energies = (data.noise**2).sum(axis=1).astype(dtype)

    @property
    def n(self) -> int:
        """Number of records."""
        return len(self.y)

    @property
    def rank(self) -> int:
        """Dimension of the span without μ."""
        return int(self.patches.shape[1])

    @property
    def left(self) -> int:
        """Dimension of what is orthogonal to all patches: training never sees it."""
        return self.d - 1 - self.rank

    def coordinates(self, weight: Array) -> tuple[Array, Array, Array]:
        """Rows in this basis: along μ, along the noise patches, and along the rest."""
        reflected = self._reflected(weight)
        along, inner = reflected[:, 0], reflected[:, 1:] @ self._basis
        return along, inner[:, : self.rank], inner[:, self.rank :]

    def lift(self, along: Array, inner: Array, rest: Array) -> Array:
        """The rows with these coordinates."""
        outer = np.concatenate([inner, rest], axis=1) @ self._basis.T
        return self._reflected(np.concatenate([along[:, None], outer], axis=1), back=True)

    def products(self, inner: Array, out: Array) -> Array:
        """⟨w_k, ξ_i⟩ of all rows of ``inner`` in their coordinates; overwrites ``out``, (rows, n)."""
        if not self.is_triangular:
            return np.matmul(inner, self.patches.T, out=out)
        out[:] = inner
        return self._triangular(out, transposed=False)

    def combined(self, weights: Array) -> Array:
        """Σ_i weights_ki ξ_i of all rows in coordinates; may overwrite ``weights``."""
        if not self.is_triangular:
            return np.matmul(weights, self.patches)
        return self._triangular(weights, transposed=True)

    def _triangular(self, rows: Array, *, transposed: bool) -> Array:
        """Multiply in place; rows of C order are the columns of Fortran's."""
        multiply = blas.dtrmm if rows.dtype == np.float64 else blas.strmm
        options = {"lower": 1, "trans_a": int(transposed), "overwrite_b": 1}
        product: Array = multiply(1.0, self.patches, rows.T, **options).T
        return product

    @cached_property
    def _basis(self) -> Array:
        """Q of the noise patches in the complement of μ, completed to all of it."""
        if not self.is_triangular:
            return np.eye(self.d - 1)
        basis: Array = qr(self._inner.T)[0]
        return basis

    def _reflected(self, rows: Array, *, back: bool = False) -> Array:
        """Rows in a basis that begins with μ/‖μ‖: a Householder reflection, and the sign it needs."""
        sign = 1.0 if self._direction[0] >= 0 else -1.0
        axis = self._direction + sign * np.eye(1, self.d)[0]
        axis /= np.linalg.norm(axis)
        rows = rows.astype(np.float64)
        if back:
            rows[:, 0] *= -sign
        rows -= 2 * np.outer(rows @ axis, axis)
        if not back:
            rows[:, 0] *= -sign
        return rows
