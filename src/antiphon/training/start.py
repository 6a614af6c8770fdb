"""From a model, an optimizer and data to a private run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from antiphon.certificate import SEEDED, Certificate
from antiphon.errors import PlanError, StateError, UnsupportedError
from antiphon.events import Event
from antiphon.ledger import Ledger
from antiphon.mechanisms import AbstractMechanism
from antiphon.plan import Plan
from antiphon.randomness import Generator
from antiphon.relations import Relation
from antiphon.sampling import AbstractSampling, Draws, OnePass, Recorded
from antiphon.training.batches import Batches, Rows, as_dataset
from antiphon.training.bounds import Bounds
from antiphon.training.buffer import Buffer
from antiphon.training.clipping import AbstractClipping, clipping_of
from antiphon.training.folder import Folder
from antiphon.training.noise import Noise
from antiphon.training.private_sum import PrivateSum
from antiphon.training.recipe import Recipe, check_size, make_recipe
from antiphon.training.refusals import check_model, check_optimizer, trained
from antiphon.training.run import Callback, Run
from antiphon.training.saving import Public, Saved, Saving, States
from antiphon.training.team import Team

__all__ = ["make_private"]


def make_private(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    dataset: Any,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    clip_norm: float = 1.0,
    mechanism: str | AbstractMechanism = "auto",
    sampling: str | AbstractSampling = "poisson",
    seed: int | None = None,
    noise_multiplier: float | None = None,
    relation: str | None = None,
    clipping: str | AbstractClipping = "flat",
    user: Any = None,
    n: int | None = None,
    extra: Sequence[Event] = (),
    plan: Plan | Certificate | None = None,
    tight: bool = False,
    max_batch: int | None = None,
    loading: Mapping[str, Any] | None = None,
    bounds: tuple[Any, Any] | None = None,
    outside: str = "raise",
    loss_reduction: str = "mean",
    callback: Callback | None = None,
    checkpoint: Path | str | None = None,
    checkpoint_every: int = 100,
    resume: bool = False,
    others: Mapping[str, Any] | None = None,
    ledger: Ledger | None = None,
    after_backward: bool = False,
) -> Run:
    """A private run of ``model`` on ``dataset``: it draws the batches and takes the steps.

    Args:
        model: Any `nn.Module` whose examples do not mix; what cannot be trained is refused by name.
        optimizer: Of ``torch.optim``; trains those of the model's parameters that it holds.
        dataset: Map-style data set, or a tuple of tensors or arrays.
        epsilon: ε to be proved; the least noise for it is found. Or give ``noise_multiplier``.
        delta: δ; unless given, n to the power of -1.1.
        epochs: Length of the run in passes over the data. Or give ``steps``.
        steps: Length of the run in noisy steps.
        batch_size: Expected number of units in a batch.
        clip_norm: Bound on the norm of one unit's gradient. With adaptive clipping, its first value.
        mechanism: A mechanism; "auto" for the one with the smallest certified noise × error;
            "independent" for DP-SGD; or a family for `antiphon.mechanisms.optimize` ("blt", "banded",
            "lambda-cgd", "nu-ftrl", "dense").
        sampling: "poisson", "fixed-size", "shuffled" (one order, kept), "balls-in-bins", "one-pass",
            "full-batch", or a sampling.
        seed: Makes noise and batches reproducible, which the certificate says: not for release.
        noise_multiplier: Standard deviation of the white noise per unit of clip norm.
        relation: How neighbours differ; unless given, add-remove, and zero-out where batches are given by
            row (fixed-size, shuffled, one-pass).
        clipping: "flat", "per-layer", "automatic" or "adaptive", or a rule of `antiphon.training`.
        user: The user of every example, as a sequence or an array. Then users are protected: they are
            drawn as a whole, and the mean gradient of a user's examples is clipped.
        n: Public nominal number of units; unless given, that of the data, which is then public.
        extra: Releases beside training, paid for in the certificate.
        plan: A plan with its noise, in place of all that a plan holds; or the certificate of one, which
            is then not proved again.
        tight: Let Monte Carlo accountants take three times as long for a little less noise.
        max_batch: Most examples that are computed together; the result is the same for any.
        loading: Options of the `DataLoader` that reads the rows, such as ``num_workers``.
        bounds: Declared bounds of the batch's first tensor.
        outside: "raise" or "clamp" what is outside of them.
        loss_reduction: What a scalar loss is: a "mean" or a "sum" over the examples.
        callback: Called after every step with its number and metrics; what it returns is shown, so it must
            come from public data or from the model alone.
        checkpoint: Folder of the run. As secret as the data: it holds the noise's key.
        checkpoint_every: Steps between two checkpoints.
        resume: Go on from the folder's checkpoint.
        others: Objects with ``state_dict``, such as a scheduler, to be kept in checkpoints.
        ledger: Enter the run there first; a run that would pass its budget does not start.
        after_backward: Take steps from ``loss.backward(); optimizer.step()`` (see `PrivacyEngine`).

    Guarantee:
        The run's certificate is proved for the plan that runs, its sampling and its relation. No step is
        taken without a plan, nor on a batch that the plan did not draw.

    Example:
        >>> x, y = torch.randn(200, 3), torch.randint(0, 2, (200,))
        >>> model = nn.Linear(3, 2)
        >>> run = make_private(model, torch.optim.SGD(model.parameters(), lr=0.1), (x, y), epsilon=2.0,
        ...                    delta=1e-5, epochs=2, batch_size=20, mechanism="independent")
        >>> for inputs, labels in run.batches():
        ...     run.step(nn.functional.cross_entropy(model(inputs), labels, reduction="none"))
        >>> run.steps_taken, run.certificate.epsilon <= 2.0
        (20, True)
    """
    if isinstance(dataset, DataLoader):
        raise PlanError(
            "give the loader's data set, not the loader: batches are drawn by the run itself. "
            "PrivacyEngine.make_private takes loaders."
        )
    team = Team.of_this_process()
    with team.together():
        check_model(model)
        check_optimizer(optimizer)
        buffer = Buffer(trained(model, optimizer))
        data = as_dataset(dataset)
        rows, rule = Rows(len(data), user), clipping_of(clipping)  # type: ignore[arg-type]
        proved = plan if isinstance(plan, Certificate) else None
        if isinstance(plan, Certificate):
            delta = _same_delta(plan, delta)
            plan = plan.plan
        if plan is not None:
            _check_plan(
                plan,
                has_users=rows.users,
                beside={
                    "epsilon": epsilon,
                    "noise_multiplier": noise_multiplier,
                    "epochs": epochs,
                    "steps": steps,
                    "batch_size": batch_size,
                    "relation": relation,
                    "n": n,
                    "extra": tuple(extra) or None,
                    "clip_norm": None if clip_norm == 1.0 else clip_norm,  # 1 is the default
                },
            )
            recipe = Recipe(plan, None, _needed(delta), plan.noise_multiplier, rule, proved=proved)
        else:
            recipe = make_recipe(
                n=rows.count if n is None else n,
                unit="example" if user is None else "user",
                epsilon=epsilon,
                delta=delta,
                noise_multiplier=noise_multiplier,
                epochs=epochs,
                steps=steps,
                batch_size=batch_size,
                clip_norm=clip_norm,
                mechanism=mechanism,
                sampling=sampling,
                relation=relation,
                extra=extra,
                clipping=rule,
                tight=tight,
            )
        check_size(recipe.plan, rows.count)
        _check_places(recipe.plan)
    team.check_same(
        {
            "the trained parameters": [
                (n, tuple(p.shape)) for n, p in zip(buffer.names, buffer.parameters, strict=True)
            ],
            "the number of examples": rows.length,
            "the users' examples": rows.digest(),
            "clipping": repr(rule),
            "whether there is a checkpoint": checkpoint is not None,
            "checkpoint_every": checkpoint_every,
        }
    )
    asked = recipe.asked() | {"parameters": list(buffer.names)}
    start = _Start(recipe, asked, seed, checkpoint, resume, ledger)
    run = None
    try:
        plan, certificate, source, public = team.first(start.begin)
        with team.together():
            saving = None
            if checkpoint is not None:
                states = States(model, optimizer, others or {})
                states.packed({})  # what cannot be kept is refused before it is paid for
                saving = Saving(start.folder, checkpoint_every, start.generator, states, asked)
            noise = None
            if start.generator is not None:
                white = start.generator.spawn("noise")
                noise = Noise(plan.known_mechanism(), white, buffer.flat, plan.steps)
            batches = Batches(
                data,
                Draws(plan.sampling, rows.count, source),
                rows,
                max_batch=max_batch,
                share=(team.rank, team.world),
                loading=dict(loading or {}),
            )
            run = Run(
                model,
                optimizer,
                batches,
                PrivateSum(plan, rule, noise, team, buffer),
                plan,
                certificate,
                team=team,
                bounds=None if bounds is None else Bounds(*bounds, outside),
                loss_reduction=loss_reduction,
                callback=callback,
                saving=saving,
                after_backward=after_backward,
            )
            if saving is not None and public is not None:
                saving.resume(run, public, start.noise)
        team.same_start(model)
        team.first(partial(start.pay_and_save, run))
    except BaseException:
        start.abandon(run, saving if run is not None else None)
        raise
    if saving is not None:
        saving.started(public, run.device)
    return run


class _Start:
    """Plan, certificate and keys of a run, new or resumed, in its first process.

    The others have neither the root generator nor the folder nor the mechanism's state.
    """

    def __init__(
        self,
        recipe: Recipe,
        asked: dict[str, Any],
        seed: int | None,
        checkpoint: Path | str | None,
        resume: bool,
        ledger: Ledger | None,
    ) -> None:
        self._recipe, self._asked, self._seed = recipe, asked, seed
        self._checkpoint, self._resume, self._ledger = checkpoint, resume, ledger
        self.generator: Generator | None = None
        self.folder: Folder | None = None
        self.noise: dict[str, torch.Tensor] = {}

    def begin(self) -> tuple[Plan, Certificate, Generator, Public | None]:
        """What all processes need; the folder is held from now on."""
        if self._resume:
            return self._go_on()
        if self._checkpoint is not None:
            self.folder = Folder.create(self._checkpoint)
        _, certificate = self._recipe.certified()
        seed = self._seed
        self.generator = Generator.secure() if seed is None else Generator.seeded(seed)
        certificate = _with_assumptions(certificate, seed is not None)
        return certificate.plan, certificate, self.generator.spawn("sampling"), None

    def _go_on(self) -> tuple[Plan, Certificate, Generator, Public]:
        if self._checkpoint is None:
            raise PlanError("resume=True needs checkpoint=, the folder of the run.")
        self.folder = Folder.open(self._checkpoint)
        saved = Saved(self.folder)
        self._recipe.check_same(saved.plan, saved.asked)
        if saved.asked["parameters"] != self._asked["parameters"]:
            raise StateError(
                f"the checkpoint is of a run that trains {saved.asked['parameters']}, but the optimizer "
                f"trains {self._asked['parameters']}. Give the same model and optimizer again."
            )
        if self._seed is not None and Generator.seeded(self._seed).key != saved.generator.key:
            raise PlanError(
                "the checkpoint is of a run with another seed, or with none. Leave seed out: the "
                "checkpoint has the key."
            )
        self.generator, self.noise = saved.generator, saved.noise()
        source = self.generator.spawn("sampling")
        return saved.plan, saved.certificate, source, saved.public()

    def pay_and_save(self, run: Run) -> None:
        """The last thing before a new run is handed out: enter it in the ledger, then make it resumable."""
        # In this order: a run that was not paid for must not be there to be resumed.
        if self._resume:
            return
        certificate = run.certificate
        if self._ledger is not None:
            failure = 0.0 if certificate.confidence is None else 1 - certificate.confidence
            self._ledger.spend(certificate.plan, "training", failure=failure)
        if self.folder is not None:
            run.save()

    def abandon(self, run: Run | None, saving: Saving | None) -> None:
        """Leave model, optimizer and folder as they were, so that another try finds them so."""
        if saving is not None:
            saving.undo()
        if run is not None:
            run.detach()
        if self.folder is not None:
            self.folder.close()


def _with_assumptions(certificate: Certificate, is_seeded: bool) -> Certificate:
    lines = [
        "an example's loss depends on that example alone; this was probed, not proved",
        "the model and the optimizer, as they were at the start and with their schedules, hold nothing of "
        "the data but these steps",
    ]
    if certificate.unit == "user":
        lines.append(
            "every example of a user is under that user's name, no two users share a name, and batches "
            "keep the order of their rows"
        )
    if is_seeded:
        lines.append(SEEDED)
    new = (line for line in lines if line not in certificate.assumptions)
    return replace(certificate, assumptions=(*certificate.assumptions, *new))


def _check_plan(plan: Plan, *, has_users: bool, beside: Mapping[str, Any]) -> None:
    """Raise if a given plan is for other units, or something that it fixes was asked for, too."""
    if (plan.unit == "user") is not has_users:
        raise PlanError(
            f"the plan protects units of kind {plan.unit!r}, but user= was {'' if has_users else 'not '}"
            "given: users are protected where their examples are drawn and clipped as a whole, and only "
            "then. Give user= for a plan with unit='user', and for no other one."
        )
    fixed = vars(plan) | {"batch_size": round(plan.expected_batch)}
    for name, value in beside.items():
        if value is not None and value != fixed.get(name):
            raise PlanError(
                f"{name}={value} was given beside plan=, which fixes it otherwise: it would be ignored. "
                "Leave it out, or make another plan."
            )


def _check_places(plan: Plan) -> None:
    """Users have no place of their own: who replaces one may move all others to other batches."""
    is_placed = isinstance(plan.sampling, OnePass | Recorded)
    if plan.unit == "user" and is_placed and plan.relation is Relation.REPLACE_ONE:
        raise UnsupportedError(
            f"{plan.sampling} gives batches by place, and users are numbered as they appear: replacing one "
            "may move others to other batches, which replace-one does not allow for. Use zero-out, or "
            "another sampling."
        )


def _same_delta(certificate: Certificate, delta: float | None) -> float:
    if delta not in (None, certificate.delta):
        raise PlanError(
            f"the certificate is for δ = {certificate.delta:g}, but delta={delta} was asked for. Leave "
            "delta out, or certify the plan for it."
        )
    return certificate.delta


def _needed(delta: float | None) -> float:
    if delta is None:
        raise PlanError("a plan is certified at a δ: give delta.")
    return delta
