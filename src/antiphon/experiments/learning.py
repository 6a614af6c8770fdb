"""Private and plain training as experiments do it: one certificate, one seed, plain SGD."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from antiphon import cache
from antiphon.accounting import calibrate
from antiphon.certificate import Certificate, certify
from antiphon.plan import Plan
from antiphon.training import make_private

__all__ = ["accuracy", "calibrated", "train_plainly", "train_privately"]

Loss = Callable[[Tensor, Tensor], Tensor]  # outputs and labels to the loss of each example

_ANY_SIZE = 10**6
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


def train_plainly(
    model: nn.Module,
    data: tuple[Tensor, Tensor],
    plan: Plan,
    *,
    learning_rate: float,
    loss: Loss,
    seed: int,
) -> Iterator[int]:
    """The same without noise, on batches of the plan's expected size, whose mean gradient is clipped."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=learning_rate)
    rng, (inputs, labels) = torch.Generator().manual_seed(seed), data
    size = max(1, min(len(inputs), round(plan.expected_batch)))
    for step in range(1, plan.steps + 1):
        rows = torch.randperm(len(inputs), generator=rng)[:size]
        optimizer.zero_grad()
        torch.autograd.backward(loss(model(inputs[rows]), labels[rows]).mean())
        nn.utils.clip_grad_norm_(trained, plan.clip_norm)
        optimizer.step()
        yield step


@torch.no_grad()
def accuracy(model: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """Share of examples whose largest output is that of their label."""
    right = 0
    for start in range(0, len(inputs), _CHUNK):
        some = slice(start, start + _CHUNK)
        right += int((model(inputs[some]).argmax(dim=1) == labels[some]).sum())
    return right / len(inputs)
