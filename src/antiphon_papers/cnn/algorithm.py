"""Gradient descent and DP-GD on a two-layer CNN, as published and as it can be certified.

Full batch, last iterate, no projection. `gradient_descent` and `printed_descent` are the published
algorithms, neither of which has an (ε, δ); `descend` clips examples, or their inputs, and is certified.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor

from antiphon.accounting import calibrate
from antiphon.certificates import Certificate, certify
from antiphon.checks import positive, whole
from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import Independent
from antiphon.numerics import Generator, add_noise, digest_of
from antiphon.participation import Relation
from antiphon.plans import FullBatch, Plan
from antiphon.progress import bar
from antiphon_papers.cnn.patch_form import PatchForm, PatchSums
from antiphon_papers.cnn.two_layer_cnn import TwoLayerCNN

__all__ = ["Descent", "Step", "clip_inputs", "descend", "gradient_descent", "printed_descent"]

_START = "the model, as it was at the start, holds nothing of the data"
_SEEDED = (
    "noise comes from a seed: reproducible, not for release; the guarantee holds only for those who know "
    "neither the seed nor any other result drawn with it"
)
_WATCHED = (
    "steps were watched: losses, norms and coefficients of the data are not covered by this guarantee and "
    "not for release"
)


@final
@dataclass(frozen=True, eq=False)
class Step:
    """One step, seen from within: nothing of this is private.

    Attributes:
        number: From 0.
        weight: Filters before the step.
        sums: Of all examples, at these filters.
        noise: On the mean gradient, with what rounding onto the grid moved, in float64; None without noise.
    """

    number: int
    weight: Tensor
    sums: PatchSums
    noise: Tensor | None


Watch = Callable[[Step], object]


@final
@dataclass(frozen=True, eq=False)
class Descent:
    """A finished run.

    Attributes:
        model: The trained network; the one given is left as it was.
        noise: σ_b, the standard deviation on each coordinate of the mean gradient; 0 without noise.
        certificate: What is proved of ``model`` and of every iterate; None of the published algorithms.
    """

    model: TwoLayerCNN
    noise: float
    certificate: Certificate | None

    @property
    def epsilon(self) -> float:
        """ε of the certificate.

        Raises:
            UnsupportedError: Of a run without one: nothing bounds what one record can do there.
        """
        if self.certificate is not None:
            return self.certificate.epsilon
        if not self.noise:
            raise UnsupportedError("gradient descent without noise has no ε. Use cnn.descend.")
        raise UnsupportedError(
            "DP-GD as published has no ε: gradients are not clipped, and a record with a long noise patch "
            "moves them by any amount. Lemma 39 bounds patches with a probability over the data, while "
            "neighbours are arbitrary. Use cnn.descend, which clips; cnn.random_dp has the number that "
            "holds for most draws of the data, labelled as such."
        )


def gradient_descent(
    model: TwoLayerCNN, x: Any, y: Any, *, step_size: float, steps: int, watch: Watch | None = None
) -> Descent:
    """Full-batch gradient descent, without noise and without a guarantee [CNNGradientDescent26, eq. 2].

    Args:
        model: Where to start.
        x: Records, shape (n, patches, d).
        y: Labels, -1 or +1.
        step_size: η.
        steps: T.
        watch: Called with each `Step`.

    Guarantee:
        None.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> x, y = torch.ones(4, 2, 3), torch.ones(4)
        >>> found = gradient_descent(TwoLayerCNN(3, 2, scale=0.1), x, y, step_size=1.0, steps=50)
        >>> bool(found.model(x).min() > 1)
        True
    """
    form = PatchForm(copy.deepcopy(model), x, y)
    _run(form, step_size, steps, form.n, math.inf, 0.0, None, watch)
    return Descent(form.model, 0.0, None)


def printed_descent(
    model: TwoLayerCNN,
    x: Any,
    y: Any,
    *,
    step_size: float,
    steps: int,
    noise: float,
    seed: int | None = None,
    watch: Watch | None = None,
) -> Descent:
    """DP-GD as published: noise on the mean gradient, no clipping [CNNGradientDescent26, eq. 1].

    Args:
        model: Where to start.
        x: Records, shape (n, patches, d).
        y: Labels, -1 or +1.
        step_size: η.
        steps: T.
        noise: σ_b.
        seed: Of the noise.
        watch: Called with each `Step`.

    Guarantee:
        None: ``certificate`` is None and ``epsilon`` is refused with the reason.
    """
    form, sigma = PatchForm(copy.deepcopy(model), x, y), positive("noise", noise)
    source = _source(seed, "printed", sigma, step_size, form)
    _run(form, step_size, steps, form.n, math.inf, sigma, source, watch)
    return Descent(form.model, sigma, None)


def descend(
    model: TwoLayerCNN,
    x: Any,
    y: Any,
    *,
    step_size: float,
    steps: int,
    epsilon: float,
    delta: float,
    clip_norm: float = 1.0,
    clip: str = "gradients",
    relation: Relation | str = Relation.REPLACE_ONE,
    n: int | None = None,
    seed: int | None = None,
    watch: Watch | None = None,
) -> Descent:
    """DP-GD with clipped examples: the least noise for (ε, δ), and a certificate.

    Args:
        model: Where to start; drawn without the data.
        x: Records, shape (n, patches, d).
        y: Labels, -1 or +1.
        step_size: η.
        steps: T, fixed in advance.
        epsilon: ε.
        delta: δ.
        clip_norm: C on an example's gradient or, with ``clip="inputs"``, R on the norm of all its patches
            together; a public number.
        clip: "gradients", or "inputs": records are shortened before the run, and P patches of norm at
            most R have gradients of norm at most sqrt(2P/m) R whatever the filters: none is biased.
        relation: Between neighbours.
        n: Public number of examples, the divisor; None is that of x, which is then public.
        seed: Makes the noise reproducible, which the certificate says: not for release.
        watch: Called with each `Step`, which is not private.

    Guarantee:
        All iterates together have the (ε, δ) of ``certificate``, exactly: T full-batch Gaussian releases of
        sensitivity c C/n, c = 2 for replace-one and 1 for zero-out and add-remove, are μ-GDP with
        μ = sqrt(T) c C/(n σ_b) [DongRothSu22]. Nothing is claimed for hiding iterates: the loss is not
        convex.

    Example:
        >>> x, y = torch.ones(400, 2, 3), torch.ones(400)
        >>> run = dict(step_size=1.0, steps=20, epsilon=8.0, delta=1e-5, relation="zero-out", seed=0)
        >>> found = descend(TwoLayerCNN(3, 2, scale=0.1), x, y, **run)
        >>> round(found.certificate.epsilon, 6), round(1e3 * found.noise, 6)
        (8.0, 6.710765)
    """
    if clip not in ("gradients", "inputs"):
        raise PlanError(f"clip is 'gradients' or 'inputs'; got {clip!r}.")
    limit, records = positive("clip_norm", clip_norm), torch.as_tensor(x).to(model.filters.weight)
    if clip == "inputs":
        records = clip_inputs(records, limit)
        limit *= math.sqrt(2 * records.shape[1] / model.m)
    form = PatchForm(copy.deepcopy(model), records, y)
    plan = Plan(
        n=form.n if n is None else whole("n", n),
        sampling=FullBatch(),
        steps=whole("steps", steps),
        mechanism=Independent(),
        clip_norm=limit,
        relation=relation,
    )
    plan = calibrate(plan, epsilon, delta)
    known = certify(plan, delta, epsilon=epsilon)
    lines = (_START, _SEEDED) if seed is not None else (_START,)
    certificate = replace(
        known, assumptions=(*known.assumptions, *lines, *(_WATCHED,) * (watch is not None))
    )
    source = _source(seed, plan.hash, clip, step_size, form)
    sigma = plan.noise_scale / plan.n
    # Clipped inputs already have short gradients; clipping those too makes up for rounding alone.
    _run(form, step_size, steps, plan.n, limit, sigma, source, watch)
    return Descent(form.model, sigma, certificate)


def clip_inputs(x: Tensor, radius: float) -> Tensor:
    """Records whose patches together have a norm of at most ``radius``; one by one, hence no cost.

    Example:
        >>> clip_inputs(torch.full((1, 2, 2), 3.0), 3.0).tolist()
        [[[1.5, 1.5], [1.5, 1.5]]]
    """
    if x.ndim != 3 or not all(x.shape):
        raise PlanError(
            f"inputs must have shape (n, patches, d), none of them 0; got {tuple(x.shape)}."
        )
    norms = x.flatten(1).norm(dim=1)[:, None, None]
    return x * (positive("radius", radius) / norms).clamp(max=1).nan_to_num(0.0)


def _source(seed: int | None, *what: Any) -> Generator:
    """The noise of one run and of no other: one seed in several would put the same on other gradients."""
    *values, form = what
    key = digest_of(*values, form.inputs, form.signs, form.model.filters.weight)
    generator = Generator.secure() if seed is None else Generator.seeded(seed)
    return generator.spawn(f"noise {key}")


@torch.no_grad()
def _run(
    form: PatchForm,
    step_size: float,
    steps: int,
    n: int,
    clip_norm: float,
    noise: float,
    source: Generator | None,
    watch: Watch | None,
) -> None:
    """All steps; then the model holds the last iterate."""
    eta, weight = positive("step_size", step_size), form.model.filters.weight
    with bar("Descending") as update:
        for t in range(whole("steps", steps)):
            sums = form.sums(clip_norm)
            mean = sums.gradient / n
            # Noise comes before anything is rounded into the weights, and before anybody looks.
            noisy = mean if source is None else _noisy(mean, source, t, noise)
            if watch is not None:
                drawn = None if source is None else noisy.double() - mean.double()
                watch(Step(t, weight.detach().clone(), sums, drawn))
            weight.sub_(noisy, alpha=eta)
            update(t + 1, steps)


def _noisy(mean: Tensor, source: Generator, t: int, noise: float) -> Tensor:
    z = source.normal(torch.empty_like(mean, dtype=torch.float64), t)
    noisy = torch.empty_like(mean)
    add_noise(mean, z, noise, noisy)
    return noisy
