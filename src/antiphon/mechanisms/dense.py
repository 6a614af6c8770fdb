"""Any lower-triangular encoder."""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from antiphon.errors import PlanError
from antiphon.mechanisms.abstract_mechanism import check_dense_steps
from antiphon.mechanisms.abstract_stored import AbstractStored
from antiphon.mechanisms.coefficients import LARGEST, SMALLEST
from antiphon.numerics import Matrix

__all__ = ["Dense"]


@final
@dataclass(frozen=True, eq=False)
class Dense(AbstractStored):
    """An encoder given entry by entry, for up to ``len(C)`` steps.

    ``optimize("dense", T, participation)`` finds the best one: for one participation the optimal
    factorisation, for fixed epochs the multi-epoch ("ME") one.

    Attributes:
        C: Square, lower triangular, finite, with a non-zero diagonal. Also a list of its rows, each
            up to the diagonal.

    Guarantee:
        ``sensitivity`` is exact if CᵀC is non-negative where a pattern's steps meet and the
        participation's bound is attained; else a proved upper bound.

    Example:
        >>> Dense([[1.0], [0.5, 1.0]]) == Dense([[1.0, 0.0], [0.5, 1.0]])
        True
    """

    C: Matrix
    name: ClassVar[str] = "dense"

    def __init__(self, C: ArrayLike) -> None:
        """Check the encoder and keep a copy that cannot change."""
        rows = [np.asarray(row, dtype=np.float64) for row in C]  # type: ignore[union-attr]
        if any(row.ndim != 1 for row in rows):
            raise PlanError("C must be a matrix: a list of rows of numbers.")
        matrix = np.zeros((len(rows), len(rows)))
        for i, row in enumerate(rows):
            if len(row) not in (i + 1, len(rows)) or row[i + 1 :].any():
                raise PlanError(
                    f"C must be square and lower triangular; its row {i} has {len(row)} entries with "
                    "one beyond the diagonal, or the wrong length."
                )
            matrix[i, : i + 1] = row[: i + 1] + 0.0  # -0.0 becomes 0.0: equal entries, equal bytes
        if not len(rows) or not np.isfinite(matrix).all():
            raise PlanError("C must have at least one row and only finite entries.")
        if np.abs(matrix).max() > LARGEST:
            raise PlanError(f"C has an entry above {LARGEST:g}, where sums of squares overflow.")
        small = np.flatnonzero(np.abs(np.diagonal(matrix)) < SMALLEST)
        if small.size:
            i = int(small[0])
            raise PlanError(f"C[{i}, {i}] is {matrix[i, i]:g}, so C is not invertible.")
        matrix.setflags(write=False)
        object.__setattr__(self, "C", matrix)

    def __eq__(self, other: object) -> bool:
        """Whether the other is a `Dense` with the same entries."""
        return isinstance(other, Dense) and np.array_equal(self.C, other.C)

    def __hash__(self) -> int:
        """Equal encoders hash equal; the last row tells others apart well enough, and quickly."""
        return hash((len(self.C), self.C[-1].tobytes()))

    def __reduce__(self) -> tuple[type["Dense"], tuple[Matrix]]:
        """For copies and pickles, whose entries cannot change either."""
        return Dense, (self.C,)

    def __repr__(self) -> str:
        """The size only: the entries are too many to read."""
        return f"Dense(C of {len(self.C)} steps)"

    def encoder(self, T: int) -> Matrix:
        """The leading T x T block of C."""
        check_dense_steps(T)
        if len(self.C) < T:
            raise PlanError(f"this encoder is for up to {len(self.C)} steps; {T} were asked for.")
        return self.C[:T, :T].copy()

    def gram(self, T: int) -> Matrix:
        """CᵀC."""
        C = self.encoder(T)
        return C.T @ C
