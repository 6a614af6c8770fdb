"""Projection on a ball around the start, as the analysed algorithms have it."""

from collections.abc import Iterable
from typing import Any, final

import torch
from torch import Tensor

from antiphon.checks import positive

__all__ = ["Ball"]


@final
class Ball:
    """The ball of radius R_* around where the parameters are now; a call projects them back on it.

    Can be hooked behind every step: ``optimizer.register_step_post_hook(ball)``.

    Args:
        parameters: All that are trained; their joint norm counts.
        radius: R_*.

    Attributes:
        active: How often a projection moved something. While it is 0, correlated noise cancels exactly.

    Guarantee:
        ‖W - W_0‖ <= radius up to rounding. Post-processing: it depends on public numbers and the noisy
        iterate only, so it costs no privacy.

    Example:
        >>> w = torch.zeros(2)
        >>> ball = Ball([w], radius=1.0)
        >>> _ = w.add_(torch.tensor([3.0, 4.0]))
        >>> ball()
        >>> [round(x, 6) for x in w.tolist()], ball.active
        ([0.6, 0.8], 1)
    """

    def __init__(self, parameters: Iterable[Tensor], radius: float) -> None:
        self.parameters = list(parameters)
        self.start = [parameter.detach().clone() for parameter in self.parameters]
        self.radius = positive("radius", radius)
        self.active = 0

    @property
    def distance(self) -> float:
        """‖W - W_0‖ of all parameters together."""
        moves = zip(self.parameters, self.start, strict=True)
        squares = [float((w.detach() - at).double().square().sum()) for w, at in moves]
        return sum(squares) ** 0.5

    @torch.no_grad()
    def __call__(self, *_: Any) -> None:
        """Moves the parameters to the nearest point of the ball, if they are outside."""
        distance = self.distance
        if distance <= self.radius:
            return
        self.active += 1
        for w, at in zip(self.parameters, self.start, strict=True):
            w.copy_(at + (w - at) * (self.radius / distance))
