"""Trainers that release what a plan would, drawn by NumPy: thousands of runs in a second."""

import numpy as np

from antiphon.auditing import Transcript


def simulated(scale=1.0):
    """A trainer of independent coordinates, with this share of the plan's noise."""

    def run(certificate, instance, seed):
        plan, rng = certificate.plan, np.random.default_rng(seed)
        decoder = plan.known_mechanism().decoder(plan.steps)
        noise = decoder @ rng.normal(size=(plan.steps, instance.places))
        stream = plan.known_noise() * scale * noise
        rows = tuple(np.arange(len(instance.place)) for _ in range(plan.steps))  # full batches
        np.add.at(stream, (slice(None), instance.place), instance.size)
        return Transcript((stream,), rows)

    return run
