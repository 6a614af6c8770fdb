"""A certificate that can be audited in a second, and a run of it."""

import torch
from torch import nn

from antiphon.certificate import certify
from antiphon.mechanisms import Independent
from antiphon.plan import Plan
from antiphon.sampling import FullBatch
from antiphon.training import make_private

DELTA = 1e-5
PLAN = Plan(n=40, sampling=FullBatch(), steps=2, mechanism=Independent(), noise_multiplier=1.6)
CERTIFICATE = certify(PLAN, DELTA)


def trained_run(place):
    """A finished run in ``place / "run"``, and its model in ``place / "model.safetensors"``."""
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(40, 3)
    with make_private(
        model, optimizer, (x, x[:, :1]), plan=CERTIFICATE, seed=1, checkpoint=place / "run"
    ) as run:
        for inputs, targets in run.batches(show=False):
            run.step(((model(inputs) - targets) ** 2).mean(1))
        run.export(place / "model.safetensors")
