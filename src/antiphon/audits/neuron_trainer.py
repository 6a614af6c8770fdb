"""Real runs of one private ReLU neuron on chosen directions, as seen by who reads every iterate.

A row's direction is ± a long vector in a place of its own, whatever the weights: x has two equal entries,
the weights start at the clip norm and hardly move, and the label is so far off that it is clipped.
Two entries, so that an audit sees the layers it expects (`antiphon.audits.lookup`).
"""

import math
from dataclasses import replace
from typing import Literal

import numpy as np

from antiphon.audits.instance import Instance
from antiphon.audits.lookup import LONG
from antiphon.audits.trainer import Transcript
from antiphon.certificates import Certificate
from antiphon.errors import PlanError, UnsupportedError
from antiphon.numerics import Generator
from antiphon.plans import Draws, Plan
from antiphon.training.neuron import Descent

__all__ = ["train_neuron"]

_STEP = 1e-6  # what one clip norm moves the weights by, in clip norms: labels stay far off
_MOST = 2e7  # numbers in the table of records


def train_neuron(
    certificate: Certificate,
    instance: Instance,
    seed: int,
    *,
    direction: Literal["glmtron", "sgd"] = "glmtron",
    long: float = LONG,
) -> Transcript:
    """A run of `antiphon.training.neuron` on the instance: a trainer for `two_world` and `one_run`.

    Args:
        certificate: Of the plan that runs.
        instance: Its data.
        seed: Of noise and batches.
        direction: "glmtron" or "sgd".
        long: Norm of a canary's direction before clipping, in clip norms.

    Raises:
        UnsupportedError: If the plan has blocks, or there are more canaries than a dense table holds.
    """
    plan = _plan(certificate.plan, len(instance.place))
    s, places = plan.clip_norm, instance.places
    if 2.0 * places * len(instance.place) > _MOST:
        raise UnsupportedError(
            f"a neuron reads dense records: {len(instance.place)} of them for {places} canaries are too "
            "many. Ask for fewer canaries, or audit by two_world."
        )
    if not long > 1:
        raise PlanError(
            f"a canary's direction must be longer than the clip norm; got {long} of it."
        )
    half = math.sqrt(0.5)
    X = np.zeros((len(instance.place), 2 * places))
    rows = np.flatnonzero(instance.size)  # a ghost is all zeros: its direction is, too
    for part in (0, places):
        X[rows, part + instance.place[rows]] = half
    y = X.sum(1) * s - long * s * instance.size
    generator = Generator.seeded(seed)
    run = Descent(
        X,
        y,
        plan,
        learning_rate=_STEP * plan.expected_batch,
        generator=generator,
        direction=direction,
        start=np.full(2 * places, s),
    )
    seen = [run.weights]
    for _ in range(plan.steps):
        run.advance(1)
        seen.append(run.weights)
    moved = -np.diff(np.array(seen), axis=0) / (_STEP * half * s)
    draws = Draws(plan.sampling, plan.n, generator)
    batches = tuple(draws.rows(step).numpy() for step in range(plan.steps))
    return Transcript((moved[:, :places], moved[:, places:]), batches)


def _plan(plan: Plan, rows: int) -> Plan:
    """The plan for as many rows as there are: n is nominal where each record has a coin of its own."""
    if plan.blocks:
        raise UnsupportedError("a neuron is clipped as a whole; the plan has blocks.")
    return replace(plan, n=rows) if plan.sampling.own_coin else plan
