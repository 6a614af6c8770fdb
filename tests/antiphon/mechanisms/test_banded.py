import math

import numpy as np
import pytest
import torch
from oracles.streams import white

from antiphon.mechanisms import Banded, NuFTRL
from antiphon.participation import FixedEpochs, MinSeparation, Once


def test_square_root_has_the_first_bands_of_optimal_cc():
    np.testing.assert_array_equal(Banded.square_root(7).column(7), NuFTRL(0.0).column(7))


@pytest.mark.parametrize("participation", [MinSeparation(4, 3), FixedEpochs(4, 5)], ids=repr)
def test_far_participations_are_orthogonal(participation, T=50):
    coef = (1.0, -0.5, 2.0)
    found = Banded(coef).sensitivity(T, participation)
    assert found.is_exact
    assert found == pytest.approx(2 * np.linalg.norm(coef))


def test_endlessly_many_steps_need_no_more_than_the_bands():
    assert Banded((3.0, -4.0)).sensitivity(math.inf, Once()) == 5
    assert Banded((1.0, 1.0)).sensitivity(math.inf, FixedEpochs(2, 1)) == pytest.approx(
        math.sqrt(6)
    )


def test_the_last_outputs_are_kept_and_no_more():
    z = white(9, 4)
    state = Banded((1.0, 0.5, 0.25)).init(z[0], 9)
    for row in z:
        x, state = Banded((1.0, 0.5, 0.25)).correlate(row, state)
    assert state.nbytes == 2 * z[0].nbytes
    assert torch.equal(state.buffers[0][0], x)
