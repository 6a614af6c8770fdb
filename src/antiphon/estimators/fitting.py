"""The loop that all estimators share: private steps, and the average of the later iterates."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from antiphon.certificate import Certificate
from antiphon.estimators.targets import AbstractTarget
from antiphon.theory.ball import Ball
from antiphon.training import make_private

__all__ = ["fit_model"]

_AT_ONCE = 2**21  # features × examples that are computed together


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

    Guarantee:
        All iterates are released under the certificate, so their mean costs nothing.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    if radius is not None:
        optimizer.register_step_post_hook(Ball(model.parameters(), radius))
    averaged, first = AveragedModel(model), certificate.plan.steps // 2
    run = make_private(
        model,
        optimizer,
        (x, target),
        plan=certificate,
        seed=seed,
        user=user,
        max_batch=max(64, _AT_ONCE // x.shape[1]),
    )
    with run:
        for rows, wanted in run.batches():
            before = run.steps_taken  # a part of a batch takes no step
            run.step(objective.loss(model(rows), wanted))
            if run.steps_taken > max(first, before):
                averaged.update_parameters(model)
    return averaged.module, run.certificate
