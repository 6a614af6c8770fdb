"""Real runs on chosen gradients, as an attacker sees them who reads every noisy gradient."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphon.audits.instance import Instance
from antiphon.audits.lookup import LONG, Layer, Lookup, has_votes, layers_of
from antiphon.certificates import Certificate
from antiphon.training.gradients import Adaptive, PerLayer
from antiphon.training.run import VOTE, Dataset, Options, Run, make_private

__all__ = ["Trainer", "Transcript", "seed_for", "train"]

Stream = NDArray[np.float64]

# The clip norm moves little, so that its path tells all votes: the rate is no part of the promise.
_ADAPTIVE = Adaptive(rate=1e-6)


@final
@dataclass(frozen=True)
class Transcript:
    """What one run released, and which batches it drew.

    Attributes:
        streams: For every layer an array of steps by places: the released sums over the batch, the
            divisor undone, in units of what a canary adds.
        rows: The rows of every batch, as they were used. The attacker may know them only where the proof
            holds for those who do.
        votes: With adaptive clipping, the noisy sum of votes at every step, in units of a canary's.
    """

    streams: tuple[Stream, ...]
    rows: tuple[NDArray[np.int64], ...]
    votes: Stream | None = None


Trainer = Callable[[Certificate, Instance, int], Transcript]


def seed_for(seed: int, role: str) -> int:
    """A seed of its own for every use of random numbers, so that no two share a stream."""
    words = np.random.SeedSequence([seed, *role.encode()]).generate_state(1, np.uint64)
    return int(words[0] >> np.uint64(1))


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
        options: Of `antiphon.Options`, such as ``checkpoint``.
    """
    plan, layers = certificate.plan, layers_of(certificate.plan)
    model = Lookup(instance.places, [layer.name for layer in layers])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    place, size = instance.tensors()
    users, units = None, len(place)
    if plan.unit == "user":  # two rows each: the mean of a user's gradients is what is clipped
        users, place, size = np.tile(np.arange(units), 2), place.repeat(2), size.repeat(2)
    clipping = _ADAPTIVE if has_votes(plan) else PerLayer() if plan.blocks else "flat"
    # The clip norm hardly moves, where it moves at all.
    longest = LONG * max(plan.clip_norm, *(layer.bound for layer in layers))
    with make_private(
        model,
        optimizer,
        Dataset((place, size), user=users),
        partial(_loss, longest),
        plan=certificate,
        seed=seed,
        options=Options(clipping=clipping, **options),
    ) as run:
        recorder = _Recorder(run, optimizer, layers)
        for _ in run.take(steps, show=False):
            recorder.drawn(np.unique(run.drawn.numpy() % units))
    return recorder.transcript()


def _loss(length: float, model: nn.Module, place: Tensor, size: Tensor) -> Tensor:
    """Of one row, whose gradient is ``size`` times ``length`` in its place of every layer."""
    return (model(place) * size[:, None]).sum() * length


class _Recorder:
    """Keeps the batches, the gradients that the optimizer gets, and the clip norms that are announced."""

    def __init__(
        self, run: Run, optimizer: torch.optim.Optimizer, layers: tuple[Layer, ...]
    ) -> None:
        self._run, self._layers = run, layers
        self._norms, self._rows = [run.clip_norm], list[NDArray[np.int64]]()
        self._seen = list[list[Stream]]()
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        optimizer.register_step_pre_hook(self._keep)
        optimizer.register_step_post_hook(self._keep_norm)

    def drawn(self, rows: NDArray[np.int64]) -> None:
        """The rows of a batch."""
        self._rows.append(rows)

    def _keep(self, *details: object) -> None:
        self._seen.append([p.grad.double().numpy().ravel().copy() for p in self._parameters])

    def _keep_norm(self, *details: object) -> None:
        self._norms.append(self._run.clip_norm)

    def transcript(self) -> Transcript:
        """All that was kept."""
        plan, norms = self._run.plan, np.array(self._norms)
        scale = norms[:-1, None] / plan.clip_norm  # moves with adaptive clipping only
        batch = plan.expected_batch
        streams = tuple(
            np.array(found) * batch / layer.bound / scale
            for found, layer in zip(zip(*self._seen, strict=True), self._layers, strict=True)
        )
        votes = None
        if has_votes(plan):  # a unit beyond the clip norm takes off, one within adds
            share = -np.diff(np.log(norms)) / _ADAPTIVE.rate - 0.5 + _ADAPTIVE.quantile
            votes = (-share * batch / VOTE)[:, None]
        return Transcript(streams, tuple(self._rows), votes)
