"""From a model, an optimizer, data and a loss to a private run."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from antiphon.certificates import Certificate, Ledger
from antiphon.checks import positive
from antiphon.errors import PlanError
from antiphon.mechanisms import AbstractMechanism
from antiphon.plans import AbstractSampling, Plan
from antiphon.training.gradients import AbstractClipping, Loss
from antiphon.training.run.dataset import as_dataset
from antiphon.training.run.opening import open_run
from antiphon.training.run.options import Options
from antiphon.training.run.private_run import Run
from antiphon.training.run.recipe import Recipe, make_recipe

__all__ = ["make_private", "recipe_of"]


def make_private(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    dataset: Any,
    loss: Loss,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    epochs: float | None = None,
    batch_size: int | None = None,
    clip_norm: float = 1.0,
    mechanism: str | AbstractMechanism = "auto",
    sampling: str | AbstractSampling = "poisson",
    relation: str | None = None,
    seed: int | None = None,
    plan: Plan | Certificate | None = None,
    ledger: Ledger | None = None,
    options: Options | None = None,
) -> Run:
    """A private run of ``model`` on ``dataset``: it draws the batches and takes the steps.

    Args:
        model: Any `nn.Module`; what cannot be trained privately is refused by name.
        optimizer: Of ``torch.optim``; trains those of the model's parameters that it holds.
        dataset: Rows: a tuple or mapping of tensors or arrays, a map-style data set, or
            `antiphon.Dataset`, which also holds whose the rows are, and how they are collated and padded.
        loss: ``loss(model, x, y)`` for rows that are tuples, ``loss(model, **row)`` for mappings: from
            one example, which is given as a batch of one, to a number. It is ordinary batch code.
        epsilon: ε to be proved; the least noise for it is found.
        delta: δ; unless given, n to the power of -1.1.
        epochs: Length of the run in passes over the data.
        batch_size: Expected number of units in a batch.
        clip_norm: Bound on the norm of one unit's gradient. With adaptive clipping, its first value.
        mechanism: A mechanism; "auto" for the one with the smallest certified noise × error;
            "independent" for DP-SGD; or another name of `antiphon.plans.named_mechanisms`: a family at
            its best ("blt", "banded", "lambda-cgd", "nu-ftrl", "dense"), "tree", "honaker", …
        sampling: "poisson", "fixed-size", "shuffled" (one order, kept), "reshuffled", "balls-in-bins",
            "one-pass", "full-batch", or a sampling.
        relation: How neighbours differ; unless given, add-remove, and zero-out where batches are given by
            row (fixed-size, shuffled, reshuffled, one-pass).
        seed: Makes noise and batches reproducible, which the certificate says: not for release.
        plan: A plan in place of all that a plan holds: with its noise, or without and beside ``epsilon``.
            Or the certificate of one, which is then not proved again.
        ledger: Enter the run there first; a run that would pass its budget does not start.
        options: All else: clipping, memory, reading, checkpoints.

    Guarantee:
        The run's certificate is proved for the plan that runs, its sampling and its relation. No step is
        taken without a plan, nor on a batch that the plan did not draw. The loss is evaluated for each
        example by itself. What can fail is tried, on two rows, before the ledger is charged.

    Example:
        >>> x, y = torch.randn(200, 3), torch.randint(0, 2, (200,))
        >>> model = nn.Linear(3, 2)
        >>> run = make_private(
        ...     model, torch.optim.SGD(model.parameters(), lr=0.1), (x, y),
        ...     lambda model, x, y: nn.functional.cross_entropy(model(x), y),
        ...     epsilon=2.0, delta=1e-5, epochs=2, batch_size=20, mechanism="independent").train()
        >>> run.steps_taken, run.certificate.epsilon <= 2.0
        (20, True)
    """
    chosen, data = Options() if options is None else options, as_dataset(dataset)
    if not isinstance(chosen, Options):
        raise PlanError(f"options is ap.Options(...); got {type(chosen).__name__}.")
    if not callable(loss):
        raise PlanError(
            "loss is a function of the model and one example, such as lambda model, x, y: "
            f"F.cross_entropy(model(x), y); got {type(loss).__name__}."
        )

    def make(count: int) -> Recipe:
        return recipe_of(
            count,
            has_users=data.user is not None,
            plan=plan,
            delta=delta,
            epsilon=epsilon,
            clipping=chosen.clipping,  # type: ignore[arg-type]
            tight=chosen.tight,
            beside={
                "epochs": epochs,
                "batch_size": batch_size,
                "clip_norm": clip_norm,
                "mechanism": mechanism,
                "sampling": sampling,
                "relation": relation,
            },
        )

    return open_run(model, optimizer, data, loss, make, seed=seed, ledger=ledger, options=chosen)


_DEFAULTS = {"clip_norm": 1.0, "mechanism": "auto", "sampling": "poisson"}


def recipe_of(
    count: int,
    *,
    has_users: bool,
    plan: Plan | Certificate | None,
    delta: float | None,
    epsilon: float | None,
    clipping: AbstractClipping,
    tight: bool,
    beside: Mapping[str, Any],
) -> Recipe:
    """The recipe of a run: from a plan, or from what a plan is made of.

    Args:
        count: Number of units in the data.
        has_users: Whether they are users.
        plan: If given, all else but ε and δ must be left at its default.
        delta: δ.
        epsilon: ε.
        clipping: How gradients are shortened.
        tight: Whether Monte Carlo accountants may take three times as long.
        beside: What a plan is made of.
    """
    if plan is None:
        return make_recipe(
            n=count,
            unit="user" if has_users else "example",
            epsilon=epsilon,
            delta=delta,
            clipping=clipping,
            tight=tight,
            **beside,
        )
    proved = plan if isinstance(plan, Certificate) else None
    if isinstance(plan, Certificate):
        delta, plan = _same_delta(plan, delta), plan.plan
    _check_plan(plan, has_users=has_users, beside=beside)
    if delta is None:
        raise PlanError("a plan is certified at a δ: give delta.")
    is_open = plan.noise_multiplier is None and not plan.blocks
    if is_open is (epsilon is None):
        raise PlanError(
            "give epsilon beside a plan without noise, for which the least noise is then found, and not "
            f"beside one that has its noise; got epsilon={epsilon} and a noise multiplier of "
            f"{plan.noise_multiplier}."
        )
    if epsilon is not None:
        positive("epsilon", epsilon)
    return Recipe(plan, epsilon, delta, clipping, tight, proved)


def _check_plan(plan: Plan, *, has_users: bool, beside: Mapping[str, Any]) -> None:
    """Raise if a given plan is for other units, or something that it fixes was asked for, too."""
    if (plan.unit == "user") is not has_users:
        raise PlanError(
            f"the plan protects units of kind {plan.unit!r}, but the data set has "
            f"{'' if has_users else 'no '}users: users are protected where their examples are drawn and "
            "clipped as a whole, and only then. Give ap.Dataset(rows, user=...) for a plan with "
            "unit='user', and for no other one."
        )
    for name, value in beside.items():
        if value not in (None, _DEFAULTS.get(name)):
            raise PlanError(
                f"{name}={value} was given beside plan=, which fixes it: it would be ignored. Leave it "
                "out, or make another plan."
            )


def _same_delta(certificate: Certificate, delta: float | None) -> float:
    if delta not in (None, certificate.delta):
        raise PlanError(
            f"the certificate is for δ = {certificate.delta:g}, but delta={delta} was asked for. Leave "
            "delta out, or certify the plan for it."
        )
    return certificate.delta
