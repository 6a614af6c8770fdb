"""Gradient descent and DP-GD on a two-layer KAN, as analysed and as corrected [KANGradientDescent26].

Full batch, both layers' updates from the same iterate, each layer projected on a ball of its own after the
noise. `descend` has the published noise, its correction, the least noise for the same algorithm, and
clipped examples; all run through the same loop, whose gradients come in closed form.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from antiphon.certificates import Certificate
from antiphon.checks import whole
from antiphon.errors import PlanError
from antiphon.numerics import Generator, add_noise, digest_of
from antiphon.participation import Relation
from antiphon.plans import Plan
from antiphon.training import Ball
from antiphon_papers.common.closed_form import ClosedForm
from antiphon_papers.common.kan_steps import Average, Callback, copy_of, take_steps
from antiphon_papers.common.two_layer_kan import TwoLayerKAN
from antiphon_papers.kan_gd.calibration import Calibration
from antiphon_papers.kan_gd.guarantee import Guarantee, Request, guarantee_of

__all__ = ["Descent", "descend", "gradient_descent", "noise_source"]

_SEEDED = (
    "noise comes from a seed: reproducible, not for release; the guarantee holds only for those who know "
    "neither the seed nor any other result drawn with it"
)
_RECORDED = (
    "training losses were recorded beside the run: they are statistics of the data, not covered by this "
    "guarantee and not for release"
)


@final
@dataclass(frozen=True, eq=False)
class Descent:
    """A finished run.

    Attributes:
        model: The trained network; the one given is left as it was.
        certificate: What is proved of ``model`` and of every iterate; None without noise.
        calibration: The noise, with what it claims; with "adaptive", that of the first step. None without
            noise.
        projections: How many steps ended on the ball of the first and of the second layer.
        nonprivate_losses: Training loss before each step, if it was asked for. It is not private: not for
            release, nor for choosing among private runs.
    """

    model: TwoLayerKAN
    certificate: Certificate | None
    calibration: Calibration | None
    projections: tuple[int, int]
    nonprivate_losses: tuple[float, ...]


def descend(
    model: TwoLayerKAN,
    X: Any,
    y: Any,
    *,
    step_size: float,
    steps: int,
    epsilon: float,
    delta: float,
    calibration: str = "clipped",
    radii: tuple[float, float] | None = None,
    clip_norm: float = 0.5,
    split: str = "equal",
    relation: Relation | str = Relation.REPLACE_ONE,
    n: int | None = None,
    seed: int | None = None,
    average: Average | None = None,
    history: bool = False,
    callback: Callback | None = None,
    background: ArrayLike | None = None,
) -> Descent:
    """Private full-batch gradient descent for labels -1 and +1.

    Args:
        model: Where to start; drawn without the data. Its trained layers are those that learn.
        X: Inputs, one row per example; scale them to [-1, 1] with public numbers.
        y: Labels, -1 or +1.
        step_size: η.
        steps: T, fixed in advance.
        epsilon: ε.
        delta: δ.
        calibration: "literal" (Theorem 4.14 as printed, which is false: see the certificate), "corrected"
            (with the constant and logarithm of its proof), "tight" (least noise for a second layer within
            its ball), "adaptive" (the same with the second layer measured before each step; no ball
            needed) or "clipped" (the least noise; no bound on the splines needed).
        radii: R₁ and R₂, of the balls around the start; infinite for none. "literal", "corrected" and, if
            the second layer learns, "tight" need a finite R₂.
        clip_norm: C, for "clipped".
        split: Of the noise of "tight" and "adaptive" between the layers: "equal" or "optimal".
        relation: Between neighbours: replace-one, or for "clipped" also add-remove and zero-out.
        n: Public number of examples, the divisor; None is that of X, which is then public.
        seed: Makes the noise reproducible, which the certificate says: not for release.
        average: Which iterates the result is the mean of: None for the last one, "tail" for the second
            half, "all".
        history: Record training losses, which are not private.
        callback: Called with each step's number, from 1, and the model after it. What it shows must come
            from the model or public data.
        background: A value that most inputs have and that is known without looking, such as that of the
            empty pixels of images; or one for each column, NaN for none. It makes steps faster.

    Guarantee:
        All iterates together, and what is computed from them, have the (ε, δ) of ``certificate``: that of
        the noise that was added, by exact Gaussian accounting, and not what a theorem claims for it. For
        "tight", "adaptive" and "clipped" that is ``epsilon``. Examples whose gradient is not finite count
        as zero.

    Example:
        >>> import torch
        >>> _ = torch.manual_seed(0)
        >>> X = torch.rand(500, 2) * 2 - 1
        >>> y = torch.where(X[:, 0] > X[:, 1] ** 2, 1.0, -1.0)
        >>> found = descend(TwoLayerKAN(2, 8, train="both"), X, y, step_size=8.0, steps=50,
        ...                 epsilon=2.0, delta=1e-6, seed=0)
        >>> round(found.certificate.epsilon, 9), bool(((found.model(X) * y) > 0).float().mean() > 0.8)
        (2.0, True)
    """
    private = copy_of(model)
    form = ClosedForm(private, X, y, background=background)
    request = Request(
        calibration,
        epsilon,
        delta,
        form.n if n is None else whole("n", n),
        whole("steps", steps),
        _radii(radii),
        clip_norm,
        split,
        relation,
    )
    guarantee = guarantee_of(private, request)
    generator = Generator.secure() if seed is None else Generator.seeded(seed)
    what = (guarantee.certificate.plan, step_size, request.radii)
    noise = noise_source(generator, *what, X, y, private)
    loop = _Loop(form, request.n, request.radii, guarantee, noise, history)
    loop.run(request.steps, step_size, average, callback)
    lines = (_SEEDED,) * (seed is not None) + (_RECORDED,) * history
    known = guarantee.certificate
    certificate = replace(known, assumptions=(*known.assumptions, *lines))
    return loop.result(certificate, guarantee.calibration)


def noise_source(
    generator: Generator,
    plan: Plan,
    step_size: float,
    radii: tuple[float, float],
    X: Any,
    y: Any,
    model: TwoLayerKAN,
) -> Generator:
    """The noise of one run and of no other: one seed in several would put the same on other gradients."""
    what = digest_of(plan.hash, step_size, radii, X, y, *model.parameters())
    return generator.spawn(f"noise {what}")


def gradient_descent(
    model: TwoLayerKAN,
    X: Any,
    y: Any,
    *,
    step_size: float,
    steps: int,
    radii: tuple[float, float] | None = None,
    average: Average | None = None,
    history: bool = False,
    callback: Callback | None = None,
    background: ArrayLike | None = None,
) -> Descent:
    """The same without noise and without a guarantee: for public data, and to compare with.

    Args:
        model: Where to start.
        X: Inputs, one row per example.
        y: Labels, -1 or +1.
        step_size: η.
        steps: T.
        radii: As for `descend`.
        average: As for `descend`.
        history: Record training losses.
        callback: As for `descend`.
        background: As for `descend`.

    Guarantee:
        None: ``certificate`` is None.

    Example:
        >>> import torch
        >>> X = torch.linspace(-1, 1, 50)[:, None]
        >>> found = gradient_descent(TwoLayerKAN(1, 8, train="both"), X, X[:, 0].sign(), step_size=2.0,
        ...                          steps=20, history=True)
        >>> found.nonprivate_losses[-1] < found.nonprivate_losses[0]
        True
    """
    form = ClosedForm(copy_of(model), X, y, background=background)
    loop = _Loop(form, form.n, _radii(radii), None, None, history)
    loop.run(whole("steps", steps), step_size, average, callback)
    return loop.result(None, None)


class _Loop:
    """The steps of a run, and what they leave behind."""

    def __init__(
        self,
        form: ClosedForm,
        n: int,
        radii: tuple[float, float],
        guarantee: Guarantee | None,
        generator: Generator | None,
        history: bool,
    ) -> None:
        self._form, self._n, self._history = form, n, history
        self._guarantee, self._generator = guarantee, generator
        layers = (form.model.first.coef, form.model.second.coef)
        self._balls = [
            Ball([coef], radius) if radius < math.inf else None
            for coef, radius in zip(layers, radii, strict=True)
        ]
        self._losses: list[float] = []

    def run(
        self, steps: int, step_size: float, average: Average | None, callback: Callback | None
    ) -> None:
        """All steps; then the model holds the last iterate, or the mean of some."""
        take_steps(
            self._form.model,
            self._direction,
            steps=steps,
            step_size=step_size,
            balls=[ball for ball in self._balls if ball is not None],
            average=average,
            callback=callback,
        )

    def _direction(self, k: int) -> list[Tensor]:
        """The mean gradient of all trained layers at the present iterate, with the noise of step k."""
        guarantee = self._guarantee
        clip_norm = math.inf if guarantee is None else guarantee.clip_norm
        sums = self._form.sums(clip_norm=clip_norm)
        if self._history:
            self._losses.append(float(sums.losses.mean()))
        means = [part / self._n for part in (sums.first, sums.second) if part is not None]
        return self._noisy(means, k)

    def _noisy(self, means: list[Tensor], k: int) -> list[Tensor]:
        if self._guarantee is None or self._generator is None:
            return means
        noise = self._guarantee.noise(self._form.model)
        z = self._generator.normal([torch.empty_like(g, dtype=torch.float64) for g in means], k)
        for g, x, scale in zip(means, z, noise, strict=True):
            add_noise(g, x, scale, g)
        return means

    def result(self, certificate: Certificate | None, calibration: Calibration | None) -> Descent:
        """What the steps left, with what is proved of it."""
        first, second = (0 if ball is None else ball.active for ball in self._balls)
        model = self._form.model
        return Descent(model, certificate, calibration, (first, second), tuple(self._losses))


def _radii(radii: tuple[float, float] | None) -> tuple[float, float]:
    if radii is None:
        return math.inf, math.inf
    if not isinstance(radii, tuple | list) or len(radii) != 2 or not all(r > 0 for r in radii):
        raise PlanError(f"radii are two positive numbers, R1 and R2 (or infinity); got {radii}.")
    return float(radii[0]), float(radii[1])
