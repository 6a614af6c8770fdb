"""Descent on a two-layer KAN, step by step: what the algorithms of both papers have in common."""

import copy
from collections.abc import Callable, Iterable
from typing import Literal

import torch
from torch import Tensor

from antiphon.checks import positive
from antiphon.errors import PlanError
from antiphon.progress import bar
from antiphon.training import Ball
from antiphon_papers.common.two_layer_kan import TwoLayerKAN

__all__ = ["START", "Average", "Callback", "copy_of", "take_steps", "trained_layers"]

START = "the model, as it was at the start, holds nothing of the data"

Average = Literal["tail", "all"]
Callback = Callable[[int, TwoLayerKAN], object]


def copy_of(model: TwoLayerKAN) -> TwoLayerKAN:
    """A copy to be trained, if one of its layers learns at all."""
    if not trained_layers(model):
        raise PlanError(
            "no layer of the model is trained. Make it with train='first', 'second' or 'both'."
        )
    return copy.deepcopy(model)


def trained_layers(model: TwoLayerKAN) -> list[Tensor]:
    """Coefficients of the layers that learn, the first one first."""
    return [coef for coef in (model.first.coef, model.second.coef) if coef.requires_grad]


@torch.no_grad()
def take_steps(
    model: TwoLayerKAN,
    direction: Callable[[int], list[Tensor]],
    *,
    steps: int,
    step_size: float,
    balls: Iterable[Ball] = (),
    average: Average | None = None,
    callback: Callback | None = None,
) -> None:
    """All steps; then the model holds the last iterate, or the mean of some.

    Args:
        model: Is moved.
        direction: From the number of a step, from 0, to what each trained layer moves against.
        steps: How many.
        step_size: η.
        balls: What the layers are projected on after each step.
        average: None for the last iterate, "tail" for the mean of the second half, "all".
        callback: Called after each step with its number, from 1, and the model.
    """
    if average not in (None, "tail", "all"):
        raise PlanError(f"average is None, 'tail' or 'all'; got {average!r}.")
    first = {None: steps, "tail": steps // 2 + 1, "all": 1}[average]
    layers, eta, around = trained_layers(model), positive("step_size", step_size), tuple(balls)
    total = [torch.zeros_like(coef, dtype=torch.float64) for coef in layers]
    with bar("Descending") as update:
        for k in range(1, steps + 1):
            for coef, part in zip(layers, direction(k - 1), strict=True):
                coef.sub_(part, alpha=eta)
            for ball in around:
                ball()
            if k >= first:
                for mean, coef in zip(total, layers, strict=True):
                    mean.add_(coef)
            if callback is not None:
                callback(k, model)
            update(k, steps)
    if average is not None:
        for mean, coef in zip(total, layers, strict=True):
            coef.copy_(mean / (steps - first + 1))
