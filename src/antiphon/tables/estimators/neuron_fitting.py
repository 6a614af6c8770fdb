"""The loop of one neuron for tables: as `fit_model`, with a compiled step in place of a network's."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from antiphon.certificates import SEEDED, Certificate
from antiphon.errors import PlanError
from antiphon.models import TableNeuron
from antiphon.numerics import Generator, digest_of
from antiphon.plans import GaussianRelease, Plan
from antiphon.progress import bar
from antiphon.releases import private_threshold
from antiphon.training.checkpoints import Folder
from antiphon.training.neuron import AbstractClipNorms, Constant, Descent, residuals

__all__ = ["Found", "How", "fit_neuron"]

_EVERY = 0.5  # seconds between checkpoints


class Found(NamedTuple):
    """A clip norm that is found once, before the first step, from all records.

    Attributes:
        event: What pays for it.
        of_norms: Whether it is a share of the directions' norms; else one of the residuals.
        share: Of the numbers that lie below it.
        smallest: First of the doubling thresholds.
        largest: Their cap.
        factor: What the threshold is multiplied by.
    """

    event: GaussianRelease
    of_norms: bool
    share: float
    smallest: float
    largest: float
    factor: float

    def norm(self, X: Any, y: Any, weights: Any, n: int, generator: Generator) -> float:
        """The clip norm, released."""
        sizes = residuals(X, y, weights)
        if self.of_norms:
            sizes = sizes * np.linalg.norm(X, axis=1)
        found, paid = private_threshold(
            sizes,
            self.smallest,
            self.largest,
            mu=self.event.mu,
            share=self.share,
            n=n,
            generator=generator.spawn("clip norm"),
            what=self.event.what,
        )
        if paid.mu != self.event.mu:
            raise PlanError(f"{paid} was released, but the plan pays for {self.event}.")
        return self.factor * found


class How(NamedTuple):
    """What runs beside the plan.

    Attributes:
        direction: "glmtron" or "sgd".
        average: "full", "tail" or "last".
        radius: Of the ball around 0, if any.
        clip: A rule for every step, a clip norm to be found first, or None for the plan's own.
        context: Digest of what else the steps depend on, such as public records.
    """

    direction: str
    average: str
    radius: float | None
    clip: AbstractClipNorms | Found | None
    context: str


def fit_neuron(
    model: TableNeuron,
    x: Tensor,
    target: Tensor,
    certificate: Certificate,
    how: How,
    *,
    learning_rate: float,
    seed: int | None,
    folder: Path | None = None,
    resume: bool = False,
    begun: Callable[[], None] | None = None,
    watcher: Callable[[int, nn.Module, Certificate], None] | None = None,
) -> tuple[nn.Module, Certificate]:
    """The averaged neuron after all steps of the plan, and what is proved of it.

    Args:
        model: At its start.
        x: Encoded records.
        target: Encoded targets, in [-1, 1].
        certificate: Of the plan that runs.
        how: What runs beside it.
        learning_rate: η, at the plan's clip norm: where one is found, steps keep their length.
        seed: Of noise and batches; None is secret.
        folder: Of the run's checkpoints, if it has any. As secret as the data.
        resume: Go on from the folder's checkpoint.
        begun: Called when the run has its first checkpoint, before its first step.
        watcher: Called after each step with its number, the result if it were the last, and the
            certificate.

    Guarantee:
        As `antiphon.training.neuron.descend`. A resumed run draws the same noise for the same steps from
        the same weights: a step that was recorded with others is refused.
    """
    X = model.inputs(x.double()).numpy()
    y = (target.double().numpy() + 1) / 2
    if seed is not None:
        certificate = replace(certificate, assumptions=(*certificate.assumptions, SEEDED))
    opened = None if folder is None else (Folder.open if resume else Folder.create)(folder)
    with nullcontext() if opened is None else opened, bar("training") as progress:
        kept = opened.read() if opened is not None and resume else None
        generator = _generator(seed, None if kept is None else kept[1])
        descent = _descent(model, X, y, certificate.plan, how, learning_rate, generator, kept)
        if opened is not None and kept is None:
            opened.write(*_state(descent))
        if begun is not None:
            begun()
        written = time.monotonic()
        while descent.step < certificate.plan.steps:
            if opened is not None:
                opened.record(descent.step, _digest(descent.weights, how.context))
            descent.advance(None if watcher is None else 1)
            progress(descent.step, certificate.plan.steps)
            if opened is not None and time.monotonic() - written > _EVERY:
                opened.write(*_state(descent))
                written = time.monotonic()
            if watcher is not None:
                if opened is not None:
                    opened.sync()
                watcher(descent.step, _fitted(model, descent.result), certificate)
        if opened is not None:
            opened.write(*_state(descent))
    return _fitted(model, descent.result), certificate


def _descent(
    model: TableNeuron,
    X: Any,
    y: Any,
    plan: Plan,
    how: How,
    rate: float,
    generator: Generator,
    kept: tuple[dict[str, Tensor], dict[str, Any]] | None,
) -> Descent:
    """The run at its start, or where it was left."""
    start = model.weight.detach().double().numpy()
    clip = how.clip
    if isinstance(clip, Found):
        known = None if kept is None else kept[1]["clip_norm"]
        norm = clip.norm(X, y, start, plan.n, generator) if known is None else known
        rate, clip = rate * plan.clip_norm / norm, Constant(norm)
    descent = Descent(
        X,
        y,
        plan,
        learning_rate=rate,
        generator=generator,
        direction=how.direction,
        average=how.average,
        counts_last=True,
        start=start,
        radius=how.radius,
        clip_norms=clip,
    )
    if kept is not None:
        descent.restore(*kept)
    return descent


def _generator(seed: int | None, meta: dict[str, Any] | None) -> Generator:
    if meta is not None:
        return Generator(bytes.fromhex(meta["key"]), meta["is_secure"])
    return Generator.secure() if seed is None else Generator.seeded(seed)


def _digest(weights: Any, context: str) -> int:
    """Of what a step's sum is a function of, beside the records and settings that a resumed fit checks."""
    return int(digest_of(weights, context), 16) % 2**64


def _state(descent: Descent) -> tuple[dict[str, Tensor], dict[str, Any]]:
    tensors, meta = descent.state()
    generator, rule = descent.generator, descent.clip_norms
    norm = rule.norm if isinstance(rule, Constant) else None
    secret = {"key": generator.key.hex(), "is_secure": generator.is_secure, "clip_norm": norm}
    return tensors, meta | secret


def _fitted(model: TableNeuron, weights: Any) -> nn.Module:
    fitted = deepcopy(model).double()
    with torch.no_grad():
        fitted.weight.copy_(torch.from_numpy(weights))
    return fitted
