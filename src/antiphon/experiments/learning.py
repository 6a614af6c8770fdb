"""Private training as experiments do it: one certificate, one seed, plain SGD."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from antiphon import cache
from antiphon.accounting import calibrate
from antiphon.certificate import Certificate, certify
from antiphon.mechanisms import Independent
from antiphon.plan import Plan
from antiphon.sampling import ShuffledEpochs
from antiphon.training import make_private

__all__ = ["accuracy", "calibrated", "hardly_noised", "train_privately"]

Loss = Callable[[Tensor, Tensor], Tensor]  # outputs and labels to the loss of each example

_ANY_DELTA = 1e-5
_ANY_SIZE = 10**6
_HARDLY = 1e-3
_CHUNK = 2000  # examples that are scored at once


def calibrated(plan: Plan, epsilon: float, delta: float) -> Certificate:
    """The certificate of the plan with the least noise for (ε, δ).

    The noise is kept on disk, for it may take minutes to find. Where a record's steps depend on its own
    coins alone, it is the same for data of every size, and found once.
    """
    same = replace(plan, n=_ANY_SIZE, clip_norm=1.0) if plan.sampling.own_coin else plan
    key = {"plan": same.hash, "epsilon": epsilon, "delta": delta}
    noise = cache.remembered(
        "calibrations", key, lambda: {"noise": calibrate(same, epsilon, delta).noise_multiplier}
    )["noise"]
    return certify(plan.with_noise(noise), delta)


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
