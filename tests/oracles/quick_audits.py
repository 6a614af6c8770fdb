"""Trainers that release what a plan would, drawn by NumPy: thousands of runs in a second."""

import numpy as np

from antiphon.audits import Transcript
from antiphon.audits.lookup import layers_of


def simulated(scale=1.0):
    """A trainer of independent coordinates, with this share of the plan's noise."""

    def run(certificate, instance, seed):
        plan, rng = certificate.plan, np.random.default_rng(seed)
        decoder = plan.known_mechanism().decoder(plan.steps)
        streams = []
        for layer in layers_of(plan):
            noise = decoder @ rng.normal(size=(plan.steps, instance.places))
            streams.append(layer.noise * scale * noise)
            np.add.at(streams[-1], (slice(None), instance.place), instance.size)
        rows = tuple(np.arange(len(instance.place)) for _ in range(plan.steps))  # full batches
        return Transcript(tuple(streams), rows)

    return run
