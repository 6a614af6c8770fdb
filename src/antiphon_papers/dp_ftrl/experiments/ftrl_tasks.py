"""What models learn in Figure 4 of correlated noise: classes of pictures, and the next character of a text.

The first fifth of what a model is tested on chooses its learning rate, the rest says how good it is.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from antiphon.errors import PlanError
from antiphon.tables.data import load
from antiphon_papers.dp_ftrl.speech import Speech, chain_speech, shakespeare

__all__ = ["NextCharacter", "Task", "cross_entropy", "new_model", "tanh_cnn", "task"]

Part = tuple[Tensor, Tensor]

_PICTURES = {"cifar-10-subset": (32, 3), "fashion-mnist": (28, 1), "digits": (8, 1)}
_TEXTS = ("shakespeare", "chains")
_CHOOSING = 0.2


@final
@dataclass(frozen=True, eq=False)
class Task:
    """Data for one kind of model.

    Attributes:
        train: Inputs and labels.
        choosing: The part that a learning rate is chosen on.
        test: The part that the model is tested on.
        classes: Number of labels.
        user: Of every example; None if each is a unit by itself.
        shape: Side and channels of a picture; None for text.
    """

    train: Part
    choosing: Part
    test: Part
    classes: int
    user: Tensor | None = None
    shape: tuple[int, int] | None = None

    @property
    def units(self) -> int:
        """Number of examples, or of users."""
        return len(self.train[0]) if self.user is None else int(self.user.max()) + 1


@lru_cache(maxsize=2)
def task(name: str, n: int | None = None) -> Task:
    """A task by its name.

    Args:
        name: "cifar-10-subset", "fashion-mnist", "digits" (which scikit-learn ships); "shakespeare", or
            "chains" (drawn at random).
        n: Pictures to learn from, the first ones; all unless given. Texts have as many users as they have.
    """
    if name in _PICTURES:
        return _pictures(name, n)
    if name in _TEXTS:
        return _text(shakespeare() if name == "shakespeare" else chain_speech(60, 12, 4))
    raise PlanError(f"tasks are {', '.join([*_PICTURES, *_TEXTS])}; got {name!r}.")


def _pictures(name: str, n: int | None) -> Task:
    side, channels = _PICTURES[name]
    if name == "digits":
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        parts = ((X[:1200][:n] / 16, y[:1200][:n]), (X[1200:] / 16, y[1200:]))
    else:
        data = load(name)
        parts = ((data.X_train[:n] / 255, data.y_train[:n]), (data.X_test / 255, data.y_test))
    train, test = (
        (
            torch.from_numpy(np.float32(2 * X - 1))
            .reshape(-1, side, side, channels)
            .permute(0, 3, 1, 2)
            .contiguous(),
            torch.from_numpy(np.int64(y)),
        )
        for X, y in parts
    )
    return Task(
        train, *_split(test, round(_CHOOSING * len(test[0]))), classes=10, shape=(side, channels)
    )


def _text(speech: Speech) -> Task:
    train, test = torch.from_numpy(speech.pieces), torch.from_numpy(speech.test_pieces)
    speakers = int(speech.test_speaker.max()) + 1
    first = int(np.searchsorted(speech.test_speaker, round(_CHOOSING * speakers)))  # whole speakers
    return Task(
        (train[:, :-1], train[:, 1:]),
        *_split((test[:, :-1], test[:, 1:]), max(1, first)),
        classes=speech.symbols,
        user=torch.from_numpy(speech.speaker),
    )


def _split(test: Part, first: int) -> tuple[Part, Part]:
    return (test[0][:first], test[1][:first]), (test[0][first:], test[1][first:])


def new_model(found: Task, seed: int) -> nn.Module:
    """A model for the task, at its random start."""
    torch.manual_seed(seed)
    if found.shape is None:
        return NextCharacter(found.classes)
    return tanh_cnn(*found.shape, found.classes)


def tanh_cnn(side: int, channels: int, classes: int = 10) -> nn.Sequential:
    """The paper's network of convolutions and tanh, made smaller: 16, 32 and 32 channels, then 64 units.

    Convolutions have a stride of 2 in place of pooling, which would take a third of the time.

    Example:
        >>> model = tanh_cnn(32, 3)
        >>> sum(p.numel() for p in model.parameters())
        47818
    """
    layers: list[nn.Module] = []
    for inside, outside in ((channels, 16), (16, 32), (32, 32)):
        layers += [nn.Conv2d(inside, outside, 3, stride=2, padding=1), nn.Tanh()]
    left = -(-side // 8)
    layers += [nn.Flatten(), nn.Linear(32 * left**2, 64), nn.Tanh(), nn.Linear(64, classes)]
    for layer in layers:
        if isinstance(layer, nn.Conv2d):
            fan_in = layer.in_channels * 9
            nn.init.normal_(layer.weight, std=1 / math.sqrt(fan_in))
        elif isinstance(layer, nn.Linear):
            nn.init.xavier_normal_(layer.weight)
        if isinstance(layer, nn.Conv2d | nn.Linear) and layer.bias is not None:
            nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


@final
class NextCharacter(nn.Module):
    """Scores of the next character from the last five.

    Example:
        >>> model = NextCharacter(65)
        >>> model(torch.zeros(3, 31, dtype=torch.int64)).shape, sum(p.numel() for p in model.parameters())
        (torch.Size([3, 31, 65]), 8113)
    """

    _SEEN = 5

    def __init__(self, symbols: int, inside: int = 16, hidden: int = 48) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, inside)
        self.context = nn.Conv1d(inside, hidden, self._SEEN)
        self.scores = nn.Linear(hidden, symbols)

    def forward(self, codes: Tensor) -> Tensor:
        """Of every place of every piece; places before the first are zeros."""
        seen = self.embedding(codes).transpose(1, 2)
        seen = nn.functional.pad(seen, (self._SEEN - 1, 0))
        hidden = torch.tanh(self.context(seen)).transpose(1, 2)
        scores: Tensor = self.scores(hidden)
        return scores


def cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    """The loss of an example, a batch of one: the mean over its places if there are several."""
    return nn.functional.cross_entropy(outputs.flatten(0, -2), labels.flatten())
