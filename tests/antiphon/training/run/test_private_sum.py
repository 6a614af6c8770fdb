import pytest
import torch
from oracles.grid import on_grid
from torch import nn

import antiphon as ap
from antiphon.errors import PlanError, StateError
from antiphon.mechanisms import Banded, Independent
from antiphon.numerics import Generator
from antiphon.plans import Block
from antiphon.training.gradients.clipped_sum import ClippedSum
from antiphon.training.gradients.clipping import Adaptive, Flat, PerLayer
from antiphon.training.gradients.factors import Dense
from antiphon.training.gradients.piece import Piece
from antiphon.training.run.noise import Noise
from antiphon.training.run.private_sum import VOTES, PrivateSum
from antiphon.training.run.team import Team

FLAT = Flat()


def make(clipping=FLAT, blocks=(), noise=True, n=10):
    plan = ap.Plan(n=n, sampling=ap.FullBatch(), steps=3, mechanism=Independent(), clip_norm=2.0,
                   noise_multiplier=3.0, blocks=blocks)  # fmt: skip
    parameter = nn.Parameter(torch.zeros(4))
    sums = ClippedSum({"layer.weight": parameter})
    source = Noise(Independent(), Generator.seeded(0), like(sums), 3) if noise else None
    return PrivateSum(plan, clipping, source, Team(), sums), parameter


def like(sums):
    return torch.empty(sums.size, dtype=sums.dtype)


def white(step, count=5):
    return Generator.seeded(0).normal(torch.empty(count, dtype=torch.float64), step)


def test_a_release_is_the_clipped_sum_and_noise_over_the_expected_batch():
    total, parameter = make()
    gradients = torch.tensor([[3.0, 0, 0, 0], [0, 1.0, 0, 0]])
    total.add(Piece({parameter: Dense(gradients)}, None))
    total.release(0)
    z = white(0)[:-1]
    assert parameter.grad.tolist() == on_grid(total.total.value()[:-1], z, 3.0 * 2.0 / 10).tolist()
    expected = (torch.tensor([2.0, 1.0, 0, 0]) + 3.0 * 2.0 * z) / 10
    torch.testing.assert_close(parameter.grad.double(), expected, rtol=0, atol=0.6 * 2**-12)


def test_each_block_has_a_grid_of_its_own():
    blocks = (Block("first", 1.0, 3.0), Block("second", 4.0, 1000.0))
    parameters = {f"{name}.weight": nn.Parameter(torch.zeros(2)) for name in ("first", "second")}
    plan = ap.Plan(n=10, sampling=ap.FullBatch(), steps=3, mechanism=Independent(), blocks=blocks)
    sums = ClippedSum(parameters)
    noise = Noise(Independent(), Generator.seeded(0), like(sums), 3)
    total = PrivateSum(plan, FLAT, noise, Team(), sums)
    sums.value()[:] = torch.tensor([0.01, 0.02, 0.03, 0.04, 0.0])
    total.release(0)
    for (name, block), part in zip(zip(parameters, blocks, strict=True), sums.slices, strict=True):
        scale = block.bound * block.noise_multiplier / 10
        expected = on_grid(sums.value()[part], white(0)[part], scale)
        assert parameters[name].grad.tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_sums_that_differ_below_the_grid_give_the_same_gradients(dtype):
    """Of 500 numbers whose sums move by a millionth of the grid, none moves; false-alarm rate 0.1 %."""
    plan = ap.Plan(
        n=10, sampling=ap.FullBatch(), steps=1, mechanism=Independent(), noise_multiplier=1.0
    )
    gradients = []
    for moved in (0.0, 1e-6 * 2**-16):
        parameter = nn.Parameter(torch.zeros(500, dtype=dtype))
        sums = ClippedSum({"layer.weight": parameter})
        noise = Noise(Independent(), Generator.seeded(1), like(sums), 1)
        total = PrivateSum(plan, FLAT, noise, Team(), sums)
        sums.value()[:-1] = torch.linspace(-1e-4, 1e-4, 500) + moved
        total.release(0)
        gradients.append(parameter.grad)
    assert gradients[0].dtype is dtype
    assert torch.equal(*gradients)


def test_the_grid_is_that_of_the_noise_that_is_new_in_a_step():
    mechanism = Banded((8.0, 4.0))
    plan = ap.Plan(
        n=10, sampling=ap.FullBatch(), steps=3, mechanism=mechanism, noise_multiplier=5.0
    )
    parameter = nn.Parameter(torch.zeros(4))
    sums = ClippedSum({"layer.weight": parameter})
    noise = Noise(mechanism, Generator.seeded(0), like(sums), 3)
    total = PrivateSum(plan, FLAT, noise, Team(), sums)
    rows = mechanism.decoder(3) @ torch.stack([white(t) for t in range(3)]).numpy()
    for t in range(3):
        sums.value()[:-1] = torch.tensor([0.1, 0.2, 0.3, 0.4])
        total.release(t)
        expected = on_grid(sums.value()[:-1], rows[t, :-1], 0.5, unit=1 / 8)
        assert parameter.grad.tolist() == expected.tolist()


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
    total.add(Piece({parameter: Dense(gradients)}, None))
    total.release(0)
    z = white(0)
    votes = (2 * 0.5 - 8 * 0.5 + 4.0 * 0.5 * float(z[-1])) / 10
    assert total.clip_norm == pytest.approx(
        2.0 * torch.exp(torch.tensor(-0.2 * votes)).item(), rel=0.2 * 2**-12
    )
    # The noise of this step belongs to the clip norm of this step.
    expected = (torch.tensor([16.2, 0, 0, 0]) + 3.0 * 2.0 * z[:-1]) / 10
    torch.testing.assert_close(parameter.grad.double(), expected, rtol=0, atol=0.6 * 2**-12)


def test_adaptive_clipping_without_paid_votes_is_refused():
    with pytest.raises(PlanError, match="pays for its votes"):
        make(Adaptive())


def test_equal_sums_have_equal_digests_and_others_do_not():
    digests = []
    for value in (1.0, 1.0, 1.0000001):
        total, parameter = make()
        total.add(Piece({parameter: Dense(torch.tensor([[value, 0, 0, 0]]))}, None))
        digests.append(total.digest())
    assert digests[0] == digests[1] != digests[2]


def test_per_layer_bounds_are_shared_by_the_layers():
    total, parameter = make(PerLayer())
    total.add(Piece({parameter: Dense(torch.tensor([[9.0, 0, 0, 0]]))}, None))
    assert float(total.total.value().norm()) == pytest.approx(2.0 / 10, rel=1e-5)


def test_a_step_without_any_unit_is_noise_alone():
    total, parameter = make()
    total.release(0)
    assert (
        parameter.grad.tolist() == on_grid(torch.zeros(4), white(0)[:-1], 3.0 * 2.0 / 10).tolist()
    )


def test_sums_in_float64_are_rounded_to_the_grid_once():
    """A sum of several products: what float32 cannot hold still moves it to the nearest point."""
    total, parameter = make(noise=True)
    spacing = 2.0**-12 * 0.5  # of a deviation of 0.6
    for value in (1.0, 2.0**-26):  # a point's edge, up to the noise, and a little beyond
        total.add(Piece({parameter: Dense(torch.full((1, 4), value))}, None))
    assert total.total.value().dtype is torch.float64
    total.release(0)
    expected = on_grid(torch.full((4,), (1 + 2.0**-26) / 10).double(), white(0)[:-1], 0.6)
    assert (parameter.grad.double() - torch.as_tensor(expected)).abs().max() <= spacing
    assert torch.equal(
        parameter.grad.double() / spacing, (parameter.grad.double() / spacing).round()
    )
