"""Trainers that break a rule each, and what catches them.

``python tests/oracles/mutants.py`` prints the table of docs/results/audit.md.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

import antiphon as ap
from antiphon.audits import Instance, Trainer, Transcript, one_run, play, train, whiteness
from antiphon.certificates import Certificate
from antiphon.mechanisms import Independent, LambdaCGD
from antiphon.numerics import Generator
from antiphon.plans import Block
from antiphon.training.gradients import Flat, Piece
from antiphon.training.gradients.batched import Batched
from antiphon.training.gradients.factors import Dense
from antiphon.training.run import VOTE, VOTES, Noise
from antiphon.training.run.private_sum import PrivateSum

DELTA = 1e-5
STRICT = 0.999


def certified(epsilon: float, delta: float = DELTA, **plan: Any) -> Certificate:
    plan = {"n": 4, "sampling": ap.FullBatch(), "steps": 1, "mechanism": Independent()} | plan
    return ap.certify(ap.calibrate(ap.Plan(**plan), epsilon, delta), delta)


def with_plan(**changes: Any) -> Trainer:
    """A trainer whose plan is not the one that is certified."""

    def run(certificate: Certificate, instance: Instance, seed: int) -> Transcript:
        other = replace(certificate, plan=replace(certificate.plan, **changes))
        return train(other, instance, seed)

    return run


def with_patches(*patches: Callable[[], Any]) -> Trainer:
    def run(certificate: Certificate, instance: Instance, seed: int) -> Transcript:
        with ExitStack() as stack:
            for make in patches:
                stack.enter_context(make())
            return train(certificate, instance, seed)

    return run


# The broken parts.


def whole_weights(self: Any, squared: Any, clip_norm: float) -> dict[str, torch.Tensor]:
    return {layer: torch.ones_like(norms) for layer, norms in squared.items()}


def each_layer_by_itself(self: Any, squared: Any, clip_norm: float) -> dict[str, torch.Tensor]:
    return {layer: (clip_norm / norms.sqrt()).clamp(max=1.0) for layer, norms in squared.items()}


def max_for_min(self: Any, squared: Any, clip_norm: float) -> dict[str, torch.Tensor]:
    total = torch.stack(list(squared.values())).sum(0).sqrt()
    weight = (clip_norm / total).nan_to_num(1.0, posinf=1.0).clamp(min=1.0)
    return dict.fromkeys(squared, weight)


real_release = PrivateSum.release


def clip_the_mean(self: Any, step: int) -> None:
    mean = self.total.value()  # the sum itself, as the batch is one part
    mean.mul_(min(1.0, self.clip_norm / max(float(mean.norm()), 1e-12)))
    real_release(self, step)


def divide_by_the_batch(self: Any, step: int) -> None:
    real_release(self, step)
    for parameter in self.total.parameters:
        parameter.grad.mul_(self._plan.expected_batch / max(1, self.drawn))


def count_the_batch(self: Any, piece: Any) -> None:
    self.drawn = next(iter(piece.factors.values())).rows
    real_add(self, piece)


real_add = PrivateSum.add
real_scales, real_draw = PrivateSum._scales, Noise.draw


def mixed(self: Any, step: int, ids: Any, examples: Any, units: Any = None) -> Any:
    """Gives every example the mean gradient of its batch, as a batch statistic would."""
    for piece in real_pieces(self, step, ids, examples, units):
        dense = {p: factor.dense() for p, factor in piece.factors.items()}
        factors = {p: Dense(rows.mean(0).expand_as(rows)) for p, rows in dense.items()}
        yield Piece(factors, piece.units)


real_pieces = Batched.pieces


def quiet_votes(self: Any) -> Any:
    gradient, (part, _) = real_scales(self)
    return [gradient, (part, 0.0)]


def no_noise(self: Any, memory: Any = None) -> torch.Tensor:
    return torch.zeros_like(real_draw(self, memory))


class Again(Generator):  # type: ignore[misc]
    """A generator that begins anew after some steps."""

    def __init__(self, generator: Generator, steps: int) -> None:
        super().__init__(generator.key, generator.is_secure)
        object.__setattr__(self, "_steps", steps)

    def normal_(self, out: Any, step: int) -> Any:
        return Generator.normal_(self, out, step % self._steps)


real_init, real_restore = Noise.__init__, Noise.restore


def same_noise_every_epoch(
    self: Any, mechanism: Any, generator: Any, like: Any, steps: int
) -> None:
    real_init(self, mechanism, generator, like, steps)
    self._generator = Again(generator, steps // 2)


def forget_the_counter(self: Any, step: int, kept: Any) -> None:
    real_restore(self, step, kept)
    if step:
        self._generator = Again(self._generator, step)


def resumed(certificate: Certificate, instance: Instance, seed: int) -> Transcript:
    """A run that stops half way, and goes on from its checkpoint."""
    half = certificate.plan.steps // 2
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "run"
        first = train(
            certificate, instance, seed, checkpoint=place, checkpoint_every=half, steps=half
        )
        second = train(
            certificate, instance, seed, checkpoint=place, checkpoint_every=half, resume=True
        )
    streams = tuple(
        torch.cat([torch.from_numpy(a), torch.from_numpy(b)]).numpy()
        for a, b in zip(first.streams, second.streams, strict=True)
    )
    return Transcript(streams, first.rows + second.rows)


def resumed_without_counter(certificate: Certificate, instance: Instance, seed: int) -> Transcript:
    with patch.object(Noise, "restore", forget_the_counter):
        return resumed(certificate, instance, seed)


@dataclass(frozen=True)
class Mutant:
    """A broken trainer.

    Attributes:
        rule: What it breaks.
        owner: The audit that catches it: "one-run", "two-world" or "noise".
        claim: The certificate that it would show.
        trainer: What it does.
        honest: The same without the mistake, for the same claim; None where the claim is the mistake.
        runs: Of the two-world audit.
        canaries: Of the one-run audit.
    """

    rule: str
    owner: str
    claim: Callable[[], Certificate]
    trainer: Trainer
    honest: Trainer | None = train
    runs: int = 1
    canaries: int = 20_000

    def is_caught(self, trainer: Trainer, seed: int = 0) -> bool:
        claim = self.claim()
        match self.owner:
            case "one-run":
                return one_run(claim, verdict_confidence=STRICT, seed=seed, trainer=trainer,
                               canaries=self.canaries).is_violation  # fmt: skip
            case "two-world":
                worlds = play(claim, self.runs, seed=seed, trainer=trainer)
                return worlds.audit(verdict_confidence=STRICT).is_violation
            case _:
                found = whiteness(claim, seed=seed, trainer=trainer, places=20_000)
                return found.p_value < 1 - STRICT


def without_the_factor_2() -> Certificate:
    claim = certified(8.0, relation="zero-out")
    return replace(claim, plan=replace(claim.plan, relation="replace-one"))


def as_if_poisson() -> Certificate:
    plan = ap.Plan(n=32, sampling=ap.Poisson(1 / 32), steps=32, mechanism=Independent(),
                   noise_multiplier=0.5)  # fmt: skip
    claim = ap.certify(plan, DELTA)
    return replace(claim, plan=replace(plan, sampling=ap.FixedSize(1), relation="zero-out"))


def with_votes() -> Certificate:
    recipe = certified(8.0, steps=32).plan
    gradient = Block("gradient", 1.0, recipe.known_noise() / 0.99**0.5)
    votes = Block(VOTES, VOTE, recipe.known_noise() / 0.01**0.5)
    return ap.certify(replace(recipe, blocks=(gradient, votes)), DELTA)


def full(steps: int, epsilon: float = 8.0, lam: float = 0.9) -> Callable[[], Certificate]:
    return lambda: certified(epsilon, steps=steps, mechanism=LambdaCGD(lam))


def noise_of(share: float) -> Trainer:
    def run(certificate: Certificate, instance: Instance, seed: int) -> Transcript:
        other = certificate.plan.with_noise(share * certificate.plan.known_noise())
        return train(replace(certificate, plan=other), instance, seed)

    return run


def one_more_epoch(certificate: Certificate, instance: Instance, seed: int) -> Transcript:
    return with_plan(steps=2 * certificate.plan.steps)(certificate, instance, seed)


def poisson() -> Certificate:
    return certified(8.0, n=40, sampling=ap.Poisson(0.1), steps=8)


MUTANTS = {
    m.rule: m
    for m in [
        Mutant("noise 10 % too small", "two-world", full(1), noise_of(0.9), runs=10_000),
        Mutant(
            "λ = 0.95 certified as 0.9", "one-run", full(256, 2.0),
            with_plan(mechanism=LambdaCGD(0.95)), canaries=50_000,
        ),
        Mutant(
            "clipped after averaging", "two-world", full(1),
            with_patches(
                lambda: patch.object(Flat, "weights", whole_weights),
                lambda: patch.object(PrivateSum, "release", clip_the_mean),
            ), runs=250,
        ),
        Mutant(
            "no factor 2 for replace-one", "one-run", without_the_factor_2, train, None,
            canaries=100_000,
        ),
        Mutant("fixed-size batches certified as Poisson", "two-world", as_if_poisson, train, None, 1000),
        Mutant("counter lost at resume", "noise", full(8), resumed_without_counter, resumed),
        Mutant(
            "the same noise in every epoch", "noise", full(8),
            with_patches(lambda: patch.object(Noise, "__init__", same_noise_every_epoch)),
        ),
        Mutant(
            "divided by the drawn batch", "noise", poisson,
            with_patches(
                lambda: patch.object(PrivateSum, "add", count_the_batch),
                lambda: patch.object(PrivateSum, "drawn", 0, create=True),
                lambda: patch.object(PrivateSum, "release", divide_by_the_batch),
            ),
        ),
        Mutant(
            "max in place of min", "one-run", full(1),
            with_patches(lambda: patch.object(Flat, "weights", max_for_min)),
        ),
        Mutant(
            "examples mixed before they are clipped", "two-world", full(1),
            with_patches(lambda: patch.object(Batched, "pieces", mixed)), runs=250,
        ),
        Mutant(
            "each layer clipped by the whole clip norm", "two-world", full(1),
            with_patches(lambda: patch.object(Flat, "weights", each_layer_by_itself)), runs=1000,
        ),
        Mutant(
            "every row in every batch, certified as one in ten", "two-world", poisson,
            with_plan(sampling=ap.Poisson(1.0)), runs=500,
        ),
        Mutant(
            "the rank with the noise adds none", "one-run", full(1),
            with_patches(lambda: patch.object(Noise, "draw", no_noise)),
        ),
        Mutant(
            "clip norm without noise", "noise", with_votes,
            with_patches(lambda: patch.object(PrivateSum, "_scales", quiet_votes)),
        ),
        Mutant(
            "one epoch more than planned", "one-run", full(8), one_more_epoch, canaries=100_000
        ),
    ]
}  # fmt: skip


def main() -> None:
    print("| broken rule | caught by | training runs | seconds | honest trainer |")
    print("|---|---|---|---|---|")
    for mutant in MUTANTS.values():
        began = time.perf_counter()
        caught = mutant.is_caught(mutant.trainer)
        seconds = time.perf_counter() - began
        passes = "" if mutant.honest is None else not mutant.is_caught(mutant.honest)
        verdict = mutant.owner if caught else f"NOT by {mutant.owner}"
        print(
            f"| {mutant.rule} | {verdict} | {mutant.runs} | {seconds:.1f} | {passes} |", flush=True
        )


if __name__ == "__main__":
    sys.exit(main())
