"""Noise without memory: past white noise is drawn again instead of kept."""

from collections.abc import Sequence
from typing import overload

from torch import Tensor

from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms.abstract_mechanism import AbstractMechanism
from antiphon.mechanisms.banded_inverse import BandedInverse
from antiphon.mechanisms.independent import Independent
from antiphon.mechanisms.lambda_cgd import LambdaCGD
from antiphon.mechanisms.streaming import moving_sum
from antiphon.numerics import Generator

__all__ = ["redrawn"]


@overload
def redrawn(
    mechanism: AbstractMechanism, generator: Generator, like: Tensor, step: int
) -> Tensor: ...


@overload
def redrawn(
    mechanism: AbstractMechanism, generator: Generator, like: Sequence[Tensor], step: int
) -> list[Tensor]: ...


def redrawn(
    mechanism: AbstractMechanism,
    generator: Generator,
    like: Tensor | Sequence[Tensor],
    step: int,
) -> Tensor | list[Tensor]:
    """Row ``step`` of C⁻¹z, from the generator alone: no state, no buffer between steps.

    For decoders with few non-zero diagonals (`LambdaCGD`: two draws per step; `BandedInverse`: as many
    as it has coefficients). The numbers equal those of `correlate` fed with ``generator.normal(like, t)``
    for t = 0, 1, ... to the last bit.
    """
    if step < 0:
        raise PlanError(f"steps are counted from 0; got {step}.")
    match mechanism:
        case Independent():
            taps: tuple[float, ...] = (1.0,)
        case LambdaCGD() | BandedInverse():
            taps = mechanism.taps
        case _:
            raise UnsupportedError(
                f"{mechanism} needs more of its past than a few white noises. Use init and correlate, "
                "which keep what it needs."
            )
    tensors = [like] if isinstance(like, Tensor) else list(like)
    past = [generator.normal(tensors, t) for t in range(step, max(-1, step - len(taps)), -1)]
    # Up to here z_0, ..., z_step are the only terms; moving_sum knows the rest are absent.
    noise = [_row(terms, taps) for terms in zip(*past, strict=True)]
    return noise[0] if isinstance(like, Tensor) else noise


def _row(newest_first: tuple[Tensor, ...], taps: tuple[float, ...]) -> Tensor:
    z, *kept = newest_first
    if taps == (1.0,):
        return z
    past = tuple(tensor.contiguous() for tensor in kept)
    return moving_sum(z, past, taps, recursive=False, donate=True)[0]
