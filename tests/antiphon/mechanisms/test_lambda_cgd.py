import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.streams import stream, white

from antiphon.errors import UnsupportedError
from antiphon.mechanisms import BandedInverse, Independent, LambdaCGD
from antiphon.participation import FixedEpochs, MinSeparation, Once


def test_zero_equals_independent_noise_bit_for_bit(T=9):
    z = white(T, 4).float()
    for donate in (False, True):
        assert torch.equal(stream(LambdaCGD(0.0), z, T, donate), stream(Independent(), z, T))
    np.testing.assert_array_equal(LambdaCGD(0).encoder(T), Independent().encoder(T))
    np.testing.assert_array_equal(LambdaCGD(0).decoder(T), Independent().decoder(T))
    assert LambdaCGD(0).init(z[0], T).nbytes == 0


def test_each_step_takes_back_lambda_times_the_noise_before(T=6):
    z = white(T, 3)
    noise = stream(LambdaCGD(0.7), z, T)
    torch.testing.assert_close(noise[1:], z[1:] - 0.7 * z[:-1])
    assert torch.equal(noise[0], z[0])


def test_one_buffer_is_kept():
    z = white(9, 4)
    state = LambdaCGD(0.7).init(z[0], 9)
    for row in z:
        _, state = LambdaCGD(0.7).correlate(row, state)
    assert state.nbytes == z[0].nbytes


@given(st.floats(0, 1), st.integers(1, 40))
def test_one_participation_has_the_geometric_sum(lam, T):
    expected = math.sqrt(math.fsum(lam ** (2 * t) for t in range(T)))
    found = LambdaCGD(lam).sensitivity(T, Once())
    assert found.is_exact
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("lam", [0.5, 0.9, 1 - 1e-4, 1 - 1e-7])
@pytest.mark.parametrize("participation", [Once(), FixedEpochs(3, 7), MinSeparation(2, 100)])
def test_endlessly_many_steps_keep_their_digits_as_lambda_nears_1(lam, participation):
    exact, steps = Fraction(lam), participation.densest(1000)
    square = sum(exact ** abs(s - t) for s in steps for t in steps) / (1 - exact**2)
    found = LambdaCGD(lam).sensitivity(math.inf, participation)
    assert found == pytest.approx(math.sqrt(square), rel=1e-12)


def test_anti_pgd_has_no_limit():
    with pytest.raises(UnsupportedError, match="anti-PGD"):
        LambdaCGD(1.0).sensitivity(math.inf, Once())


def test_it_is_the_banded_inverse_with_two_taps(T=9):
    twin = BandedInverse((1.0, -0.9))
    np.testing.assert_allclose(LambdaCGD(0.9).encoder(T), twin.encoder(T), rtol=1e-14)
    assert LambdaCGD(0.9).taps == twin.taps
