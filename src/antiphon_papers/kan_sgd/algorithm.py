"""DP-SGD with correlated noise on a two-layer KAN, as analysed [KANCorrelated26, Algorithm 1].

T iterates from T - 1 noisy steps: clipped examples of a batch are summed in closed form, get the next row
of correlated noise, are divided by the expected batch, and the step ends on a ball around the start.

    ======================  ============================================================================
    special case            is
    ======================  ============================================================================
    independent noise       ``mechanism="independent"``, or ``LambdaCGD(0.0)``: the same to the last bit
    fixed-size batches      ``sampling="fixed-size"``: the paper's, with an accountant that holds for it
    full batch              ``sampling="full-batch"``
    no projection           ``radius=None``
    no noise, no clipping   `stochastic_gradient_descent`
    ======================  ============================================================================
"""

import math
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from antiphon.certificates import SEEDED, Certificate
from antiphon.checks import positive, whole
from antiphon.errors import PlanError
from antiphon.mechanisms import AbstractMechanism
from antiphon.numerics import Generator, add_noise
from antiphon.participation import Relation
from antiphon.plans import AbstractSampling, Draws, FullBatch, Plan, sampling_of
from antiphon.training import Ball
from antiphon.training.gradients import Flat
from antiphon.training.run import Noise, check_size, make_recipe
from antiphon_papers.common.closed_form import ClosedForm
from antiphon_papers.common.kan_steps import (
    START,
    Average,
    Callback,
    copy_of,
    take_steps,
    trained_layers,
)
from antiphon_papers.common.two_layer_kan import TwoLayerKAN

__all__ = ["Trajectory", "descend", "stochastic_gradient_descent"]


@final
@dataclass(frozen=True, eq=False)
class Trajectory:
    """A finished run.

    Attributes:
        model: The trained network; the one given is left as it was.
        certificate: What is proved of ``model`` and of all iterates together; None without noise.
        iterates: T, the start among them.
        noise_multiplier: κ; 0 without noise.
        projections: How many steps ended on the ball. While it is 0, correlated noise cancels exactly.
    """

    model: TwoLayerKAN
    certificate: Certificate | None
    iterates: int
    noise_multiplier: float
    projections: int


def descend(
    model: TwoLayerKAN,
    X: Any,
    y: Any,
    *,
    iterates: int,
    step_size: float,
    batch_size: int | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    noise_multiplier: float | None = None,
    mechanism: str | AbstractMechanism = "auto",
    clip_norm: float = 0.5,
    radius: float | None = None,
    sampling: str | AbstractSampling = "poisson",
    relation: Relation | str | None = None,
    n: int | None = None,
    seed: int | None = None,
    average: Average | None = None,
    callback: Callback | None = None,
    background: ArrayLike | None = None,
) -> Trajectory:
    """Private SGD with correlated noise, for labels -1 and +1.

    Args:
        model: Where to start; drawn without the data. Its trained layers are those that learn; the paper
            trains the first one.
        X: Inputs, one row per example; scale them to [-1, 1] with public numbers.
        y: Labels, -1 or +1.
        iterates: T, fixed in advance: one more than the noisy steps, which is what is accounted for.
        step_size: η.
        batch_size: B, the expected number of examples in a batch, and the divisor whatever is drawn.
        epsilon: ε to be proved; the least noise for it is found. Or give ``noise_multiplier``.
        delta: δ; unless given, n to the power of -1.1.
        noise_multiplier: κ.
        mechanism: `LambdaCGD(λ)`; "auto" for the correlation with the least certified noise × error, which
            takes minutes; "independent"; or any other, as for `antiphon.make_private`.
        clip_norm: C.
        radius: R_*, of the ball around the start of all trained layers together; None or infinite for none.
        sampling: "poisson", "fixed-size", "full-batch" and the others of `antiphon.make_private`.
        relation: Between neighbours; unless given, add-remove, and zero-out where batches go by row.
        n: Public nominal number of examples; unless given, that of X, which is then public.
        seed: Makes noise and batches reproducible, and shared by runs that have the same one, which the
            certificate says: not for release.
        average: Which iterates after the start the result is the mean of: None for the last one, "tail" for
            the second half, "all". The theorems speak of the mean *risk* of all iterates, not of this.
        callback: Called with each step's number, from 1, and the model after it. What it shows must come
            from the model or public data.
        background: A value that most inputs have and that is known without looking, such as that of the
            empty pixels of images; or one for each column, NaN for none. It makes steps faster.

    Guarantee:
        All iterates together, and what is computed from them, have the (ε, δ) of ``certificate``, which is
        proved for the batches as they are drawn, the relation, and the noise as it is correlated.
        Projections depend on released iterates and the start alone. Examples whose gradient is not finite
        count as zero.

    Example:
        >>> from antiphon.mechanisms import LambdaCGD
        >>> _ = torch.manual_seed(0)
        >>> X = torch.rand(500, 2) * 2 - 1
        >>> y = torch.where(X[:, 0] > X[:, 1] ** 2, 1.0, -1.0)
        >>> found = descend(TwoLayerKAN(2, 16), X, y, iterates=101, step_size=4.0, batch_size=100,
        ...                 epsilon=4.0, delta=1e-4, mechanism=LambdaCGD(0.5), sampling="shuffled",
        ...                 radius=20.0, seed=0)
        >>> found.certificate.plan.steps, found.certificate.epsilon <= 4.0
        (100, True)
        >>> bool(((found.model(X) * y) > 0).float().mean() > 0.75)
        True
    """
    if (epsilon is None) == (noise_multiplier is None):
        raise PlanError(
            "give either epsilon, for which the least noise is found, or noise_multiplier; got "
            f"epsilon={epsilon} and noise_multiplier={noise_multiplier}."
        )
    private = copy_of(model)
    form = ClosedForm(private, X, y, background=background)
    recipe = make_recipe(
        n=form.n if n is None else n,
        unit="example",
        epsilon=epsilon,
        delta=delta,
        noise_multiplier=noise_multiplier,
        epochs=None,
        steps=_steps(iterates),
        batch_size=batch_size,
        clip_norm=clip_norm,
        mechanism=mechanism,
        sampling=sampling,
        relation=None if relation is None else str(Relation.of(relation)),
        extra=(),
        clipping=Flat(),
        tight=False,
    )
    check_size(recipe.plan, form.n)
    positive("step_size", step_size)  # before minutes of accounting
    plan, certificate = recipe.certified()
    source = _generator(seed)
    direction = _Direction(form, plan.sampling, source, plan.expected_batch, plan.clip_norm, plan)
    projections = _run(private, direction, plan.steps, step_size, radius, average, callback)
    lines = (START, SEEDED) if seed is not None else (START,)
    certificate = replace(certificate, assumptions=(*certificate.assumptions, *lines))
    return Trajectory(private, certificate, iterates, plan.known_noise(), projections)


def stochastic_gradient_descent(
    model: TwoLayerKAN,
    X: Any,
    y: Any,
    *,
    iterates: int,
    step_size: float,
    batch_size: int | None = None,
    clip_norm: float = math.inf,
    radius: float | None = None,
    sampling: str | AbstractSampling = "poisson",
    seed: int | None = None,
    average: Average | None = None,
    callback: Callback | None = None,
    background: ArrayLike | None = None,
) -> Trajectory:
    """The same without noise and without a guarantee: for public data, and to compare with.

    Args:
        model: Where to start.
        X: Inputs, one row per example.
        y: Labels, -1 or +1.
        iterates: T.
        step_size: η.
        batch_size: B.
        clip_norm: C; infinite for plain SGD.
        radius: As for `descend`.
        sampling: As for `descend`.
        seed: Of the batches.
        average: As for `descend`.
        callback: As for `descend`.
        background: As for `descend`.

    Guarantee:
        None: ``certificate`` is None.

    Example:
        >>> X = torch.linspace(-1, 1, 50)[:, None]
        >>> found = stochastic_gradient_descent(TwoLayerKAN(1, 8), X, X[:, 0].sign(), iterates=51,
        ...                                     step_size=2.0, batch_size=10, seed=0)
        >>> found.certificate is None, found.iterates
        (True, 51)
    """
    trained, steps = copy_of(model), _steps(iterates)
    form = ClosedForm(trained, X, y, background=background)
    drawn = sampling_of(sampling, form.n, batch_size)
    drawn.check(form.n, steps)
    direction = _Direction(
        form, drawn, _generator(seed), drawn.expected_batch(form.n), clip_norm, None
    )
    projections = _run(trained, direction, steps, step_size, radius, average, callback)
    return Trajectory(trained, None, iterates, 0.0, projections)


class _Direction:
    """Mean clipped gradients of one batch after another, with their noise where there is a plan."""

    def __init__(
        self,
        form: ClosedForm,
        sampling: AbstractSampling,
        generator: Generator,
        divisor: float,
        clip_norm: float,
        plan: Plan | None,
    ) -> None:
        self._form, self._divisor, self._clip_norm = form, divisor, clip_norm
        self._draws = None
        if not isinstance(sampling, FullBatch):
            self._draws = Draws(sampling, form.n, generator.spawn("sampling"))
        self._layers = trained_layers(form.model)
        self._noise, self._scale = None, 0.0
        self._row: Tensor | None = None  # of the last step: memory for the next
        if plan is not None:
            sizes = sum(coef.numel() for coef in self._layers)
            like, white = self._layers[0].new_empty(sizes), generator.spawn("noise")
            self._noise = Noise(plan.known_mechanism(), white, like, plan.steps)
            self._scale = plan.noise_scale

    def __call__(self, k: int) -> list[Tensor]:
        rows = None if self._draws is None else self._draws.rows(k).numpy()
        sums = self._form.sums(rows, self._clip_norm)
        parts = [part for part in (sums.first, sums.second) if part is not None]
        means = [part.div_(self._divisor) for part in parts]
        if self._noise is None:
            return means
        # Noise comes before anything is rounded into the weights.
        self._row = self._noise.draw(self._row)
        scale, noisy = self._scale / self._divisor, [torch.empty_like(mean) for mean in means]
        cut = torch.split(self._row, [mean.numel() for mean in means])
        for mean, z, out in zip(means, cut, noisy, strict=True):
            add_noise(mean, z, scale, out, deviation=scale * self._noise.unit)
        return noisy


def _run(
    model: TwoLayerKAN,
    direction: _Direction,
    steps: int,
    step_size: float,
    radius: float | None,
    average: Average | None,
    callback: Callback | None,
) -> int:
    """All steps; how many of them ended on the ball."""
    reach = math.inf if radius is None else radius
    ball = None if reach == math.inf else Ball(trained_layers(model), reach)
    take_steps(
        model,
        direction,
        steps=steps,
        step_size=step_size,
        balls=() if ball is None else (ball,),
        average=average,
        callback=callback,
    )
    return 0 if ball is None else ball.active


def _generator(seed: int | None) -> Generator:
    return Generator.secure() if seed is None else Generator.seeded(seed)


def _steps(iterates: int) -> int:
    if whole("iterates", iterates) < 2:
        raise PlanError("iterates must be at least 2: the first is the start; got 1.")
    return iterates - 1
