"""How a run begins, new or resumed: everything is tried, then it is paid for, then it is handed out."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn

from antiphon.certificates import SEEDED, Certificate, Ledger
from antiphon.errors import PlanError, StateError, UnsupportedError
from antiphon.numerics import Generator
from antiphon.participation import Relation
from antiphon.plans import Draws, OnePass, Plan, Recorded
from antiphon.training.checkpoints import Folder, Public, Saved, Saving, States
from antiphon.training.gradients import AbstractPath, ClippedSum, Loss, choose
from antiphon.training.run.batches import Batches
from antiphon.training.run.dataset import Dataset
from antiphon.training.run.noise import Noise
from antiphon.training.run.options import Options
from antiphon.training.run.private_run import Run
from antiphon.training.run.private_sum import PrivateSum
from antiphon.training.run.recipe import Recipe, check_size
from antiphon.training.run.refusals import check_loss, check_model, check_optimizer, trained
from antiphon.training.run.team import Team
from antiphon.training.run.unit_rows import Rows

__all__ = ["open_run"]

_TRIED = 2  # rows on which the loss is tried before anything is paid


def open_run(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: Dataset,
    loss: Loss | None,
    make_recipe: Callable[[int], Recipe],
    *,
    seed: int | None,
    ledger: Ledger | None,
    options: Options,
    independence: str = "",
) -> Run:
    """The run of a recipe.

    Args:
        model: The model.
        optimizer: Its optimizer.
        data: The data set.
        loss: Of one example; None for a loop that computes gradients itself, as `PrivacyEngine` does.
        make_recipe: From the number of units to the recipe.
        seed: Of noise and batches; None for secret ones.
        ledger: Pays for a new run.
        options: All else.
        independence: Why gradients of examples are independent, for a run without ``loss``.
    """
    team = Team.of_this_process()
    with team.together():
        check_model(model)
        check_loss(loss)
        check_optimizer(optimizer)
        named, rows = trained(model, optimizer), Rows(len(data), data.user)
        recipe = make_recipe(rows.count)
        check_size(recipe.plan, rows.count)
        _check_places(recipe.plan)
    is_kept = options.checkpoint is not None
    team.check_same(
        {
            "the trained parameters": [(n, tuple(p.shape)) for n, p in named.items()],
            "the number of examples": rows.length,
            "the users' examples": rows.digest(),
            "clipping": repr(recipe.clipping),
            "whether there is a checkpoint": is_kept,
            "checkpoint_every": options.checkpoint_every,
        }
    )
    asked = recipe.asked() | {"parameters": list(named)}
    keys = _Keys(recipe, asked, seed, ledger, options)
    run = saving = None
    try:
        plan, certificate, source, public = team.first(keys.begin)
        with team.together():
            if is_kept:
                states = States(model, optimizer, options.others)
                states.packed({})  # what cannot be kept is refused before it is paid for
                saving = Saving(
                    keys.folder, options.checkpoint_every, keys.generator, states, asked
                )
            total = ClippedSum(named, plan.expected_batch)
            noise = None
            if keys.generator is not None:
                white, like = (
                    keys.generator.spawn("noise"),
                    torch.empty(total.size, device=total.device),
                )
                noise = Noise(plan.known_mechanism(), white, like, plan.steps)
            secret = source.spawn("draws").key
            batches = Batches(
                data,
                Draws(plan.sampling, rows.count, source),
                rows,
                max_batch=options.max_batch,
                share=(team.rank, team.world),
                loading=options.loading,
                key=secret,
            )
            path = None if loss is None else _tried(model, loss, named, secret, batches, options)
            text = independence if path is None else path.text
            run = Run(
                model,
                optimizer,
                batches,
                PrivateSum(plan, recipe.clipping, noise, team, total),
                plan,
                _with_assumptions(certificate, text, total.rounding, is_seeded=seed is not None),
                path,
                team=team,
                options=options,
                saving=saving,
            )
            if saving is not None and public is not None:
                saving.resume(run, public, keys.noise)
        team.check_same({"how gradients are computed": text})
        team.same_start(model)
        team.first(partial(keys.pay_and_save, run))
    except BaseException:
        keys.abandon(run, saving)
        raise
    if saving is not None:
        saving.started()
    return run


def _tried(
    model: nn.Module,
    loss: Loss,
    named: dict[str, nn.Parameter],
    key: bytes,
    batches: Batches,
    options: Options,
) -> AbstractPath:
    """How the loss's gradients are computed, tried on the first rows of the data."""
    ids = torch.arange(min(_TRIED, len(batches.dataset)))
    examples = batches.read(0, ids)
    return choose(
        model, loss, named, key, ids, options.bounded(examples), data=batches.dataset.rows
    )


@final
class _Keys:
    """Plan, certificate and keys of a run, new or resumed, in its first process.

    The others have neither the root generator nor the folder nor the mechanism's state.
    """

    def __init__(
        self,
        recipe: Recipe,
        asked: dict[str, Any],
        seed: int | None,
        ledger: Ledger | None,
        options: Options,
    ) -> None:
        self._recipe, self._asked, self._seed = recipe, asked, seed
        self._ledger, self._options = ledger, options
        self.generator: Generator | None = None
        self.folder: Folder | None = None
        self.noise: dict[str, Tensor] = {}

    def begin(self) -> tuple[Plan, Certificate, Generator, Public | None]:
        """What all processes need; the folder is held from now on."""
        if self._options.resume:
            return self._go_on()
        if self._options.checkpoint is not None:
            self.folder = Folder.create(self._options.checkpoint)
        _, certificate = self._recipe.certified()
        seed = self._seed
        self.generator = Generator.secure() if seed is None else Generator.seeded(seed)
        return certificate.plan, certificate, self.generator.spawn("sampling"), None

    def _go_on(self) -> tuple[Plan, Certificate, Generator, Public]:
        self.folder = Folder.open(str(self._options.checkpoint))
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
        if self._options.resume:
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


def _with_assumptions(
    certificate: Certificate, path: str, rounding: float, *, is_seeded: bool
) -> Certificate:
    lines = [
        f"rounding of a sum before its noise moves it by at most {rounding:.1g} clip norms for every term "
        "of a number (such as a place of a sequence), which is not covered",
        f"{path}; neither data set, collate function nor loss reads anything of the data but the example, "
        "or leaves anything behind for another one",
        "the model and the optimizer, as they were at the start and with their schedules, hold nothing of "
        "the data but these steps",
    ]
    if certificate.unit == "user":
        lines.append(
            "every example of a user is under that user's name, and no two users share a name"
        )
    if is_seeded:
        lines.append(SEEDED)
    new = (line for line in lines if line not in certificate.assumptions)
    return replace(certificate, assumptions=(*certificate.assumptions, *new))


def _check_places(plan: Plan) -> None:
    """Users have no place of their own: who replaces one may move all others to other batches."""
    is_placed = isinstance(plan.sampling, OnePass | Recorded)
    if plan.unit == "user" and is_placed and plan.relation is Relation.REPLACE_ONE:
        raise UnsupportedError(
            f"{plan.sampling} gives batches by place, and users are numbered as they appear: replacing one "
            "may move others to other batches, which replace-one does not allow for. Use zero-out, or "
            "another sampling."
        )
