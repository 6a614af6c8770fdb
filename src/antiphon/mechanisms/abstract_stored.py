"""What mechanisms without Toeplitz structure share: dense algebra on T x T matrices."""

import math
from abc import abstractmethod
from functools import lru_cache
from typing import ClassVar, final

import numpy as np
from scipy.linalg import solve_triangular
from torch import Tensor

from antiphon.errors import UnsupportedError
from antiphon.mechanisms.abstract_mechanism import (
    AbstractMechanism,
    Buffers,
    Sensitivity,
    check_dense_steps,
    check_steps,
    gram_sensitivity,
)
from antiphon.mechanisms.streaming import full_history
from antiphon.mechanisms.workload import PREFIX_SUMS, Workload
from antiphon.numerics import Matrix, Vector
from antiphon.participation import (
    AbstractParticipation,
    FixedEpochs,
    MinSeparation,
    Once,
    Reshuffled,
)

__all__ = ["AbstractStored", "AbstractTriangular", "prefix_factor"]


class AbstractTriangular(AbstractMechanism):
    """A mechanism given by a dense lower-triangular encoder.

    Attributes:
        gram_is_own: Whether `gram` is CᵀC of the encoder that runs. If it belongs to a longer published
            encoder of which the released noise is a function, the sensitivity is an upper bound.
    """

    gram_is_own: ClassVar[bool] = True

    @abstractmethod
    def gram(self, T: int) -> Matrix:
        """The Gram matrix from which the sensitivity follows."""

    @final
    def decoder(self, T: int) -> Matrix:
        """C⁻¹, dense, for tests and plots."""
        return _decoder(self, T).copy()

    @final
    def sensitivity(self, T: float, participation: AbstractParticipation) -> Sensitivity:
        """Largest change of Cg under ``participation``: see `gram_sensitivity`."""
        if math.inf == T:
            raise UnsupportedError(
                f"{self} is built for a number of steps fixed in advance; give a finite T."
            )
        check_steps(T)
        once = self._once(int(T)) if _is_single(participation) else None
        if once is not None:
            participation.check(int(T))
            return once
        check_dense_steps(int(T))
        value = gram_sensitivity(self.gram(int(T)), participation)
        return Sensitivity(value, is_exact=value.is_exact and self.gram_is_own)

    def _once(self, T: int) -> Sensitivity | None:
        """The sensitivity to a single participation at any step, where it is known without matrices."""
        return None

    def _prefix_errors(self, T: int) -> Vector | None:
        """`errors` of prefix sums, where they are known without matrices."""
        return None

    @final
    def errors(self, T: int, workload: Workload = PREFIX_SUMS) -> Vector:
        """Row norms of A C⁻¹."""
        known = self._prefix_errors(T) if workload == PREFIX_SUMS else None
        if known is not None:
            return known
        return np.linalg.norm(workload.apply(_decoder(self, T)), axis=1)


class AbstractStored(AbstractTriangular):
    """A mechanism whose noise needs all past white noise: O(t) memory and work at step t."""

    @final
    def _start(self, like: Tensor, T: int) -> Buffers:
        _decoder(self, T)  # a wrong T is refused here, not in the middle of a run
        return ()

    @final
    def _next(
        self, z: Tensor, kept: Buffers, t: int, T: int, donate: bool
    ) -> tuple[Tensor, Buffers]:
        return full_history(z, kept, _decoder(self, T)[t, : t + 1].tolist(), donate)


def _is_single(participation: AbstractParticipation) -> bool:
    """Whether a unit takes part in one step, which may be any of them."""
    match participation:
        case Once() | MinSeparation(1, _) | FixedEpochs(1, _) | Reshuffled(1, _):
            return True
    return False


@lru_cache(maxsize=4)
def _decoder(mechanism: AbstractTriangular, T: int) -> Matrix:
    check_dense_steps(T)
    decoder: Matrix = solve_triangular(mechanism.encoder(T), np.eye(T), lower=True)
    if not np.isfinite(decoder).all():
        raise UnsupportedError(
            f"the decoder of {mechanism} for {T} steps is beyond the range of float64."
        )
    decoder.setflags(write=False)
    return decoder


def prefix_factor(covariance: Matrix) -> Matrix:
    """The encoder L⁻¹A whose prefix sums have the given noise covariance LLᵀ, A being prefix sums.

    For a published pair (D, C) with DC = A and covariance DDᵀ this is the square lower-triangular form
    of the same release: L⁻¹D has orthonormal rows, so ‖L⁻¹Au‖ = ‖L⁻¹DCu‖ <= ‖Cu‖, and the
    sensitivity of C is a bound for it.
    """
    L = np.linalg.cholesky(covariance)
    return np.tril(solve_triangular(L, np.tril(np.ones_like(L)), lower=True))
