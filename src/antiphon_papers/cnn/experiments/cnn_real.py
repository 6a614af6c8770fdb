"""Does noise help on pictures? GD and noisy GD of a small CNN at equal steps, some with wrong labels.

The question of [CNNGradientDescent26] on real data: 500 pictures of MNIST and of Fashion-MNIST (for ``ci``
the small digits of scikit-learn), of whose labels none or 40 % were replaced by others; full batch, the
same start, step size and number of steps, and Gaussian noise on the mean gradient as the only difference.
Nothing is clipped: no run has an ε. Accuracies are those of the standard test pictures, all labels right.

Seen with three seeds: wrong labels are memorised with noise as without, and noise costs accuracy, unless it
is so large that they are not; GD that stops early is better than both. With right labels a little noise
gained two to three points on Fashion-MNIST in two seeds, and in a third GD collapsed where noisy GD did
not: this step size is near the edge of stability. On MNIST nothing was gained.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, final

import numpy as np
import torch
from torch import Tensor, nn

from antiphon.errors import PlanError
from antiphon.numerics import Generator
from antiphon.progress import bar
from antiphon.tables.data import load
from antiphon_papers.common.averages import averages, grouped
from antiphon_papers.common.drawing import COLOURS, errorbars, finish, grid
from antiphon_papers.common.experiment import Row
from antiphon_papers.common.learning import accuracy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Config", "configs", "plot", "run", "small_cnn", "summary"]

_LOOKS = 8


@final
@dataclass(frozen=True)
class Config:
    """One run.

    Attributes:
        data: "mnist", "fashion-mnist" or "digits".
        wrong: Share of training labels that are replaced by another one.
        noise: σ_b on each coordinate of the mean gradient; 0 is GD.
        n: Training pictures.
        steps: T.
        step_size: η.
        seed: Of pictures, labels, start and noise; the first three do not depend on the noise.
    """

    data: str
    wrong: float
    noise: float
    n: int = 500
    steps: int = 600
    step_size: float = 0.3
    seed: int = 0


def configs(preset: str, seeds: int | None = None) -> tuple[Config, ...]:
    """All data, shares of wrong labels and noises, seeds outermost; digits for ``ci``."""
    if preset == "ci":
        return tuple(
            Config("digits", 0.4, noise, 200, 40, seed=seed)
            for seed in range(1 if seeds is None else seeds)
            for noise in (0.0, 0.01)
        )
    return tuple(
        Config(data, wrong, noise, seed=seed)
        for seed in range(3 if seeds is None else seeds)
        for data in ("mnist", "fashion-mnist")
        for wrong in (0.0, 0.4)
        for noise in (0.0, 0.003, 0.01, 0.03, 0.1)
    )


def small_cnn(side: int) -> nn.Sequential:
    """Two convolutions with stride 2 and a linear layer, for pictures of ``side`` by ``side``.

    Example:
        >>> small_cnn(28)(torch.zeros(3, 1, 28, 28)).shape
        torch.Size([3, 10])
    """
    left = (side + 3) // 4
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * left**2, 10),
    )


def run(config: Config) -> list[Row]:
    """One row for each look; training is measured against the labels it was given."""
    X, y, X_test, y_test = _pictures(config.data)
    rng = np.random.default_rng(config.seed)
    chosen = torch.from_numpy(rng.permutation(len(X))[: config.n])
    inputs, labels = X[chosen], _mislabelled(y[chosen], config.wrong, rng)
    torch.manual_seed(config.seed)
    model = small_cnn(X.shape[-1])
    every, rows = max(1, config.steps // _LOOKS), []
    with bar(config.data) as update:
        for step in range(1, config.steps + 1):
            loss = _step(model, inputs, labels, config, step)
            if step % every == 0:
                rows.append(
                    vars(config)
                    | {
                        "step": step,
                        "train_loss": loss,
                        "train_accuracy": accuracy(model, inputs, labels),
                        "right_accuracy": accuracy(model, inputs, y[chosen]),
                        "test_accuracy": accuracy(model, X_test, y_test),
                    }
                )
            update(step, config.steps)
    return rows


def _step(model: nn.Module, inputs: Tensor, labels: Tensor, config: Config, step: int) -> float:
    """One full-batch step; returns the loss before it."""
    parameters = list(model.parameters())
    loss = nn.functional.cross_entropy(model(inputs), labels)
    gradients = torch.autograd.grad(loss, parameters)
    source = Generator.seeded(config.seed).spawn("noise")
    with torch.no_grad():
        for place, (weight, gradient) in enumerate(zip(parameters, gradients, strict=True)):
            weight.sub_(gradient, alpha=config.step_size)
            if config.noise:
                z = source.normal(weight.detach(), step, index=place)
                weight.sub_(z, alpha=config.step_size * config.noise)
    return float(loss.detach())


def _mislabelled(y: Tensor, wrong: float, rng: np.random.Generator) -> Tensor:
    """A share of the labels becomes one of the nine others, each equally likely."""
    shifts = rng.integers(1, 10, len(y)) * (rng.uniform(size=len(y)) < wrong)
    return (y + torch.from_numpy(shifts)) % 10


@lru_cache(maxsize=2)
def _pictures(data: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pictures within [0, 1], shape (n, 1, side, side), and labels; both parts."""
    if data == "digits":
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        images, labels = torch.from_numpy(X / 16).float(), torch.from_numpy(y.astype(np.int64))
        pixels, marks = (images[:1200], images[1200:]), (labels[:1200], labels[1200:])
    elif data in ("mnist", "fashion-mnist"):
        known = load(data)
        parts = known.X_train, known.X_test
        pixels = torch.from_numpy(parts[0] / 255).float(), torch.from_numpy(parts[1] / 255).float()
        marks = torch.from_numpy(known.y_train), torch.from_numpy(known.y_test)
    else:
        raise PlanError(f"data is 'mnist', 'fashion-mnist' or 'digits'; got {data!r}.")
    side = round(pixels[0].shape[1] ** 0.5)
    train, test = (part.reshape(-1, 1, side, side) for part in pixels)
    return train, marks[0], test, marks[1]


def summary(rows: Sequence[Row]) -> list[Row]:
    """Means over seeds after all steps, and the best test accuracy on the way there."""
    runs = grouped(rows, ["data", "wrong", "noise", "seed"]).values()
    last = [
        max(some, key=lambda row: row["step"])
        | {"best_on_the_way": max(row["test_accuracy"] for row in some)}
        for some in runs
    ]
    of = ["test_accuracy", "best_on_the_way", "train_accuracy", "right_accuracy", "train_loss"]
    return averages(last, ["data", "wrong", "noise", "step"], of)


def plot(rows: Sequence[Row]) -> "Figure":
    """Test accuracy against steps, a panel for each data set and share of wrong labels."""
    means = averages(rows, ["data", "wrong", "noise", "step"], ["test_accuracy"])
    shown = grouped(means, ["data", "wrong"])
    figure, axes = grid(1, len(shown), "unclipped, no ε")
    for place, ((data, wrong), some) in zip(axes[0], shown.items(), strict=True):
        for ((noise,), curve), colour in zip(
            grouped(some, ["noise"]).items(), COLOURS, strict=False
        ):
            label = f"σ_b = {noise:g}" if noise else "GD"
            errorbars(place, curve, "step", "test_accuracy", colour, label)
        finish(place, title=f"{data}, {wrong:.0%} wrong", xlabel="step", ylabel="test accuracy")
    return figure
