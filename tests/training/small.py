"""Small runs for the tests of training."""

import torch
from torch import nn

import antiphon as ap

N = 60


def data(n=N, features=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, features, generator=generator)
    return x, (x[:, 0] + 0.3 * x[:, 1] > 0).long()


def network(features=5, hidden=7, classes=2, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, classes))


def private(model=None, dataset=None, optimizer=None, **options):
    """A quick run: ten steps of Poisson batches with independent noise, unless told otherwise."""
    model = network() if model is None else model
    dataset = data() if dataset is None else dataset
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    defaults = {"noise_multiplier": 1.0, "delta": 1e-5, "mechanism": "independent", "seed": 1}
    if not {"epochs", "steps", "plan"} & set(options):
        defaults["steps"] = 10
    if not {"plan", "sampling"} & set(options):
        defaults["batch_size"] = 12
    if "epsilon" in options or "plan" in options:
        defaults.pop("noise_multiplier")
    return ap.make_private(model, optimizer, dataset, **(defaults | options))


def losses(model, x, y):
    return nn.functional.cross_entropy(model(x), y, reduction="none")


def train(run, steps=None, mean=False):
    for x, y in run.batches(steps):
        loss = losses(run.model, x, y)
        run.step(loss.mean() if mean else loss)
    return run


def weights(run):
    return torch.cat([p.detach().flatten() for p in run.model.parameters()])
