"""Data, model and plain steps of ``kan.py``, in torch alone, for us and for Opacus."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus
from training_cases import RATE, TorchKAN

WIDTH = 32


class Shape(NamedTuple):
    n: int
    d: int
    background: float  # share of inputs that have the same value in every row


CASES = {
    "d = 10": Shape(20_000, 10, 0.0),
    "d = 784": Shape(12_665, 784, 0.0),
    "images": Shape(12_665, 784, 0.81),  # as many inputs are background as in MNIST's 0 and 1
}


def data(case: str) -> tuple[Tensor, Tensor]:
    """Uniform inputs, or MNIST's zeros and ones if ANTIPHON_DATA names their folder."""
    n, d, background = CASES[case]
    folder = os.environ.get("ANTIPHON_DATA")
    if background and folder:
        found = np.load(Path(folder) / "mnist.npz")
        kept = found["y_train"] < 2
        x = found["X_train"][kept].reshape(-1, d) / 127.5 - 1
        y = np.where(found["y_train"][kept] == 1, 1.0, -1.0)
        return torch.from_numpy(x).float(), torch.from_numpy(y).float()
    inputs = torch.rand(n, d) * 1.998 - 0.999
    inputs[torch.rand(n, d) < background] = -1.0
    return inputs, torch.randint(2, (n,)).float() * 2 - 1


def torch_model(case: str) -> TorchKAN:
    """Splines by torch operations; both layers learn."""
    model = TorchKAN(CASES[case].d, WIDTH)
    model.requires_grad_(True)
    return model


def loss(outputs: Tensor, signs: Tensor) -> Tensor:
    return softplus(-signs * outputs).mean()


def draw(x: Tensor, y: Tensor, batch: int) -> tuple[Tensor, Tensor]:
    """All rows, or a random batch."""
    if batch == len(x):
        return x, y
    rows = torch.randint(len(x), (batch,))
    return x.index_select(0, rows), y.index_select(0, rows)


def plain_step(model: nn.Module, x: Tensor, y: Tensor, batch: int) -> Callable[[], None]:
    """A step of gradient descent by autograd, without privacy."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

    def step() -> None:
        inputs, signs = draw(x, y, batch)
        optimizer.zero_grad()
        loss(model(inputs), signs).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step
