import pytest
import torch
from torch import nn

import antiphon as ap
from antiphon.errors import PlanError, StateError
from antiphon.mechanisms import Independent
from antiphon.plan import Block
from antiphon.randomness import Generator
from antiphon.training.buffer import Buffer
from antiphon.training.clipping import Adaptive, Flat, PerLayer
from antiphon.training.factors import Dense
from antiphon.training.noise import Noise
from antiphon.training.private_sum import VOTES, PrivateSum
from antiphon.training.team import Team

FLAT = Flat()


def make(clipping=FLAT, blocks=(), noise=True, n=10):
    plan = ap.Plan(n=n, sampling=ap.FullBatch(), steps=3, mechanism=Independent(), clip_norm=2.0,
                   noise_multiplier=3.0, blocks=blocks)  # fmt: skip
    parameter = nn.Parameter(torch.zeros(4))
    buffer = Buffer({"layer.weight": parameter})
    source = Noise(Independent(), Generator.seeded(0), buffer.flat, 3) if noise else None
    return PrivateSum(plan, clipping, source, Team(), buffer), parameter


def test_a_release_is_the_clipped_sum_and_noise_over_the_expected_batch():
    total, parameter = make()
    gradients = torch.tensor([[3.0, 0, 0, 0], [0, 1.0, 0, 0]])
    total.add({parameter: Dense(gradients)}, None)
    total.release(0)
    z = Generator.seeded(0).normal(total.buffer.flat, 0)[:-1]
    expected = (torch.tensor([2.0, 1.0, 0, 0]) + 3.0 * 2.0 * z) / 10
    torch.testing.assert_close(parameter.grad, expected, rtol=1e-5, atol=1e-6)


def test_a_process_without_noise_adds_none():
    total, parameter = make(noise=False)
    total.release(0)
    assert not parameter.grad.any()


def test_the_noise_of_another_step_is_refused():
    total, _ = make()
    total.release(0)
    with pytest.raises(StateError, match="noise of step 1 comes next, not that of step 0"):
        total.release(0)


def test_adaptive_clipping_moves_the_clip_norm_by_noisy_votes():
    blocks = (Block("gradient over clip norm", 1.0, 3.0), Block(VOTES, 0.5, 4.0))
    total, parameter = make(Adaptive(quantile=0.5, rate=0.2), blocks)
    gradients = torch.tensor(
        [[3.0, 0, 0, 0]] * 8 + [[0.1, 0, 0, 0]] * 2
    )  # two of ten within the norm
    total.add({parameter: Dense(gradients)}, None)
    total.release(0)
    z = Generator.seeded(0).normal(total.buffer.flat, 0)
    votes = (2 * 0.5 - 8 * 0.5 + 4.0 * 0.5 * float(z[-1])) / 10
    assert total.clip_norm == pytest.approx(
        2.0 * torch.exp(torch.tensor(-0.2 * votes)).item(), rel=1e-5
    )
    # The noise of this step belongs to the clip norm of this step.
    expected = (torch.tensor([16.2, 0, 0, 0]) + 3.0 * 2.0 * z[:-1]) / 10
    torch.testing.assert_close(parameter.grad, expected, rtol=1e-4, atol=1e-5)


def test_adaptive_clipping_without_paid_votes_is_refused():
    with pytest.raises(PlanError, match="pays for its votes"):
        make(Adaptive())


def test_equal_sums_have_equal_digests_and_others_do_not():
    digests = []
    for value in (1.0, 1.0, 1.0000001):
        total, parameter = make()
        total.add({parameter: Dense(torch.tensor([[value, 0, 0, 0]]))}, None)
        digests.append(total.digest())
    assert digests[0] == digests[1] != digests[2]


def test_per_layer_bounds_are_shared_by_the_layers():
    total, parameter = make(PerLayer())
    total.add({parameter: Dense(torch.tensor([[9.0, 0, 0, 0]]))}, None)
    assert float(total.buffer.flat.norm()) == pytest.approx(2.0 / 10, rel=1e-5)
