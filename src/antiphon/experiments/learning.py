"""Private training as experiments do it: one certificate, one seed, plain SGD."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from antiphon.accounting import calibrate
from antiphon.certificate import Certificate, certify
from antiphon.mechanisms import Independent
from antiphon.plan import Plan
from antiphon.sampling import ShuffledEpochs
from antiphon.training import make_private

__all__ = ["accuracy", "calibrated", "hardly_noised", "train_privately"]

Loss = Callable[[Tensor, Tensor], Tensor]  # outputs and labels to the loss of each example

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
) -> Iterator[int]:
    """Take the plan's steps by SGD; yields the number of steps taken after each of them."""
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    with make_private(model, optimizer, data, plan=certificate, seed=seed) as run:
        for inputs, labels in run.batches(show=False):
            run.step(loss(model(inputs), labels))
            yield run.steps_taken


@torch.no_grad()
def accuracy(model: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """Share of examples whose largest output is that of their label."""
    right = 0
    for start in range(0, len(inputs), _CHUNK):
        some = slice(start, start + _CHUNK)
        right += int((model(inputs[some]).argmax(dim=1) == labels[some]).sum())
    return right / len(inputs)
