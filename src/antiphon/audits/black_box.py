"""Audit of a finished model with planted canaries: the attacker sees its losses and nothing else.

`plant` throws the coins, any trainer makes the model, `losses_of` asks it, `black_box` guesses and counts.
What is learnt from the losses alone is much less than from every noisy gradient (`one_run`); but nothing
needs to be known of the trainer, and the data are the user's own.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphon.audits.claim import bound_on_epsilon, curve_of, is_gaussian
from antiphon.audits.one_run_bounds import is_refuted
from antiphon.audits.planting import Planted
from antiphon.audits.result import VERDICT_CONFIDENCE, Audit
from antiphon.certificates import Certificate
from antiphon.checks import whole
from antiphon.errors import PlanError
from antiphon.participation import Relation

__all__ = ["black_box", "losses_of"]


def black_box(
    losses: Any,
    planted: Any,
    certificate: Certificate,
    *,
    guesses: int | None = None,
    reference: Any = None,
    confidence: float = 0.95,
    verdict_confidence: float = VERDICT_CONFIDENCE,
) -> Audit:
    """Guess from a model's losses which canaries it was trained on, and bound ε from below.

    A canary's score is its reference minus its loss. The highest scores are guessed to be in, the lowest
    to be out, as many of each. Coins are used to count right guesses and for nothing else.

    Args:
        losses: Of the finished model, one for each canary (`losses_of`).
        planted: What `plant` returned; or its coins, True for each canary that is in.
        certificate: The claim. A coin must decide what its relation speaks of.
        guesses: How many coins are guessed, an even number that is fixed before the losses are seen;
            unless given, a third of the canaries.
        reference: What to expect of each canary, for instance its mean loss under models that never saw
            it, so that canaries that are hard for every model do not all seem to be out. It must not
            depend on the coins, but for what the model shows of them. Unless given, the same for all. A
            bad one costs power, never validity; bound large losses first, in both alike.
        confidence: Of the audited ε.
        verdict_confidence: A violation is declared at this confidence.

    Guarantee:
        If the coins are fair and independent of each other and of everything else, and the model depends
        on each of them no more than certified, then ``audited_epsilon`` is at most its ε with probability
        ``confidence``, whatever data, canaries and trainer (`antiphon.audits.one_run_bounds`). The
        verdict "consistent" proves nothing: losses show little of what a model may hold.

    Example:
        >>> from antiphon import FullBatch, Plan, certify
        >>> from antiphon.mechanisms import Independent
        >>> plan = Plan(n=100, sampling=FullBatch(), steps=1, mechanism=Independent(), noise_multiplier=4)
        >>> coins = np.random.default_rng(0).random(300) < 0.5
        >>> audit = black_box(np.where(coins, 0.1, 2.3), coins, certify(plan, delta=1e-5))
        >>> audit.right, audit.guesses, audit.verdict
        (100, 100, 'VIOLATION: report this')
    """
    began = time.perf_counter()
    coins = _coins(planted, certificate)
    count = len(coins)
    chosen = _guesses(guesses, count)
    scores = -_numbers("losses", losses, count)
    if reference is not None:
        scores = scores + _numbers("reference", reference, count)
    order = np.argsort(scores, kind="stable")
    is_in, is_out = order[count - chosen // 2 :], order[: chosen // 2]
    right = int(coins[is_in].sum() + (~coins[is_out]).sum())
    return Audit(
        method="black-box",
        certified_epsilon=certificate.epsilon,
        audited_epsilon=bound_on_epsilon(certificate, right, chosen, count, confidence),
        delta=certificate.delta,
        confidence=confidence,
        is_violation=is_refuted(curve_of(certificate), right, chosen, count, verdict_confidence),
        verdict_confidence=verdict_confidence,
        curve="gaussian" if is_gaussian(certificate) else "point",
        right=right,
        guesses=chosen,
        canaries=count,
        runs=1,
        plan=certificate.plan.hash,
        seconds=time.perf_counter() - began,
    )


def losses_of(
    model: nn.Module, loss: Callable[..., Tensor], canaries: Any, batch: int = 1000
) -> NDArray[np.float64]:
    """The model's loss of each canary, in evaluation mode and without gradients.

    Args:
        model: Called with the canaries' first part. Each of its modules is left in the mode it was in.
        loss: Called with the model's output and the canaries' other parts; returns one number for each
            row, as ``partial(cross_entropy, reduction="none")`` does.
        canaries: Tensors or arrays with a row for each canary, such as (X, y).
        batch: Most rows that are computed together.

    Example:
        >>> model, square = nn.Identity(), lambda output, y: (output - y) ** 2
        >>> losses_of(model, square, (torch.zeros(3), torch.tensor([0.0, 1.0, 2.0])))
        array([0., 1., 4.])
    """
    parts = [torch.as_tensor(part) for part in canaries]
    if not parts or len({len(part) for part in parts}) != 1 or not len(parts[0]):
        raise PlanError(
            "canaries must be tensors or arrays with a row for each canary, at least one, such as (X, y); "
            f"got lengths {[len(part) for part in parts]}."
        )
    where = next(model.parameters(), parts[0]).device
    found = []
    with _evaluating(model), torch.no_grad():
        for rows in zip(*(torch.split(part, whole("batch", batch)) for part in parts), strict=True):
            inputs, *others = (part.to(where) for part in rows)
            values = loss(model(inputs), *others)
            if values.shape != (len(inputs),):
                raise PlanError(
                    f"the loss must be one number for each of {len(inputs)} rows; got shape "
                    f"{tuple(values.shape)}. Give one with reduction='none', and average over what is "
                    "within a row."
                )
            found.append(values.double().cpu().numpy())
    return _numbers("losses", np.concatenate(found), len(parts[0]))


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode; afterwards each module is as it was, also where only some were training."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, is_training in modes:
            module.training = is_training


def _coins(planted: Any, certificate: Certificate) -> NDArray[np.bool_]:
    if isinstance(planted, Planted):
        _check_claim(planted, certificate)
        return planted.coins
    coins = np.asarray(planted)
    if coins.dtype != np.bool_ or coins.ndim != 1:
        raise PlanError(
            "coins are booleans in one dimension, True for each canary that is in, or what plant() "
            f"returned; got {coins.dtype} of shape {coins.shape}."
        )
    return coins


def _check_claim(planted: Planted, certificate: Certificate) -> None:
    """Raise if what the coins decided is not what the certificate speaks of."""
    if planted.relation is not certificate.relation:
        raise PlanError(
            f"the coins decided {planted.relation}, but the certificate is for {certificate.relation}, of "
            "which they say nothing. Plant for the relation of the certificate."
        )
    plan, rows = certificate.plan, len(planted.data[0])
    told = plan.n == rows != planted.n and plan.unit == "example"
    if planted.relation is Relation.ADD_REMOVE and told:
        raise PlanError(
            f"the plan's n is {rows}, the number of rows that the coins left, but n is public: it must not "
            f"tell how many canaries are in. Train with n=planted.n ({planted.n}); or, if this n was fixed "
            "before the coins, give planted.coins."
        )


def _guesses(guesses: int | None, count: int) -> int:
    if count < 2:
        raise PlanError(
            f"at least 2 canaries are needed, one to be guessed in and one out; got {count}. Some hundreds "
            "make a useful audit."
        )
    if guesses is None:
        return max(2, 2 * round(count / 6))
    if whole("guesses", guesses) % 2 or guesses > count:
        raise PlanError(
            f"guesses must be an even number, half in and half out, of at most the {count} canaries; got "
            f"{guesses}."
        )
    return int(guesses)


def _numbers(name: str, values: Any, count: int) -> NDArray[np.float64]:
    detached = values.detach().cpu() if isinstance(values, Tensor) else values
    numbers = np.asarray(detached, dtype=np.float64)
    if numbers.shape != (count,):
        raise PlanError(
            f"{name} must be one number for each of the {count} canaries; got shape {numbers.shape}."
        )
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        raise PlanError(
            f"{name} must be finite; {len(bad)} of {count} are not, the first is number {bad[0]}: "
            f"{numbers[bad[0]]}. If the model diverged, there is nothing to audit; else bound the loss."
        )
    return numbers
