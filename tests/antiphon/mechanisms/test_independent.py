import math

import torch
from oracles.streams import stream, white

from antiphon.mechanisms import Independent
from antiphon.participation import MinSeparation, Once


def test_white_noise_passes_unchanged():
    z = white(5, 2)
    assert torch.equal(stream(Independent(), z, 5), z)


def test_sensitivity_counts_participations_and_not_steps():
    assert Independent().sensitivity(100, MinSeparation(9, 3)) == 3
    assert Independent().sensitivity(math.inf, Once()) == 1


def test_error_is_that_of_a_random_walk():
    assert Independent().errors(9)[-1] == 3
