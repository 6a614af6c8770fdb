"""A certificate that can be audited in a second, and a run of it."""

import torch
from torch import nn

from antiphon.certificates import certify
from antiphon.mechanisms import Independent
from antiphon.plans import FullBatch, Plan
from antiphon.training.run import Options, make_private

DELTA = 1e-5
PLAN = Plan(n=40, sampling=FullBatch(), steps=2, mechanism=Independent(), noise_multiplier=1.6)
CERTIFICATE = certify(PLAN, DELTA)


def trained_run(place):
    """A finished run in ``place / "run"``, and its model in ``place / "model.safetensors"``."""
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(40, 3)
    with make_private(
        model, optimizer, (x, x[:, :1]), loss, plan=CERTIFICATE, seed=1,
        options=Options(checkpoint=place / "run"),
    ) as run:  # fmt: skip
        run.train(show=False)
        run.export(place / "model.safetensors")


def loss(model, x, y):
    return ((model(x) - y) ** 2).mean()
