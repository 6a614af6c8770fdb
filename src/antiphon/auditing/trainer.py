"""Real runs on chosen gradients, as an attacker sees them who reads every noisy gradient."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray

from antiphon.auditing.instance import LONG, Instance, Lookup, layers_of
from antiphon.certificate import Certificate
from antiphon.plan import Plan
from antiphon.randomness import Generator
from antiphon.sampling import Draws
from antiphon.training import VOTE, VOTES, Adaptive, PerLayer, make_private

__all__ = ["Trainer", "Transcript", "train"]

Stream = NDArray[np.float64]


@final
@dataclass(frozen=True)
class Transcript:
    """What one run released, and which batches it drew.

    Attributes:
        streams: One array of steps by places for every block of the plan, in units of its bound and as
            sums over the batch, the divisor undone.
        rows: The rows of every batch. The attacker may use them only where the certificate allows for it.
    """

    streams: tuple[Stream, ...]
    rows: tuple[NDArray[np.int64], ...]


Trainer = Callable[[Certificate, Instance, int], Transcript]


def train(
    certificate: Certificate,
    instance: Instance,
    seed: int,
    *,
    steps: int | None = None,
    **options: Any,
) -> Transcript:
    """A run of `antiphon.make_private` on the instance.

    Args:
        certificate: Of the plan that runs.
        instance: Its data.
        seed: Of noise and batches.
        steps: Stop after so many steps; unless given, after all.
        options: Of `antiphon.make_private`, such as ``checkpoint``.
    """
    plan = certificate.plan
    model = Lookup(instance.places, layers_of(plan))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    place, size = instance.tensors()
    users = None
    if plan.unit == "user":  # two rows each: the mean of a user's gradients is what is clipped
        users = torch.arange(len(place)).repeat(2).numpy()
        place, size = place.repeat(2), size.repeat(2)
    has_votes = any(block.name == VOTES for block in plan.blocks)
    clipping = Adaptive() if has_votes else PerLayer() if plan.blocks else "flat"
    with make_private(
        model, optimizer, (place, size), plan=certificate, seed=seed, user=users, clipping=clipping,
        **options,
    ) as run:  # fmt: skip
        recorder = _Recorder(plan, run, optimizer)
        for places, sizes in run.batches(steps, show=False):
            # Longer than any bound, in every layer by itself.
            run.step((model(places) * sizes[:, None]).sum(1) * LONG * recorder.longest)
    source = Generator.seeded(seed).spawn("sampling")
    count = len(instance.place)
    draws = Draws(plan.sampling, count, source) if count else None
    rows = tuple(
        draws.rows(step).numpy() if draws else np.empty(0, np.int64) for step in range(plan.steps)
    )
    return Transcript(recorder.streams(), rows)


class _Recorder:
    """Keeps the gradients that the optimizer gets, and the clip norms that were announced."""

    def __init__(self, plan: Plan, run: object, optimizer: torch.optim.Optimizer) -> None:
        self._plan, self._run = plan, run
        self._norms, self._seen = [run.clip_norm], list[list[Stream]]()  # type: ignore[attr-defined]
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        optimizer.register_step_pre_hook(self._keep)
        optimizer.register_step_post_hook(self._keep_norm)

    @property
    def longest(self) -> float:
        """The largest bound of the next step."""
        return max([self._norms[-1], *(block.bound for block in self._plan.blocks)])

    def _keep(self, *details: object) -> None:
        self._seen.append([p.grad.double().numpy().ravel().copy() for p in self._parameters])

    def _keep_norm(self, *details: object) -> None:
        self._norms.append(self._run.clip_norm)  # type: ignore[attr-defined]

    def streams(self) -> tuple[Stream, ...]:
        """The released sums of every block, in units of its bound."""
        plan, norms = self._plan, np.array(self._norms)
        layers = [np.array(found) * plan.expected_batch for found in zip(*self._seen, strict=True)]
        if any(block.name == VOTES for block in plan.blocks):
            return (layers[0] / norms[:-1, None], self._votes(norms))
        if plan.blocks:
            return tuple(x / b.bound for x, b in zip(layers, plan.blocks, strict=True))
        return (layers[0] / plan.clip_norm,)

    def _votes(self, norms: Stream) -> Stream:
        """The noisy sums of votes, told by the clip norms; a unit beyond the clip norm adds -1."""
        rule = Adaptive()
        share = -np.diff(np.log(norms)) / rule.rate - 0.5 + rule.quantile
        return (-share * self._plan.expected_batch / VOTE)[:, None]
