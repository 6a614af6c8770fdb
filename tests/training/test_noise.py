"""The noise of a run against dense matrices, and from any step on."""

import numpy as np
import pytest
import torch
from oracles.runs import Job

from antiphon.errors import StateError
from antiphon.mechanisms import (
    BLT,
    FFT,
    Banded,
    BandedInverse,
    Dense,
    FullHonaker,
    Honaker,
    Independent,
    LambdaCGD,
    NuFTRL,
    Restarted,
    Tree,
)
from antiphon.randomness import Generator
from antiphon.training.noise import Noise

T = 11
SIGNED = np.tril(np.random.default_rng(1).normal(size=(T, T))) + 2 * np.eye(T)
MECHANISMS = {
    "independent": Independent(),
    "λ = 0": LambdaCGD(0.0),
    "λ = 0.7": LambdaCGD(0.7),
    "λ = 1": LambdaCGD(1.0),
    "ν": NuFTRL(0.05),
    "buffered ν": NuFTRL(0.01).buffered(T, buffers=3),
    "banded": Banded((1.0, 0.5, 0.25)),
    "banded inverse": BandedInverse((1.0, -0.6, 0.1)),
    "blt": BLT((0.3, 0.2), (0.9, 0.4)),
    "tree": Tree(),
    "honaker": Honaker(),
    "full honaker": FullHonaker(),
    "fft": FFT(),
    "dense": Dense(SIGNED),
    "restarted": Restarted(NuFTRL(0.0), 3),
    "restarted tree": Restarted(Tree(), 2),
}
every = pytest.mark.parametrize("name", MECHANISMS)


def noise(name, dtype=torch.float64, seed=3):
    like = torch.zeros(7, dtype=dtype)
    return Noise(MECHANISMS[name], Generator.seeded(seed), like, T)


@every
def test_rows_are_those_of_the_decoder_times_white_noise(name):
    like = torch.zeros(7, dtype=torch.float64)
    z = torch.stack([Generator.seeded(3).normal([like], t)[0] for t in range(T)])
    expected = torch.as_tensor(MECHANISMS[name].decoder(T)) @ z
    source = noise(name)
    actual = torch.stack([source.draw().clone() for _ in range(T)])
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


@every
def test_rows_are_the_same_in_memory_that_is_given_up(name):
    fresh, again, row = noise(name), noise(name, torch.float32), None
    for _ in range(T):
        row = again.draw(row)
        assert row.dtype is torch.float64
        assert torch.equal(row, fresh.draw())


@every
def test_the_unit_is_the_deviation_of_the_first_row(name):
    assert noise(name).unit == pytest.approx(abs(MECHANISMS[name].decoder(T)[0, 0]), rel=1e-9)


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_goes_on_from_any_step_to_the_last_bit(name, dtype):
    source, rows, states = noise(name, dtype), [], []
    for _ in range(T):
        states.append({key: kept.clone() for key, kept in source.state().items()})
        rows.append(source.draw().clone())
    for t, state in enumerate(states):
        other = noise(name, dtype)
        other.restore(t, state)
        assert other.step == t
        for s in range(t, T):
            assert torch.equal(other.draw(), rows[s])


def test_a_restored_state_is_a_copy():
    source = noise("blt")
    source.draw()
    state = source.state()
    before = {key: kept.clone() for key, kept in state.items()}
    other = noise("blt")
    other.restore(1, state)
    other.draw()
    assert all(torch.equal(state[key], before[key]) for key in before)


def test_there_are_as_many_rows_as_steps():
    source = noise("λ = 0.7")
    for step in range(T):
        assert source.step == step
        source.draw()
    with pytest.raises(StateError, match="steps of this state are taken"):
        source.draw()


def test_noise_is_released_for_the_step_whose_turn_it_is():
    total = Job().run._total
    total.noise.draw()
    with pytest.raises(StateError, match="the noise of step 1 comes next, not that of step 0"):
        total.release(0)
    total.release(1)


@pytest.mark.parametrize(
    "step, kept",
    [
        (-1, {}),
        (T + 1, {}),
        (1, {"0": torch.zeros(8, dtype=torch.float64)}),
        (1, {"0": torch.zeros(7, dtype=torch.float32)}),
        (1, {"1": torch.zeros(7, dtype=torch.float64)}),
    ],
)
def test_a_state_of_another_model_or_plan_is_refused(step, kept):
    with pytest.raises(StateError, match="another model, plan or version"):
        noise("λ = 0.7").restore(step, kept)
