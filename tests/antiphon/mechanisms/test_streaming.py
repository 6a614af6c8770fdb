import pytest
import torch
from oracles.streams import dense, stream, white

from antiphon.mechanisms import BLT, Banded, BandedInverse, LambdaCGD, NuFTRL, streaming
from antiphon.participation import FixedEpochs, Once


def test_tensors_longer_than_one_piece_get_the_same_noise(monkeypatch, T=6):
    monkeypatch.setattr(streaming, "_PIECE", 4)
    z = white(T, 3, 7)
    for mechanism in (
        Banded((2.0, 0.5, -0.25)),
        BandedInverse((1.0, -0.5, 0.1)),
        BLT((0.3, 0.2), (0.9, 0.4)),
        NuFTRL(0.1),
    ):
        for donate in (False, True):
            torch.testing.assert_close(stream(mechanism, z, T, donate), dense(mechanism, z))


@pytest.mark.parametrize(
    ("mechanism", "T", "seen"),
    [
        (LambdaCGD(0.99999007583), 20_000, FixedEpochs(20, 1000)),
        (LambdaCGD(0.9999991), 20_000, Once()),
        (BLT((0.013,), (0.99999007583,)), 20_000, FixedEpochs(20, 1000)),
        (NuFTRL(1e-7), 2_000, FixedEpochs(2, 1000)),
    ],
)
def test_in_float32_what_runs_is_no_more_sensitive_than_what_is_certified(mechanism, T, seen):
    """The stream's answer to one unit at the first step is the decoder's column, as it runs."""
    state, column = mechanism.init(torch.zeros(1), T), []
    for step in range(min(T, 40)):
        row, state = mechanism.correlate(torch.full((1,), float(step == 0)), state)
        column.append(float(row[0]))
    exact = mechanism.inverse_column(len(column))
    # Signs agree and nothing is larger, so that C, a series in minus these, is smaller entry by entry.
    assert all(abs(a) <= abs(b) for a, b in zip(column[:2], exact[:2], strict=True))
    if isinstance(mechanism, LambdaCGD):
        runs = LambdaCGD(-column[1])
        assert float(runs.sensitivity(T, seen)) <= float(mechanism.sensitivity(T, seen))
        near = LambdaCGD(float(torch.tensor(mechanism.lam)))
        if near.lam > mechanism.lam:  # what torch would make of it
            assert float(near.sensitivity(T, seen)) > float(mechanism.sensitivity(T, seen))
