"""The models, data and plain steps of ``training.py``, in torch alone, for us and for peers in torch."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

RATE = 0.05  # of plain gradient descent, for all


class Case(NamedTuple):
    n: int
    data: Callable[[int], tuple[Tensor, Tensor]]
    model: Callable[[], nn.Module]
    loss: Callable[..., Tensor]


class TorchKAN(nn.Module):
    """The two-layer network of ``antiphon.models`` with splines by torch operations, as KANs in torch do.

    Degree 3 on 5 equal intervals: p = 8 functions by the recursion of Cox and de Boor.
    """

    def __init__(self, d: int, m: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8 * d, m, bias=False), nn.Linear(8 * m, 1, bias=False)
        self.second.weight.requires_grad_(False)
        for layer in (self.first, self.second):
            nn.init.normal_(layer.weight)
        self.knots = torch.arange(-3.0, 9.0) * 0.4 - 1.0  # not a buffer, which Opacus refuses

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(self._features(x)) / (self.first.in_features / 8) ** 0.5)
        out: Tensor = self.second(self._features(hidden))
        return out.squeeze(-1) / (self.second.in_features / 8) ** 0.5

    def _features(self, x: Tensor) -> Tensor:
        knots, x = self.knots, x.unsqueeze(-1)
        values = ((x >= knots[:-1]) & (x < knots[1:])).to(x.dtype)
        for k in range(1, 4):
            left = (x - knots[: -k - 1]) / (knots[k:-1] - knots[: -k - 1])
            right = (knots[k + 1 :] - x) / (knots[k + 1 :] - knots[1:-k])
            values = left * values[..., :-1] + right * values[..., 1:]
        return values.flatten(-2)


class Words(nn.Module):
    """Mean of embeddings, then two layers: the text example of Opacus, 10,000 words of width 16."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10_000, 16)
        self.hidden, self.out = nn.Linear(16, 16), nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.hidden(self.table(x).mean(1)).relu())
        return out


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))


def cnn() -> nn.Module:
    """The network of the MNIST examples of Opacus and TensorFlow Privacy."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip


def _numbers(*shape: int, classes: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    return lambda n: (torch.rand(n, *shape) * 1.998 - 0.999, torch.randint(classes, (n,)))


def _signs(*shape: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    return lambda n: (torch.rand(n, *shape) * 1.998 - 0.999, torch.randint(2, (n,)).float())


CASES = {
    "mlp": Case(20_000, _numbers(784, classes=10), mlp, F.cross_entropy),
    "cnn": Case(20_000, _numbers(1, 28, 28, classes=10), cnn, F.cross_entropy),
    "text": Case(
        20_000,
        lambda n: (torch.randint(10_000, (n, 256)), torch.randint(2, (n,))),
        Words,
        F.cross_entropy,
    ),
    "kan-10": Case(
        20_000, _signs(10), lambda: TorchKAN(10, 32), F.binary_cross_entropy_with_logits
    ),
    "kan-784": Case(
        12_665, _signs(784), lambda: TorchKAN(784, 32), F.binary_cross_entropy_with_logits
    ),
}


def plain_step(
    model: nn.Module, loss: Callable[..., Tensor], data: tuple[Tensor, Tensor], batch: int
) -> Callable[[], None]:
    """A step without privacy, on the next rows of an order that is drawn anew in every epoch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    place, order = 0, torch.randperm(len(data[0]))

    def step() -> None:
        nonlocal place, order
        if place >= len(order):
            place, order = 0, torch.randperm(len(order))
        rows = order[place : place + batch]
        place += batch
        x, y = (tensor.index_select(0, rows) for tensor in data)
        optimizer.zero_grad()
        loss(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step
