"""The runs that both figures of [KANGradientDescent26] show: GD and DP-GD over width and over steps.

Not an experiment by itself: ``kan-gd-figure-2`` shows the accuracies of these runs, ``kan-gd-figure-3``
their losses. Each run measures both and is kept in the cache, so that the second figure costs nothing.
Losses and accuracies on training data are statistics of those data that no certificate covers: they are
shown here, for research, because the data are public or synthetic.
"""

import dataclasses
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import torch
from torch import Tensor
from torch.nn.functional import softplus

from antiphon import cache
from antiphon.errors import PlanError
from antiphon.tables.data import Dataset, load
from antiphon_papers.common.averages import averages, grouped
from antiphon_papers.common.experiment import Row
from antiphon_papers.common.generators import synthetic_logistic
from antiphon_papers.common.printed import PrintedTheoremWarning
from antiphon_papers.common.two_layer_kan import TwoLayerKAN
from antiphon_papers.kan_gd.algorithm import descend, gradient_descent

__all__ = ["NOISES", "Config", "configs", "run", "summary"]

Tensors = tuple[Tensor, Tensor, Tensor, Tensor, float]

# In the order of the legends; "literal" and the second run within two balls, the others freely.
NOISES = ("none", "none, in balls", "literal", "adaptive", "clipped")
_IN_BALLS = ("none, in balls", "literal")
_MEASURES = ("train_accuracy", "test_accuracy", "train_loss", "test_loss")
_WIDTH, _STEPS, _FIRST = 32, 100, 16
_CHUNK = 2000  # examples that are scored at once


@final
@dataclass(frozen=True)
class Config:
    """One run.

    Attributes:
        data: "synthetic" or "mnist-01".
        sweep: What is varied: "width" or "steps".
        noise: One of `NOISES`.
        width: m.
        steps: T. Without noise, a sweep over steps is one run that is measured at all powers of 2 from 16.
        step_size: η.
        radius: R₁ = R₂, of those that run within balls; for the others only the panel they belong to.
        clip_norm: C of "clipped".
        seed: Of start and noise, and of the synthetic records and their truth.
        n: Records of the synthetic data; δ is one over their number, for MNIST too.
        epsilon: Claimed ε.
    """

    data: str
    sweep: str
    noise: str
    width: int
    steps: int
    step_size: float
    radius: float
    clip_norm: float = 0.5
    seed: int = 0
    n: int = 20_000
    epsilon: float = 2.0


@final
@dataclass(frozen=True)
class _Study:
    """What is run on one data set; each setting is η and R, the published one first."""

    seeds: int
    settings: tuple[tuple[float, float], ...]
    clip_norm: float
    widths: tuple[int, ...]
    steps: tuple[int, ...]


_WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128)
_FULL = {
    "synthetic": _Study(
        10, ((1.0, 1.0), (8.0, 10.0)), 0.5, _WIDTHS, (16, 32, 64, 128, 256, 512, 1024)
    ),
    "mnist-01": _Study(4, ((0.5, 1.0), (8.0, 10.0)), 1.0, _WIDTHS[:-1], (16, 32, 64, 128, 256)),
}


def configs(preset: str, seeds: int | None = None) -> tuple[Config, ...]:
    """All data sets, settings, sweeps and noises, seeds outermost; small synthetic data for ``ci``."""
    if preset == "ci":
        tiny = _Study(1, ((1.0, 1.0), (8.0, 10.0)), 0.5, (2, 4), (16, 32))
        return tuple(
            dataclasses.replace(
                config, n=300, steps=min(config.steps, 32), width=min(config.width, 4)
            )
            for seed in range(1 if seeds is None else seeds)
            for config in _of("synthetic", tiny, seed)
        )
    return tuple(
        config
        for data, study in _FULL.items()
        for seed in range(study.seeds if seeds is None else seeds)
        for config in _of(data, study, seed)
    )


def _of(data: str, study: _Study, seed: int) -> list[Config]:
    """All runs of a study for one seed: T = 100 while m varies, m = 32 while T does."""
    found = []
    for step_size, radius in study.settings:
        for noise in NOISES:
            # Noise depends on T, so that each T is a run of its own; without it one serves all.
            steps = study.steps[-1:] if noise.startswith("none") else study.steps
            points = [("width", m, _STEPS) for m in study.widths]
            points += [("steps", _WIDTH, T) for T in steps]
            found += [
                Config(data, sweep, noise, m, T, step_size, radius, study.clip_norm, seed)
                for sweep, m, T in points
            ]
    return found


def run(config: Config) -> list[Row]:
    """One row for each number of steps that is measured; kept in the cache for the other figure."""
    key = dataclasses.asdict(config)
    rows: list[Row] = cache.remembered("kan-gd-runs", key, lambda: {"rows": _rows(config)})["rows"]
    return rows


def _rows(config: Config) -> list[Row]:
    X, y, X_test, y_test, majority = _tensors(config)
    measured: dict[int, Row] = {}

    def look(step: int, model: TwoLayerKAN) -> None:
        if step in _looks(config):
            train, test = _scores(model, X, y), _scores(model, X_test, y_test)
            values = (train[0], test[0], train[1], test[1])
            measured[step] = dict(zip(_MEASURES, values, strict=True))

    torch.manual_seed(config.seed)
    start = TwoLayerKAN(X.shape[1], config.width, train="both")
    epsilon = _descended(config, start, X, y, look)
    known: Row = vars(config) | {
        "n": len(X),
        "delta": 1 / len(X),
        "claimed_epsilon": None if epsilon is None else config.epsilon,
        "epsilon": epsilon,
        "majority": majority,
        "constant_loss": _entropy(majority),
    }
    return [known | {"steps": step} | values for step, values in measured.items()]


def _descended(config: Config, start: TwoLayerKAN, X: Tensor, y: Tensor, look: Any) -> float | None:
    """Run it; returns the ε of its certificate, None without noise."""
    options: dict[str, Any] = {
        "step_size": config.step_size,
        "steps": config.steps,
        "radii": (config.radius,) * 2 if config.noise in _IN_BALLS else None,
        "callback": look,
        "background": -1.0 if config.data == "mnist-01" else None,  # of empty pixels
    }
    if config.noise.startswith("none"):
        gradient_descent(start, X, y, **options)
        return None
    options |= {"epsilon": config.epsilon, "delta": 1 / len(X), "seed": config.seed}
    options |= {"calibration": config.noise, "clip_norm": config.clip_norm}
    with (
        warnings.catch_warnings()
    ):  # that the theorem fails is in the rows: the certificate's own ε
        warnings.simplefilter("ignore", PrintedTheoremWarning)
        certificate = descend(start, X, y, **options).certificate
    if certificate is None:
        raise PlanError(f"a run with {config.noise!r} noise has no certificate.")
    return certificate.epsilon


def _looks(config: Config) -> tuple[int, ...]:
    """The numbers of steps after which a run is measured."""
    if config.sweep == "width" or not config.noise.startswith("none"):
        return (config.steps,)
    powers = int(math.log2(config.steps / _FIRST)) + 1
    return tuple(_FIRST * 2**k for k in range(powers))


@torch.no_grad()
def _scores(model: TwoLayerKAN, X: Tensor, y: Tensor) -> tuple[float, float]:
    """Accuracy and mean logistic loss."""
    margins = y * torch.cat([model(part) for part in torch.split(X, _CHUNK)])
    return float((margins > 0).double().mean()), float(softplus(-margins.double()).mean())


def _entropy(share: float) -> float:
    """Loss of the best answer that is the same for all records, with this share of the commonest label."""
    return -sum(q * math.log(q) for q in (share, 1 - share) if q > 0)


def summary(rows: Sequence[Row]) -> list[Row]:
    """Means over seeds; ``lead`` is test accuracy over the commonest label, ``epsilon`` the largest."""
    by = ["data", "step_size", "radius", "sweep", "noise", "width", "steps", "claimed_epsilon"]
    more = [row | {"lead": row["test_accuracy"] - row["majority"]} for row in rows]
    means = averages(more, by, [*_MEASURES, "lead", "majority", "constant_loss"])
    groups = grouped(rows, by).values()
    return [
        mean | {"epsilon": max((row["epsilon"] for row in group if row["epsilon"]), default=None)}
        for mean, group in zip(means, groups, strict=True)
    ]


def _tensors(config: Config) -> Tensors:
    """Train and test part with labels -1 and +1, and the share of the commonest label."""
    if config.data != "synthetic":
        return _loaded(config.data)
    test = min(config.n, 8_000)
    return _signed(
        synthetic_logistic(config.n, seed=config.seed, theta_seed=config.seed, test=test)
    )


@lru_cache(maxsize=1)
def _loaded(data: str) -> Tensors:
    return _signed(load(data))


def _signed(data: Dataset) -> Tensors:
    X, y, X_test, y_test = map(torch.as_tensor, data.encoded())
    return X, 2.0 * y - 1, X_test, 2.0 * y_test - 1, data.majority
