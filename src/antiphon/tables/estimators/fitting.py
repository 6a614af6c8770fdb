"""The loop that all estimators share: private steps, and the average of the later iterates."""

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from antiphon.certificates import Certificate
from antiphon.tables.estimators.targets import AbstractTarget
from antiphon.training import Ball
from antiphon.training.run import Dataset, Options, Rows, make_private

__all__ = ["Watcher", "fit_model"]

_AT_ONCE = 2**21  # features × examples that are computed together
_EVERY = 20  # steps between checkpoints: about half a second of work

Watcher = Callable[[int, nn.Module, Certificate], None]


def fit_model(
    model: nn.Module,
    x: Tensor,
    target: Tensor,
    objective: AbstractTarget,
    certificate: Certificate,
    *,
    learning_rate: float,
    seed: int | None,
    radius: float | None = None,
    user: Any = None,
    folder: Path | None = None,
    resume: bool = False,
    begun: Callable[[], None] | None = None,
    watcher: Watcher | None = None,
) -> tuple[nn.Module, Certificate]:
    """The mean of the iterates of the second half of the plan's steps, and what is proved of it.

    Args:
        model: At its start.
        x: Encoded records.
        target: Encoded targets.
        objective: Whose loss is minimised.
        certificate: Of the plan that runs.
        learning_rate: Of plain gradient descent.
        seed: Of noise and batches; None is secret.
        radius: If given, the parameters are projected on this ball around their start after each step.
        user: The user of every record, if users are protected.
        folder: Of the run's checkpoints, if it has any. As secret as the data.
        resume: Go on from the folder's checkpoint.
        begun: Called when the run has its first checkpoint, before its first step.
        watcher: Called after each step with its number, a copy of what the result would be if it were the
            last, and the certificate.

    Guarantee:
        All iterates are released under the certificate, so their mean costs nothing, nor does what a
        watcher computes from them. The journal is on the disk before the watcher sees a step.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    if radius is not None:
        optimizer.register_step_post_hook(Ball(model.parameters(), radius))
    averaged, first = AveragedModel(model), certificate.plan.steps // 2
    shown = deepcopy(model)  # before the run's hooks are on it
    run = make_private(
        model,
        optimizer,
        Dataset((x, target), user=user),
        partial(_loss, objective),
        plan=certificate,
        seed=seed,
        options=Options(
            # A user is clipped as a whole, however many records that are.
            max_batch=max(64, _AT_ONCE // x.shape[1], Rows(len(x), user).most),
            checkpoint=folder,
            checkpoint_every=_EVERY,
            resume=resume,
            others={"mean": averaged},
        ),
    )
    with run:
        if begun is not None:
            begun()
        for step in run:
            if step > first:
                averaged.update_parameters(model)
            if watcher is not None:
                run.sync()
                best = averaged.module if step > first else model
                shown.load_state_dict(best.state_dict())
                watcher(step, deepcopy(shown), run.certificate)
    return averaged.module, run.certificate


def _loss(objective: AbstractTarget, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Of one record, a batch of one."""
    return objective.loss(model(x), y)
