"""The signal-and-noise data against their definition."""

import numpy as np
import pytest
from scipy.stats import chi2

from antiphon.errors import PlanError
from antiphon_papers.cnn import signal_patches


@pytest.fixture(scope="module")
def data():
    signal = np.array([3.0, 0.0, -4.0, *[0.0] * 57])
    return signal_patches(4000, 60, spread=0.5, seed=3, signal=signal)


def test_every_record_is_its_label_times_the_signal_and_a_noise_patch(data):
    rows = np.arange(4000)
    assert (data.x[rows, data.position] == data.y[:, None] * data.signal).all()
    assert (data.x[rows, 1 - data.position] == data.noise).all()
    assert data.snr == pytest.approx(5 / (0.5 * 60**0.5))


def test_noise_is_orthogonal_to_the_signal_and_has_the_law_of_the_definition(data):
    assert np.abs(data.noise @ data.signal).max() < 1e-13
    squares = (data.noise**2).sum(axis=1) / 0.25
    # The mean of 4000 draws of χ² with d - 1 degrees of freedom: five standard errors.
    assert abs(squares.mean() - 59) < 5 * (2 * 59 / 4000) ** 0.5
    assert abs(squares.mean() - 60) > 5 * (2 * 59 / 4000) ** 0.5
    assert abs((squares > chi2.isf(0.1, 59)).mean() - 0.1) < 5 * (0.09 / 4000) ** 0.5


def test_labels_and_positions_are_fair_coins_that_know_nothing_of_each_other(data):
    for values in (data.y, 2 * data.position - 1, data.y * (2 * data.position - 1)):
        assert abs(values.mean()) < 5 / 4000**0.5


def test_equal_seeds_give_equal_records_and_a_number_is_the_norm_of_the_signal():
    one, again, other = (signal_patches(9, 5, spread=0.1, seed=s, signal=2.0) for s in (0, 0, 1))
    assert (one.x == again.x).all() and not (one.noise == other.noise)[:, 1:].any()
    assert one.signal.tolist() == [2.0, 0, 0, 0, 0] and (one.noise[:, 0] == 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"d": 1}, "d must be at least 2"),
        ({"n": 0}, "n must be a whole number"),
        ({"spread": 0.0}, "spread must be positive"),
        ({"signal": -1.0}, "signal must be positive"),
        ({"signal": [1.0, 2.0]}, r"a vector of 5 finite numbers, not all 0; got shape \(2,\)"),
        ({"signal": [0.0] * 5}, "not all 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(options, message):
    with pytest.raises(PlanError, match=message):
        signal_patches(**{"n": 4, "d": 5, "spread": 1.0, "seed": 0} | options)
