"""Private training as experiments do it: one certificate, one seed, plain SGD."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from antiphon.accounting import calibrate
from antiphon.certificates import Certificate, certify
from antiphon.mechanisms import Independent
from antiphon.plans import Plan, ShuffledEpochs
from antiphon.training.run import Dataset, make_private

__all__ = ["accuracy", "calibrated", "hardly_noised", "train_privately"]

Loss = Callable[[Tensor, Tensor], Tensor]  # outputs and labels of a batch of one to its loss

_ANY_DELTA = 1e-5
_HARDLY = 1e-3
_CHUNK = 2000  # examples that are scored at once


def calibrated(plan: Plan, epsilon: float, delta: float) -> Certificate:
    """The certificate of the plan with the least noise for (ε, δ).

    Noise that takes minutes to find is kept on disk; where a record's steps depend on its own coins alone,
    for data of every size.
    """
    return certify(calibrate(plan, epsilon, delta), delta, epsilon=epsilon)


def hardly_noised(plan: Plan) -> Certificate:
    """A certificate, of an absurd ε, of the plan with noise of a thousandth: what clipping alone allows.

    Batches are as large as expected and in a fixed order, for which even such noise is soon accounted for.
    """
    return certify(
        replace(
            plan,
            sampling=ShuffledEpochs(max(1, round(plan.expected_batch))),
            relation="zero-out",
            mechanism=Independent(),
            noise_multiplier=_HARDLY,
        ),
        delta=_ANY_DELTA,
    )


def train_privately(
    model: nn.Module,
    data: tuple[Tensor, Tensor],
    certificate: Certificate,
    *,
    learning_rate: float,
    loss: Loss,
    seed: int,
    momentum: float = 0.0,
    schedule: Callable[[int], float] | None = None,
    user: Tensor | None = None,
) -> Iterator[int]:
    """Take the plan's steps by SGD; yields the number of steps taken after each of them.

    Momentum and a schedule, a factor on the learning rate by the number of the step, act on noisy
    gradients alone: they cost no privacy.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=momentum)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule or (lambda step: 1.0))
    rows = Dataset(data, user=user)
    with make_private(
        model, optimizer, rows, partial(_loss_of_one, loss), plan=certificate, seed=seed
    ) as run:
        for step in run.take(show=False):
            scheduler.step()
            yield step


def _loss_of_one(loss: Loss, model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    return loss(model(inputs), labels)


@torch.no_grad()
def accuracy(model: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """Share of labels, one or several for each example, whose own output is the largest."""
    right = 0
    for start in range(0, len(inputs), _CHUNK):
        some = slice(start, start + _CHUNK)
        right += int((model(inputs[some]).argmax(dim=-1) == labels[some]).sum())
    return right / labels.numel()
