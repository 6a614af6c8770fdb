"""Accuracy of KANs against λ, with the noise that is certified at each λ and ε.

The paper's Figure 1 (left) is reprinted from another one, without network, optimizer or accountant; its
shape is a maximum within 0 < λ < 1 whose gain over λ = 0 grows with ε. Here additive KANs learn from 2000
records of synthetic data, MNIST (2 x 2 pixels averaged) and Adult by plain SGD under Poisson sampling, with
1000 steps at rate 0.01 throughout, so that one calibration for each (λ, ε) serves all. The dashed line is
the same clipped training with hardly any noise. There is one row of panels for each learning rate.

Few records and long steps, because noise must matter: with all records of these data the same runs are
within two points of each other for every λ and ε (docs/results/kan.md).

That shape is seen, in ``full``, on all three data sets. Runs of one seed share start, batches and white
noise, so that gains over λ = 0 are paired. Long steps, MNIST: +1.5 ± 0.3 points at ε = 1 and +6.2 ± 0.1 at
2, both at λ = 0.7, and +8.4 ± 0.5 at ε = 8 at λ = 0.9; Adult +0.4, +1.0 and +1.0 (± 0.3) at λ = 0.7; the
synthetic data nothing at ε = 1, then +0.5 ± 0.1. λ = 0.9 loses 0.6 to 2.2 points at ε = 1. Short steps have
the same shape and a third of the gains. The noise of λ > 0 is a Monte Carlo bound, some per cent above its
estimate, that of λ = 0 is exact: the gains are a little too small.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor, nn

from antiphon.mechanisms import LambdaCGD
from antiphon.models import TableKAN
from antiphon.plans import Plan, Poisson
from antiphon.tables.data import Dataset, load
from antiphon_papers.common.averages import averages, grouped
from antiphon_papers.common.drawing import COLOURS, errorbars, finish, grid
from antiphon_papers.common.experiment import Row
from antiphon_papers.common.generators import synthetic_logistic
from antiphon_papers.common.learning import accuracy, calibrated, hardly_noised, train_privately

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Config", "configs", "plot", "run", "summary"]

Tensors = tuple[Tensor, Tensor, Tensor, Tensor, list[bool], int, float]

_SEEDS = {"synthetic": 10, "adult": 10, "mnist": 4}
_LAMBDAS = (0.0, 0.3, 0.5, 0.7, 0.9)
_EPSILONS = (1.0, 2.0, 8.0)
_RATES = (6.0, 24.0)


@final
@dataclass(frozen=True)
class Config:
    """One training.

    Attributes:
        data: "synthetic", "mnist" or "adult".
        epsilon: ε for which the noise is certified; None for hardly any noise, a thousandth.
        lam: λ.
        learning_rate: Of SGD.
        seed: Of the start, the batches and the noise, and of the synthetic records.
        steps: T.
        rate: Of Poisson sampling.
        delta: δ.
        n: Records to learn from, the first ones of the data set.
        clip_norm: Bound on an example's gradient.
    """

    data: str
    epsilon: float | None
    lam: float
    learning_rate: float
    seed: int = 0
    steps: int = 1000
    rate: float = 0.01
    delta: float = 2.5e-4
    n: int = 2_000
    clip_norm: float = 0.3


def configs(preset: str, seeds: int | None = None) -> tuple[Config, ...]:
    """All data sets, λ, ε and learning rates, seeds outermost; small synthetic data for ``ci``.

    Configurations that share a calibration lie far apart, so that jobs do not make it twice.
    """
    if preset == "ci":
        return tuple(
            Config("synthetic", epsilon, lam, 2.0, seed, steps=8, rate=1.0, n=200)
            for seed in range(1 if seeds is None else seeds)
            for epsilon, lam in ((None, 0.0), (8.0, 0.0), (8.0, 0.5))
        )
    return tuple(
        Config(data, epsilon, lam, learning_rate, seed)
        for data, own in _SEEDS.items()
        for seed in range(own if seeds is None else seeds)
        for learning_rate in _RATES
        for epsilon in (None, *_EPSILONS)
        for lam in (_LAMBDAS if epsilon is not None else (0.0,))
    )


def run(config: Config) -> list[Row]:
    """Train once; one row."""
    X, y, X_test, y_test, kinds, columns, majority = _tensors(config)
    model = TableKAN(kinds, columns, int(y_test.max()) + 1)
    plan = Plan(
        n=len(X),
        sampling=Poisson(config.rate),
        steps=config.steps,
        mechanism=LambdaCGD(config.lam),
        clip_norm=config.clip_norm,
    )
    if config.epsilon is None:
        certificate = hardly_noised(plan)
    else:
        certificate = calibrated(plan, config.epsilon, config.delta)
    taken = max(
        train_privately(
            model,
            (X, y),
            certificate,
            learning_rate=config.learning_rate,
            loss=_cross_entropy,
            seed=config.seed,
        )
    )
    return [
        {
            "data": config.data,
            "epsilon": config.epsilon,
            "lam": config.lam,
            "learning_rate": config.learning_rate,
            "seed": config.seed,
            "noise_multiplier": certificate.plan.known_noise(),
            "steps": taken,
            "accuracy": accuracy(model, X_test, y_test),
            "majority": majority,
        }
    ]


def summary(rows: Sequence[Row]) -> list[Row]:
    """Mean accuracy for each data set, ε, λ and learning rate, and its gain over λ = 0, seed by seed."""
    by = ["data", "epsilon", "lam", "learning_rate", "noise_multiplier"]
    base = {_paired(row): row["accuracy"] for row in rows if row["lam"] == 0}
    more = [row | {"gain": row["accuracy"] - base[_paired(row)]} for row in rows]
    return averages(more, by=by, of=["accuracy", "gain", "majority"])


def _paired(row: Row) -> tuple[object, ...]:
    """What a run shares with the one without correlation that it is compared with."""
    return tuple(row[name] for name in ("data", "epsilon", "learning_rate", "seed"))


def plot(rows: Sequence[Row]) -> "Figure":
    """Accuracy against λ: a panel for each learning rate and data set, one curve for each ε."""
    means = sorted(summary(rows), key=lambda row: row["learning_rate"])
    sets = grouped(means, ["learning_rate", "data"])
    rates = len({rate for rate, _ in sets})
    figure, axes = grid(rates, len(sets) // rates, f"{rows[0]['steps']} steps, certified noise")
    places = [place for row in axes for place in row]
    for place, ((rate, name), found) in zip(places, sets.items(), strict=True):
        _panel(place, found)
        title = f"{name}, learning rate {rate:g}"
        where = f"λ (share of the commonest label: {found[0]['majority']:.3f})"
        finish(place, title=title, xlabel=where, ylabel="test accuracy")
    for place in places[1:]:  # one legend serves all, and hides no curve
        if (legend := place.get_legend()) is not None:
            legend.remove()
    return figure


def _panel(axes: "Axes", rows: Sequence[Row]) -> None:
    private = [row for row in rows if row["epsilon"] is not None]
    curves = grouped(sorted(private, key=lambda row: row["lam"]), ["epsilon"])
    for ((epsilon,), found), colour in zip(curves.items(), COLOURS, strict=False):
        errorbars(axes, found, "lam", "accuracy", colour, f"ε = {epsilon:g}")
    for row in rows:
        if row["epsilon"] is None:
            axes.axhline(row["accuracy"], color="0.3", linestyle="--", label="hardly any noise")


def _cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, labels)


def _tensors(config: Config) -> Tensors:
    """The records to learn from, the test part, what the columns are, and the commonest label's share."""
    if config.data == "synthetic":
        X, y, *rest = _as_tensors(synthetic_logistic(config.n, seed=config.seed))
    else:
        X, y, *rest = _loaded(config.data)
    return X[: config.n], y[: config.n], *rest  # type: ignore[return-value]


@lru_cache(maxsize=1)
def _loaded(data: str) -> Tensors:
    X, y, X_test, *rest = _as_tensors(load(data))
    if data != "mnist":
        return X, y, X_test, *rest  # type: ignore[return-value]
    X, X_test, y_test, majority = _pooled(X), _pooled(X_test), rest[0], rest[-1]
    return X, y, X_test, y_test, [True] * X.shape[1], X.shape[1], majority  # type: ignore[return-value]


def _as_tensors(data: Dataset) -> Tensors:
    X, y, X_test, y_test = map(torch.as_tensor, data.encoded())
    columns = data.schema.columns
    kinds = [column.kind == "number" for column in columns for _ in column.feature_names]
    return X, y, X_test, y_test, kinds, len(columns), data.majority


def _pooled(X: Tensor) -> Tensor:
    """Means of 2 x 2 pixels of images of 28 x 28."""
    return X.reshape(-1, 14, 2, 14, 2).mean(dim=(2, 4)).flatten(1)
