import numpy as np
import pytest
from oracles.sensitivity import brute_force

from antiphon.mechanisms import FFT
from antiphon.participation import MinSeparation, Once


def published(T):
    """The pair (D, C) entry by entry: C the first columns, D the first rows of a circulant root."""
    n = 2 * T
    waves = np.exp(-2j * np.pi * np.outer(np.arange(n), np.arange(n)) / n)
    spectrum = waves[:, :T].sum(1)
    # Zero at every even frequency but the first, which rounding would hide.
    spectrum[2::2] = 0
    h = (waves.conj() @ np.sqrt(spectrum)).real / n
    circulant = np.array([[h[(i - j) % n] for j in range(n)] for i in range(n)])
    return circulant[:T], circulant[:, :T]


@pytest.mark.parametrize("T", [1, 2, 3, 8, 13])
def test_prefix_sums_have_the_noise_of_the_published_decoder(T):
    D, C = published(T)
    A = np.tril(np.ones((T, T)))
    np.testing.assert_allclose(D @ C, A, atol=1e-12)
    prefix = A @ FFT().decoder(T)
    np.testing.assert_allclose(prefix @ prefix.T, D @ D.T, atol=1e-8)
    np.testing.assert_allclose(FFT().gram(T), C.T @ C, atol=1e-8)


@pytest.mark.parametrize("participation", [Once(), MinSeparation(2, 2)], ids=repr)
def test_sensitivity_is_that_of_the_published_encoder_and_a_bound_for_what_runs(participation, T=8):
    claimed = FFT().sensitivity(T, participation)
    assert not claimed.is_exact
    assert claimed >= brute_force(published(T)[1], participation) * (1 - 1e-8)
    assert claimed > brute_force(FFT().encoder(T), participation)
