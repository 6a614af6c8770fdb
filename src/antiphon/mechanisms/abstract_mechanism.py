"""What every mechanism is: an encoder C, its decoder C⁻¹, a sensitivity, an error, and a noise stream.

A mechanism is a frozen value. The noise it adds at step t is row t of C⁻¹z, where z is white; it is
private because C⁻¹(Cg + z) is a function of Cg + z, and C carries the sensitivity.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, final, overload

import numpy as np
import torch
from torch import Tensor

from antiphon.checks import whole
from antiphon.errors import PlanError, StateError, UnsupportedError
from antiphon.mechanisms.workload import PREFIX_SUMS, Workload, brief
from antiphon.numerics import Matrix, Vector, signs_agree
from antiphon.participation import AbstractParticipation

__all__ = [
    "AbstractMechanism",
    "Buffers",
    "ErrorKind",
    "NoiseState",
    "Sensitivity",
    "check_dense_steps",
    "check_steps",
    "gram_sensitivity",
]

_MOST_STEPS = 100_000_000
_MOST_DENSE_STEPS = 20_000

Buffers = tuple[Tensor, ...]
ErrorKind = Literal["rms", "max"]


@final
class Sensitivity(float):
    """Largest L2 change of Cg, in units of the clip norm, when one unit is added or removed.

    Attributes:
        is_exact: Whether some unit attains it; else it is a proved upper bound.
    """

    is_exact: bool

    def __new__(cls, value: float, is_exact: bool) -> "Sensitivity":
        """A float that knows whether it is exact; 0 or infinity would be a loss of digits."""
        if not 0 < value < math.inf:
            raise UnsupportedError(
                f"the sensitivity came out as {value}: beyond the range of float64."
            )
        self = super().__new__(cls, value)
        self.is_exact = is_exact
        return self

    def __getnewargs__(self) -> tuple[float, bool]:  # type: ignore[override]
        """For copies and pickles."""
        return float(self), self.is_exact


@final
@dataclass(frozen=True, eq=False)
class NoiseState:
    """What a mechanism must remember between two steps; as secret as the noise itself.

    Attributes:
        mechanism: The mechanism that made it; no other one accepts it.
        T: Number of steps of the run.
        step: The step whose noise comes next.
        shapes: Shape and type of each tensor of noise.
        buffers: For each tensor of noise, the tensors kept for it.
    """

    mechanism: "AbstractMechanism"
    T: int
    step: int
    shapes: tuple[tuple[torch.Size, torch.dtype], ...]
    buffers: tuple[Buffers, ...] = field(repr=False)
    _spent: list[bool] = field(default_factory=list, repr=False)

    @property
    def nbytes(self) -> int:
        """Bytes that the buffers hold."""
        return sum(b.numel() * b.element_size() for kept in self.buffers for b in kept)


class AbstractMechanism(ABC):
    """Correlated noise: a lower-triangular invertible encoder C for every number of steps T.

    Subclasses are frozen dataclasses, so that equal mechanisms compare and hash equal.
    """

    name: ClassVar[str]

    @abstractmethod
    def encoder(self, T: int) -> Matrix:
        """C, dense, for tests and plots."""

    @abstractmethod
    def decoder(self, T: int) -> Matrix:
        """C⁻¹, dense, for tests and plots."""

    @abstractmethod
    def sensitivity(self, T: float, participation: AbstractParticipation) -> Sensitivity:
        """Largest change of Cg under ``participation``, in units of the clip norm.

        Args:
            T: Number of steps, or ``math.inf`` for a bound that holds for every number of steps.
            participation: The steps in which one unit can take part.
        """

    @abstractmethod
    def errors(self, T: int, workload: Workload = PREFIX_SUMS) -> Vector:
        """Standard deviation of each entry of A C⁻¹z at unit noise: the row norms of A C⁻¹."""

    @abstractmethod
    def _start(self, like: Tensor, T: int) -> Buffers:
        """The buffers before the first step."""

    @abstractmethod
    def _next(
        self, z: Tensor, kept: Buffers, t: int, T: int, donate: bool
    ) -> tuple[Tensor, Buffers]:
        """Row t of C⁻¹z and the new buffers. May overwrite ``z`` and ``kept`` only if ``donate``."""

    def __repr__(self) -> str:
        """The parameters, long lists shortened."""
        values = (f"{f.name}={brief(getattr(self, f.name))}" for f in fields(self))  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(values)})"

    @final
    def error(self, T: int, kind: ErrorKind = "rms", workload: Workload = PREFIX_SUMS) -> float:
        """Error of the workload at unit noise: root mean square over the steps, or the largest."""
        rows = self.errors(T, workload)
        match kind:
            case "rms":
                return float(np.sqrt(np.mean(rows**2)))
            case "max":
                return float(rows.max())
            case _:
                raise PlanError(f"kind is 'rms' or 'max'; got {kind!r}.")

    @final
    def loss(
        self,
        T: int,
        participation: AbstractParticipation,
        kind: ErrorKind = "rms",
        workload: Workload = PREFIX_SUMS,
    ) -> float:
        """Sensitivity times error: the error at unit privacy, by which mechanisms compare."""
        return float(self.sensitivity(T, participation)) * self.error(T, kind, workload)

    @final
    def init(self, like: Tensor | Sequence[Tensor], T: int) -> NoiseState:
        """The state before the first of T steps, for noise shaped like ``like``."""
        check_steps(T)
        tensors = [like] if isinstance(like, Tensor) else list(like)
        for tensor in tensors:
            if not isinstance(tensor, Tensor) or tensor.dtype not in (torch.float32, torch.float64):
                raise PlanError(
                    "noise is correlated in float32 or float64: shorter types round the coefficients, "
                    "so that another mechanism runs than is certified. Add the noise in float32, then "
                    f"round. Got {getattr(tensor, 'dtype', type(tensor))}."
                )
        buffers = tuple(self._start(tensor.detach(), T) for tensor in tensors)
        return NoiseState(self, T, 0, tuple((x.shape, x.dtype) for x in tensors), buffers)

    @overload
    def correlate(
        self, z: Tensor, state: NoiseState, *, donate: bool = False
    ) -> tuple[Tensor, NoiseState]: ...

    @overload
    def correlate(
        self, z: Sequence[Tensor], state: NoiseState, *, donate: bool = False
    ) -> tuple[list[Tensor], NoiseState]: ...

    @final
    @torch.no_grad()
    def correlate(
        self, z: Tensor | Sequence[Tensor], state: NoiseState, *, donate: bool = False
    ) -> tuple[Tensor | list[Tensor], NoiseState]:
        """The next row of C⁻¹z, and the state after it.

        Args:
            z: White noise of this step: a tensor, or one per parameter.
            state: From `init`, or from the step before.
            donate: Give up ``z`` and ``state``: their memory may be reused, which spares the time to
                allocate buffers as large as the model. ``z`` must then not be written to again, nor the
                state used. Without it the call changes nothing.
        """
        tensors = [z] if isinstance(z, Tensor) else list(z)
        self._check(tensors, state)
        if donate:
            _check_distinct(tensors)
            state._spent.append(True)
        pairs = [
            self._next(tensor, kept, state.step, state.T, donate)
            for tensor, kept in zip(tensors, state.buffers, strict=True)
        ]
        noise = [row for row, _ in pairs]
        kept_now = tuple(kept for _, kept in pairs)
        after = NoiseState(self, state.T, state.step + 1, state.shapes, kept_now)
        return (noise[0] if isinstance(z, Tensor) else noise), after

    @final
    def to_dict(self) -> dict[str, Any]:
        """This value as JSON types; `antiphon.mechanisms.from_dict` is its inverse."""
        values = {f.name: _plain(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]
        # A mechanism within a mechanism goes under "of": "mechanism" is the outer one's name.
        inner = {"of": values.pop("mechanism")} if "mechanism" in values else {}
        return {"mechanism": self.name, **inner, **values}

    @final
    def _check(self, z: Sequence[Tensor], state: NoiseState) -> None:
        if state.mechanism is not self and state.mechanism != self:
            raise StateError(
                f"this state was made by {state.mechanism}, not by {self}. Noise of one mechanism "
                "does not cancel another's: start a new state with init."
            )
        if state._spent:
            raise StateError(
                "this state was donated to an earlier step, which overwrote it. Go on with the state that "
                "step returned."
            )
        if state.step >= state.T:
            raise StateError(
                f"all {state.T} steps of this state are taken. More steps need a new plan: they would "
                "raise the sensitivity that the noise was scaled for."
            )
        shapes = tuple((tensor.shape, tensor.dtype) for tensor in z)
        if shapes != state.shapes:
            raise StateError(f"the state is for noise of {state.shapes}; got {shapes}.")


def check_steps(T: float) -> None:
    """Raise unless T is a whole number of at least one step."""
    if math.inf == T:
        raise PlanError(
            "the number of steps T must be a whole number of at least 1; got inf. This needs a finite "
            "number."
        )
    whole("the number of steps T", T)
    if T > _MOST_STEPS:
        raise PlanError(
            f"{T} steps are more than the {_MOST_STEPS:,} that are computed one by one."
        )


def check_dense_steps(T: int) -> None:
    """Raise unless a dense T x T matrix is reasonable."""
    check_steps(T)
    if T > _MOST_DENSE_STEPS:
        raise UnsupportedError(
            f"a dense {T} x {T} matrix would take {8e-9 * T * T:.0f} GB; the limit is "
            f"{_MOST_DENSE_STEPS:,} steps."
        )


def _check_distinct(tensors: Sequence[Tensor]) -> None:
    places = [tensor.data_ptr() for tensor in tensors if tensor.numel()]
    if len(set(places)) < len(places):
        raise StateError(
            "the same tensor stands twice in z; donated, it would be overwritten twice."
        )


def gram_sensitivity(X: Matrix, participation: AbstractParticipation) -> Sensitivity:
    """Sensitivity of an encoder with CᵀC = X.

    Guarantee:
        sqrt(Σ_{s,t ∈ π} |X_st|) bounds ‖Cu‖ for vector contributions u_t of norm at most 1, and is
        attained if the signs of X agree on π, in particular if X >= 0 [MultiEpoch23].
        Exact if the participation's bound is attained by such a pattern.
    """
    participation.check(len(X))
    bound, pattern = participation.heaviest(np.abs(X))
    block = X[np.ix_(pattern, pattern)]
    attained = np.isclose(np.abs(block).sum(), bound, rtol=1e-12, atol=0.0)
    return Sensitivity(math.sqrt(bound), is_exact=bool(attained) and signs_agree(block))


def _plain(value: object) -> object:
    match value:
        case AbstractMechanism():
            return value.to_dict()
        case np.ndarray():
            return [row[: i + 1].tolist() for i, row in enumerate(value)]
        case tuple():
            return list(value)
        case _:
            return value
