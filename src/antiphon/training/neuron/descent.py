"""One ReLU neuron by noisy steps along clipped directions: exactly what a plan says, on arrays.

    ============  ==========================================================================================
    direction     of a record (x, y) at weights w
    ============  ==========================================================================================
    "glmtron"     (ReLU(x·w) - y) x: for symmetric x its mean is H (w - w*)/2, whatever w
    "sgd"         the same where x·w > 0, else 0: the gradient of the squared error. At w = 0 all are 0
    ============  ==========================================================================================

The methods of [ReLURegression25], and better ones, are plans: full batches (GLMtron, DP-PGD with a radius),
Poisson batches, one pass in batches (DP-MBGLMtron, DP-SGD), one pass record by record (DP-GLMtron; with
tree noise DP-TAGLMtron).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from antiphon.accounting import effective_noise
from antiphon.checks import positive
from antiphon.errors import PlanError
from antiphon.numerics import Generator, spacing
from antiphon.plans import Draws, Plan
from antiphon.progress import bar
from antiphon.training.neuron.clip_norms import AbstractClipNorms, Constant, Seen
from antiphon.training.neuron.neuron_kernel import run_steps
from antiphon.training.neuron.noise_rows import NoiseRows

__all__ = ["AVERAGES", "DIRECTIONS", "Descent", "descend", "random_start"]

DIRECTIONS = ("glmtron", "sgd")
AVERAGES = ("full", "tail", "last")
Array = NDArray[np.float64]

_ROWS_AT_ONCE = 2**16  # of the batches that are drawn together


def descend(
    X: Any,
    y: Any,
    plan: Plan,
    *,
    learning_rate: float,
    generator: Generator | None = None,
    direction: str = "glmtron",
    average: str = "tail",
    counts_last: bool = False,
    start: Any = None,
    radius: float | None = None,
    clip_norms: AbstractClipNorms | None = None,
    callback: Callable[[int, Array], object] | None = None,
) -> Array:
    """The averaged weights after all steps of a plan.

    Args:
        X: Records, shape (n, d). Nothing is scaled and nothing added.
        y: One target for each.
        plan: With its noise; ``plan.n`` records.
        learning_rate: η.
        generator: Source of batches and noise, as secret as the data; a new secure one unless given. A
            seeded one must not be used for other data or another plan.
        direction: "glmtron" or "sgd".
        average: "full", over w_0, …, w_{T-1}; "tail", over the second half of these, from ⌊T/2⌋ on; or
            "last", w_T. The first two are the paper's, which leave out the last step.
        counts_last: Average the iterates after the steps, w_1, …, w_T, instead of those before.
        start: w_0: unless given 0, for "sgd" `random_start`.
        radius: If given, weights are projected on the ball of this radius around 0 after each step.
        clip_norms: A rule for clip norms; unless given, the plan's own in every step. With a rule,
            contributions count in units of the step's clip norm, and the rule must be paid for.
        callback: Called after each step with its number and what the result would be if it were the last.

    Returns:
        Weights, shape (d,).

    Guarantee:
        Step t adds noise_multiplier × s_t × (C⁻¹z)_t to the sum of directions of its batch, each clipped to
        norm s_t, rounds once onto the public grid of `antiphon.numerics.grid`, and divides by
        ``plan.expected_batch``: what the plan's certificate is about, for batches drawn by
        `antiphon.plans.Draws`. Directions that are not finite count as zero. All iterates are covered,
        hence their mean, and what a callback makes of them.

    Example:
        >>> from antiphon.mechanisms import Independent
        >>> from antiphon.plans import FullBatch
        >>> X = np.random.default_rng(0).normal(size=(5_000, 2))
        >>> plan = Plan(n=5_000, sampling=FullBatch(), steps=20, mechanism=Independent(), clip_norm=2.0,
        ...             relation="replace-one", noise_multiplier=60.0)
        >>> w = descend(X, np.maximum(X @ [1.0, -1.0], 0), plan, learning_rate=1.0,
        ...             generator=Generator.seeded(0))
        >>> w.round(1).tolist()
        [1.0, -1.0]
    """
    descent = Descent(
        X,
        y,
        plan,
        learning_rate=learning_rate,
        generator=Generator.secure() if generator is None else generator,
        direction=direction,
        average=average,
        counts_last=counts_last,
        start=start,
        radius=radius,
        clip_norms=clip_norms,
    )
    with bar("training") as progress:
        while descent.step < plan.steps:
            descent.advance(1 if callback is not None else None)
            progress(descent.step, plan.steps)
            if callback is not None:
                callback(descent.step, descent.result)
    return descent.result


def random_start(d: int, generator: Generator) -> Array:
    """w_0 ~ N(0, 0.01 I/d), from which "sgd" can move; it depends on no record."""
    z = generator.spawn("start").normal(torch.empty(d, dtype=torch.float64), step=0)
    return np.asarray(0.1 / np.sqrt(d) * z.numpy())


@final
@dataclass(eq=False, repr=False)
class Descent:
    """A run that can be stopped, kept and continued; `descend` is the whole of one.

    Its parameters are those of `descend`. It holds the generator and, in its state, past noise: as secret
    as the data.

    Attributes:
        step: Steps taken.
        found: Clip norms by the step from which on they held. They are released.
    """

    X: Any
    y: Any
    plan: Plan
    learning_rate: float
    generator: Generator
    direction: str = "glmtron"
    average: str = "tail"
    counts_last: bool = False
    start: Any = None
    radius: float | None = None
    clip_norms: AbstractClipNorms | None = None
    step: int = field(default=0, init=False)
    found: dict[int, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.X = np.ascontiguousarray(self.X, dtype=np.float64)
        self.y = np.ascontiguousarray(self.y, dtype=np.float64)
        _check_data(self.X, self.y, self.plan)
        positive("learning_rate", self.learning_rate)
        if self.radius is not None:
            positive("radius", self.radius)
        if self.direction not in DIRECTIONS:
            raise PlanError(f"direction is 'glmtron' or 'sgd'; got {self.direction!r}.")
        if self.average not in AVERAGES:
            raise PlanError(f"average is 'full', 'tail' or 'last'; got {self.average!r}.")
        d = self.X.shape[1]
        self._noise_multiplier = effective_noise(self.plan)
        self._rule = self.clip_norms or Constant(self.plan.clip_norm)
        self._rule.check(self.plan)
        self._draws = Draws(self.plan.sampling, self.plan.n, self.generator)
        mechanism = self.plan.known_mechanism()
        self._noise = NoiseRows(mechanism, self.generator.spawn("noise"), d, self.plan.steps)
        self._weights, self._total = self._first_weights(d), np.zeros(d)
        T = self.plan.steps
        self._first = {"full": 0, "tail": T // 2, "last": T}[self.average]

    @property
    def weights(self) -> Array:
        """The last iterate; a copy."""
        return self._weights.copy()

    @property
    def result(self) -> Array:
        """The mean of the iterates that count so far; the last one while there is none."""
        counted = self.step - self._first
        return self._total / counted if counted > 0 else self.weights

    def advance(self, steps: int | None = None) -> None:
        """Take so many steps, or as many as are handled at once."""
        left = self.plan.steps - self.step
        if left <= 0:
            raise PlanError(f"all {self.plan.steps} steps of the plan are taken.")
        usual = max(1, int(_ROWS_AT_ONCE // max(1.0, self.plan.expected_batch)))
        count = min(left, usual if steps is None else steps)
        if self._rule.every:
            count = min(count, self._rule.every - self.step % self._rule.every)
        rows, offsets = self._draws.block(self.step, self.step + count)
        norm, rows = self._clip_norm(rows)
        if self._rule.every == 1:
            offsets = np.array([0, len(rows)])
        radius = np.inf if self.radius is None else self.radius
        scale = float(norm * self._noise_multiplier)
        scalars = (
            float(norm),
            scale,
            float(self.plan.expected_batch),
            float(self.learning_rate),
            float(radius),
            spacing(scale * self._noise.unit, torch.float64),
        )
        run_steps(
            self.X,
            self.y,
            rows,
            offsets,
            self._noise.draw(count),
            self._weights,
            self._total,
            scalars,
            self.direction == "sgd",
            self.counts_last,
            self.step,
            self._first,
        )
        self.step += count

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What must be kept to resume: tensors by name, and JSON. As secret as the data."""
        tensors = {f"noise {name}": buffer for name, buffer in self._noise.state().items()}
        tensors["weights"] = torch.from_numpy(self.weights)
        tensors["total"] = torch.from_numpy(self._total.copy())
        found = {str(step): norm for step, norm in self.found.items()}
        return tensors, {"step": self.step, "found": found, "plan": self.plan.hash}

    def restore(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """Go on where `state` was taken, of a run with the same data and parameters."""
        if meta["plan"] != self.plan.hash:
            raise PlanError("the state is of a run with another plan.")
        kept = {n.removeprefix("noise "): t for n, t in tensors.items() if n.startswith("noise ")}
        self._noise.restore(meta["step"], kept)
        self._weights = tensors["weights"].numpy().copy()
        self._total = tensors["total"].numpy().copy()
        self.step = meta["step"]
        self.found = {int(step): norm for step, norm in meta["found"].items()}

    def _first_weights(self, d: int) -> Array:
        if self.start is None:
            return random_start(d, self.generator) if self.direction == "sgd" else np.zeros(d)
        start = np.array(self.start, dtype=np.float64)
        if start.shape != (d,) or not np.isfinite(start).all():
            raise PlanError(f"start must hold {d} finite numbers; got shape {start.shape}.")
        return start

    def _clip_norm(self, rows: NDArray[np.int64]) -> tuple[float, NDArray[np.int64]]:
        """The clip norm of the coming steps, computed again if the rule says so, and the rows used."""
        rule = self._rule
        if self.found and (not rule.every or self.step % rule.every):
            return self.found[max(self.found)], rows
        seen = Seen(self.X, self.y, rows, self.weights, self.step, self.generator)
        self.found[self.step], rows = rule.find(seen)
        return self.found[self.step], rows


def _check_data(X: Array, y: Array, plan: Plan) -> None:
    if X.ndim != 2 or not X.shape[1] or y.shape != X.shape[:1]:
        raise PlanError(
            "X is a table with a column at least, and y has one number for each of its rows; got shapes "
            f"{X.shape} and {y.shape}."
        )
    if len(y) != plan.n:
        raise PlanError(f"the plan is for {plan.n} records; there are {len(y)}.")
    if plan.unit != "example":
        raise PlanError("a neuron is trained record by record; the plan protects users.")
