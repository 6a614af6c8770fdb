"""Inputs at the edge of float64 and of the noise's own precision: refused, never rounded away."""

import math

import mpmath
import numpy as np
import pytest
import torch

from antiphon.errors import PlanError, StateError, UnsupportedError
from antiphon.mechanisms import (
    BLT,
    Banded,
    BandedInverse,
    Dense,
    Independent,
    LambdaCGD,
    NuFTRL,
    Tree,
    lower_bound,
    optimize,
    redrawn,
)
from antiphon.numerics import Generator
from antiphon.participation import FixedEpochs, MinSeparation, Once, Patterns, Reshuffled


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int64])
def test_noise_is_not_correlated_in_types_that_round_the_coefficients(dtype):
    # In bfloat16, λ = 0.999 gives the very bits of λ = 1, whose sensitivity is four times larger.
    with pytest.raises(PlanError, match="float32 or float64"):
        LambdaCGD(0.999).init(torch.zeros(3, dtype=dtype), 10)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Banded((1e-200,)),
        lambda: BandedInverse((1e200,)),
        lambda: BandedInverse((1e-200,)),
        lambda: Dense([[1e-200]]),
        lambda: Dense([[1e200], [1.0, 1.0]]),
        lambda: Dense([[1e-300], [1.0, 1e-300]]),
        lambda: Banded((1.0, 1e200)),
        lambda: BLT((1e8, -1e8), (0.9, 0.9 + 1e-9)),
    ],
)
def test_coefficients_whose_squares_are_lost_are_refused(make):
    with pytest.raises(PlanError, match=r"overflow|non-zero|not invertible|cancel"):
        make()


def test_tiny_tails_are_no_harm():
    assert Banded((1.0, 1e-120)).sensitivity(5, Once()) == 1.0


def test_what_float32_cannot_tell_from_1_has_no_endless_sensitivity():
    for mechanism in (LambdaCGD(1 - 1e-9), BLT((0.5,), (1 - 1e-9,))):
        with pytest.raises(UnsupportedError, match="float32"):
            mechanism.sensitivity(math.inf, Once())
        assert mechanism.sensitivity(10, Once()) > 1


@pytest.mark.parametrize("nu", [1e-13, 1e-9, 1e-3, 0.3, 0.9])
@pytest.mark.parametrize("lag", [1, 2, 7, 60, 150, 2000])
def test_the_endless_nu_family_keeps_its_digits(nu, lag):
    with mpmath.workdps(40):
        keep = 1 - mpmath.mpf(nu)
        central = mpmath.binomial(2 * lag, lag) / mpmath.mpf(4) ** lag
        exact = float(keep**lag * central * mpmath.hyp2f1(0.5, lag + 0.5, lag + 1, keep**2))
    found = NuFTRL(nu)._autocorrelation(np.array([float(lag)]))[0]
    assert found == pytest.approx(exact, rel=1e-10)


def test_a_donated_state_cannot_be_used_again():
    mechanism, z = LambdaCGD(0.5), torch.ones(3)
    state = mechanism.init(z, 5)
    _, after = mechanism.correlate(z.clone(), state, donate=True)
    with pytest.raises(StateError, match="donated to an earlier step"):
        mechanism.correlate(z.clone(), state)
    mechanism.correlate(z.clone(), after)


def test_one_tensor_twice_cannot_be_donated():
    mechanism, z = Banded((1.0, 0.5)), torch.ones(3)
    state = mechanism.init([z, z], 5)
    mechanism.correlate([z, z], state)
    with pytest.raises(StateError, match="stands twice"):
        mechanism.correlate([z, z], state, donate=True)


def test_a_printed_state_does_not_show_its_noise():
    mechanism = LambdaCGD(0.5)
    _, state = mechanism.correlate(torch.tensor([1.2345]), mechanism.init(torch.zeros(1), 5))
    assert "1.2345" not in repr(state)


def test_noise_of_parameters_in_any_layout_is_drawn_again():
    like = torch.empty(2, 3, 4, 4).to(memory_format=torch.channels_last)
    generator, mechanism = Generator.seeded(0), LambdaCGD(0.5)
    state = mechanism.init(like, 3)
    for t in range(3):
        noise, state = mechanism.correlate(generator.normal(like, t), state)
        assert torch.equal(redrawn(mechanism, generator, like, t), noise)


def test_noise_of_a_tensor_that_wants_gradients_has_none():
    z = torch.ones(3, requires_grad=True)
    noise, _ = Banded((1.0, 0.5)).correlate(z, Banded((1.0, 0.5)).init(z, 2))
    assert not noise.requires_grad


@pytest.mark.parametrize("seen", [Reshuffled(6, 3), Patterns(((0, 1, 2, 3), (4, 17)))])
def test_banded_optimisation_survives_a_vanishing_column(seen):
    found = optimize("banded", 18, seen)
    assert found.bound <= found.loss


def test_the_lower_bound_is_not_lifted_by_rounding():
    seen = Patterns(((0,),))
    C = np.eye(512) * 1e9
    C[0, 0] = 1.0
    assert lower_bound(512, seen, near=NuFTRL(0.0)) <= Dense(C).loss(512, seen)
    assert lower_bound(1, Once(), near=Independent()) <= 1.0


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (lambda: lower_bound(0, Once()), "at least 1"),
        (lambda: lower_bound(3, FixedEpochs(5, 5)), "need at least"),
        (lambda: Tree().sensitivity(10**9, Once()), "more than the 100,000,000"),
        (lambda: Independent().sensitivity(True, Once()), "whole number"),
    ],
)
def test_questions_out_of_range_are_refused(question, message):
    with pytest.raises(PlanError, match=message):
        question()


@pytest.mark.parametrize("mechanism", [Tree(), Dense([[1.0]]), NuFTRL(0.1)])
def test_matrices_too_large_to_hold_are_refused(mechanism):
    with pytest.raises((UnsupportedError, PlanError), match=r"GB|up to 1 steps"):
        mechanism.encoder(50_000)


def test_very_distant_participations_are_answered():
    assert Banded((1.0, 0.5)).sensitivity(math.inf, MinSeparation(20, 10**15)) == pytest.approx(5.0)


def test_long_decoders_are_not_decided_for_ever():
    with pytest.raises(UnsupportedError, match="at most 80"):
        BandedInverse((1.0, *[0.001] * 200)).sensitivity(math.inf, Once())
