"""Loops with ``loss.backward()`` and ``optimizer.step()``, for the tests of `PrivacyEngine`."""

import warnings

import torch
from oracles.small_models import data, network
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import antiphon as ap


def loader(rows=None, **options):
    rows = TensorDataset(*data()) if rows is None else rows
    return DataLoader(rows, **({"batch_size": 12, "shuffle": True} | options))


def engine_run(model=None, optimizer=None, data_loader=None, engine=None, **options):
    """Engine, model, optimizer and loader, and the criterion before the loader if there is one."""
    model = network() if model is None else model
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    engine = engine or ap.PrivacyEngine()
    common = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "steps": 10, "seed": 1, "delta": 1e-5}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the loader's batches are replaced")
        parts = engine.make_private(
            module=model,
            optimizer=optimizer,
            data_loader=data_loader or loader(),
            **(common | options),
        )
    return engine, *parts


def opacus_loop(model, optimizer, batches, epochs=2, criterion=nn.functional.cross_entropy):
    for _ in range(epochs):
        for x, y in batches:
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()


def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def clipped_sum(model, rows, body, **options):
    """The sum of clipped gradients of one full batch, in clip norms, before any noise.

    ``body(model, *criterion, batch)`` is what the loop does before ``optimizer.step()``.
    """
    engine, model, _, *criterion, batches = engine_run(
        model, data_loader=loader(rows, **options.pop("loader", {})), sampling="full-batch", steps=1,
        **options,
    )  # fmt: skip
    for batch in batches:
        body(model, *criterion, batch)
        engine.run.listener()
        found = engine.run._total.total.value().double().clone() * engine.run.plan.expected_batch
        engine.run.detach()
        return found
