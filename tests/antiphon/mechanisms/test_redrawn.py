import pytest
import torch

from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import BandedInverse, Independent, LambdaCGD, NuFTRL, Tree, redrawn
from antiphon.numerics import Generator

LIKE = [torch.empty(3, 2), torch.empty(5, dtype=torch.float64)]
SHORT = [Independent(), LambdaCGD(0.0), LambdaCGD(0.9), BandedInverse((2.0, -0.5, 0.3, 0.1))]


@pytest.mark.parametrize("mechanism", [*SHORT, BandedInverse((0.5,))], ids=repr)
@pytest.mark.parametrize("donate", [False, True])
def test_redrawn_noise_equals_correlated_noise_bit_for_bit(mechanism, donate, T=7):
    generator = Generator.seeded(3)
    state = mechanism.init(LIKE, T)
    for step in range(T):
        noise, state = mechanism.correlate(generator.normal(LIKE, step), state, donate=donate)
        again = redrawn(mechanism, generator, LIKE, step)
        assert all(torch.equal(a, b) for a, b in zip(noise, again, strict=True))
        assert torch.equal(redrawn(mechanism, generator, LIKE[0], step), noise[0])


@pytest.mark.parametrize("mechanism", [NuFTRL(0.1), Tree()], ids=repr)
def test_what_needs_more_of_its_past_is_refused(mechanism):
    with pytest.raises(UnsupportedError, match="Use init and correlate"):
        redrawn(mechanism, Generator.seeded(0), LIKE, 3)


def test_steps_are_counted_from_0():
    with pytest.raises(PlanError, match="counted from 0"):
        redrawn(LambdaCGD(0.9), Generator.seeded(0), LIKE, -1)
