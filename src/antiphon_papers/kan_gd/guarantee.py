"""From a calibration's name to the noise of a run of DP-GD, the plan that runs and its certificate."""

import math
from dataclasses import dataclass, replace
from typing import Literal, final

import torch

from antiphon import plans
from antiphon.certificates import Certificate, certify
from antiphon.checks import positive
from antiphon.errors import PlanError
from antiphon.mechanisms import Independent
from antiphon.participation import Relation
from antiphon.plans import FullBatch, Plan
from antiphon_papers.common.kan_steps import START
from antiphon_papers.common.two_layer_kan import TwoLayerKAN
from antiphon_papers.kan_gd.calibration import (
    Block,
    Calibration,
    allowed_mu,
    corrected_calibration,
    theorem_4_14_calibration,
    tight_calibration,
)
from antiphon_papers.kan_gd.theory.constants import SecondLayer, kan_constants
from antiphon_papers.kan_gd.theory.problem import Problem, sensitivities

__all__ = ["CALIBRATIONS", "Guarantee", "Request", "guarantee_of"]

CALIBRATIONS = ("literal", "corrected", "tight", "adaptive", "clipped")
_LAYERS = ("first layer", "second layer")
_ROUNDINGS = 128  # of gradients and balls, about 1.5e-5 in single precision
_MEASURED = (
    "the second layer was measured at the start, which does not depend on the data: no part of δ is "
    "reserved for a large one"
)
_ADAPTIVE = (
    "gradients are not clipped: before each step their bound follows from the second layer, a release "
    "already paid for, and the noise from that bound, in whose units contributions are stated"
)


@final
@dataclass(frozen=True)
class Request:
    """What a run of DP-GD asks for.

    Attributes:
        calibration: One of `CALIBRATIONS`.
        epsilon: Target ε; of "literal" and "corrected" what their theorem claims.
        delta: δ.
        n: Public number of examples, the divisor of all sums.
        steps: T.
        radii: R₁ and R₂, infinite for no ball.
        clip_norm: C, for "clipped".
        split: Of the noise between the layers, "equal" or "optimal", for "tight" and "adaptive"; the
            latter keeps the split of the first step.
        relation: Between neighbours; replace-one unless examples are clipped.
    """

    calibration: str
    epsilon: float
    delta: float
    n: int
    steps: int
    radii: tuple[float, float] = (math.inf, math.inf)
    clip_norm: float = 0.5
    split: str = "equal"
    relation: Relation | str = Relation.REPLACE_ONE


@final
@dataclass(frozen=True)
class Guarantee:
    """Noise of a run and what is proved of it.

    Attributes:
        request: What was asked for.
        calibration: The noise; with "adaptive", that of the first step.
        certificate: Of the plan that runs, by exact accounting of the noise that is added.
    """

    request: Request
    calibration: Calibration
    certificate: Certificate

    @property
    def clip_norm(self) -> float:
        """C, or infinity."""
        return self.request.clip_norm if self.request.calibration == "clipped" else math.inf

    def noise(self, model: TwoLayerKAN) -> list[float]:
        """Standard deviation on the mean gradient of each trained layer, in the model's present state."""
        blocks, trained = self.calibration.blocks, _trained(model)
        if self.request.calibration == "clipped":
            return [blocks[0].noise] * len(trained)
        # Gradients that are not clipped and balls are exact up to rounding: a little more noise covers it.
        more = 1 + _ROUNDINGS * torch.finfo(model.first.coef.dtype).eps
        if self.request.calibration != "adaptive":
            return [more * block.noise for block in blocks]
        # Each layer keeps its ratio of noise to sensitivity: that ratio is what the plan certifies.
        problem = _problem(model, self.request)
        bounds = sensitivities(problem, _measured(model, problem))
        ratios = [more * block.noise / block.sensitivity for block in blocks]
        return [ratio * bounds[i] for ratio, i in zip(ratios, trained, strict=True)]


def guarantee_of(model: TwoLayerKAN, request: Request) -> Guarantee:
    """The noise, plan and certificate of a run that starts from ``model``.

    Guarantee:
        The certificate's ε is that of the noise that is added, whatever the calibration claims: exact for
        clipped examples, an upper bound where bounds on gradients need not be reached.
    """
    _check(model, request)
    match request.calibration:
        case "literal":
            calibration = _printed(model, request)
        case "corrected":
            calibration = _corrected(model, request)
        case "clipped":
            calibration = _clipped(model, request)
        case _:
            calibration = _tight(model, request)
    return Guarantee(request, calibration, _certificate(calibration, request, model))


def _certificate(calibration: Calibration, request: Request, model: TwoLayerKAN) -> Certificate:
    is_printed = request.calibration in ("literal", "corrected")
    found = certify(
        _plan(calibration, request), request.delta, epsilon=None if is_printed else request.epsilon
    )
    lines = [START]
    if request.calibration == "adaptive":
        lines += [_ADAPTIVE, _MEASURED]
    elif request.calibration != "clipped":
        where = ""
        if model.second.coef.requires_grad:
            where = f"the second layer stays within {request.radii[1]:g} of its start, "
        lines += [
            f"gradients are not clipped: {where}inputs count as within [-1, 1], and the splines' norms "
            "bound the rest",
            _MEASURED,
        ]
    if is_printed:
        lines.append(
            f"the noise was made by Theorem 4.14 ({request.calibration}) for ε = {request.epsilon:g}; "
            "the ε above is what this noise really has"
        )
    return replace(
        found,
        assumptions=(*found.assumptions, *lines),
        is_tight=found.is_tight and request.calibration == "clipped",
    )


def _plan(calibration: Calibration, request: Request) -> Plan:
    blocks, amplitude = calibration.blocks, calibration.relation.amplitude
    is_clipped, is_adaptive = (request.calibration == c for c in ("clipped", "adaptive"))
    parts = [
        plans.Block(
            b.name,
            1.0 if is_adaptive else request.n * b.sensitivity / amplitude,
            amplitude * b.noise / b.sensitivity,
        )
        for b in blocks
    ]
    return Plan(
        n=request.n,
        sampling=FullBatch(),
        steps=request.steps,
        mechanism=Independent(),
        clip_norm=request.clip_norm if is_clipped else 1.0,
        relation=calibration.relation,
        noise_multiplier=parts[0].noise_multiplier if is_clipped else None,
        blocks=() if is_clipped else tuple(parts),
    )


def _printed(model: TwoLayerKAN, request: Request) -> Calibration:
    problem = _problem(model, request)
    return theorem_4_14_calibration(
        problem,
        request.epsilon,
        request.delta,
        request.radii[1],
        layer=_measured(model, problem),
        bound="slopes",
    )


def _corrected(model: TwoLayerKAN, request: Request) -> Calibration:
    """The noise of the corrected theorem, with the sensitivities that its run really has."""
    problem, radius = _problem(model, request), request.radii[1]
    claimed = corrected_calibration(problem, request.epsilon, request.delta, radius)
    truth = sensitivities(problem, _measured(model, problem), radius)
    blocks = (
        replace(block, sensitivity=bound)
        for block, bound in zip(claimed.blocks, truth, strict=True)
    )
    return replace(claimed, blocks=tuple(blocks), reserve=0.0)


def _tight(model: TwoLayerKAN, request: Request) -> Calibration:
    problem, trained = _problem(model, request), _trained(model)
    is_fixed = request.calibration == "tight" and 1 in trained
    layer, radius = _measured(model, problem), request.radii[1] if is_fixed else 0.0
    epsilon, delta = request.epsilon, request.delta
    if len(trained) == 2:
        split: Literal["equal", "optimal"] = "optimal" if request.split == "optimal" else "equal"
        return tight_calibration(problem, epsilon, delta, layer, radius, split=split)
    (only,) = trained
    sensitivity = sensitivities(problem, layer, radius)[only]
    noise = sensitivity * math.sqrt(request.steps) / allowed_mu(epsilon, delta)
    block = Block(_LAYERS[only], problem.sizes[only], sensitivity, noise)
    return Calibration(f"tight, {_LAYERS[only]} only", (block,), request.steps, epsilon, delta)


def _clipped(model: TwoLayerKAN, request: Request) -> Calibration:
    """As `clipped_calibration`, for any splines and any trained layers."""
    relation = Relation.of(request.relation)
    sensitivity = relation.amplitude * positive("clip_norm", request.clip_norm) / request.n
    noise = sensitivity * math.sqrt(request.steps) / allowed_mu(request.epsilon, request.delta)
    sizes = [layer.coef.numel() for layer in (model.first, model.second)]
    block = Block("trained layers", sum(sizes[i] for i in _trained(model)), sensitivity, noise)
    steps, epsilon, delta = request.steps, request.epsilon, request.delta
    return Calibration("clipped", (block,), steps, epsilon, delta, relation=relation)


def _problem(model: TwoLayerKAN, request: Request) -> Problem:
    constants = kan_constants(model.second.splines, model.activation)
    d, m = model.first.in_features, model.first.out_features
    return Problem(request.n, d, m, request.steps, constants)


def _measured(model: TwoLayerKAN, problem: Problem) -> SecondLayer:
    c = model.second.coef.detach().double().numpy().reshape(problem.m, -1)
    return SecondLayer.measured(c, problem.constants)


def _trained(model: TwoLayerKAN) -> list[int]:
    layers = (model.first, model.second)
    return [i for i, layer in enumerate(layers) if layer.coef.requires_grad]


def _check(model: TwoLayerKAN, request: Request) -> None:
    kind, trained = request.calibration, _trained(model)
    if kind not in CALIBRATIONS:
        raise PlanError(f"calibration must be one of {[*CALIBRATIONS]}; got {kind!r}.")
    if kind in ("literal", "corrected") and trained != [0, 1]:
        raise PlanError(
            f"Theorem 4.14 is about two trained layers, so {kind!r} needs a model with train='both'. For "
            "one layer take 'tight', 'adaptive' or 'clipped'."
        )
    if kind in ("literal", "corrected", "tight") and 1 in trained and request.radii[1] == math.inf:
        raise PlanError(
            f"calibration {kind!r} bounds gradients by a ball around the second layer's start: give "
            "radii=(R1, R2) with a finite R2, or take 'adaptive' or 'clipped'."
        )
    if kind != "clipped" and not bool(model.second.coef.any()):
        raise PlanError(
            "the second layer is zero at the start, so that the first one's gradient is, and has no bound "
            "to be noised by. Draw it (start='gaussian'), or take 'clipped'."
        )
    if request.split not in ("equal", "optimal"):
        raise PlanError(f"split is 'equal' or 'optimal'; got {request.split!r}.")
    if kind != "clipped" and Relation.of(request.relation) is not Relation.REPLACE_ONE:
        raise PlanError(
            f"calibration {kind!r} is for neighbours under replace-one; got {request.relation!r}. Only "
            "'clipped' has other relations."
        )
