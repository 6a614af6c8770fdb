import torch
from oracles.streams import dense, stream, white

from antiphon.mechanisms import BLT, Banded, BandedInverse, NuFTRL, streaming


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
