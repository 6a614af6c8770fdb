"""The methods of private ReLU regression as plans.

============  =======================  =========  ==========  =========  ===========
method        batches                  direction  noise       clip norm  relation
============  =======================  =========  ==========  =========  ===========
full-batch    all records, every step  GLMtron    white       fixed      add-remove
poisson       Poisson                  GLMtron    white       fixed      add-remove
mb-glmtron    one shuffled pass        GLMtron    white       threshold  replace-one
glmtron       one, record by record    GLMtron    white       threshold  replace-one
ta-glmtron    one, record by record    GLMtron    tree        fixed      replace-one
sgd           one shuffled pass        gradient   white       fixed      replace-one
pgd           all records, every step  gradient   white       fixed      add-remove
============  =======================  =========  ==========  =========  ===========
"""

from typing import Any, NamedTuple

from antiphon.checks import whole
from antiphon.errors import PlanError
from antiphon.mechanisms import AbstractMechanism, Independent, Tree
from antiphon.plans import AbstractSampling, FullBatch, Plan, Poisson, ShuffledEpochs
from antiphon.tables.estimators.settings import batch_for

__all__ = ["METHODS", "Method", "method_of", "pass_steps", "passes", "scheme"]

_STEPS = 300
_VOTED_STEPS = 10  # of one pass whose clip norms are voted on: more leave too few voters in a batch


class Method(NamedTuple):
    """What a method's name stands for.

    Attributes:
        batches: "full-batch", "poisson", "pass" or "single".
        direction: "glmtron" or "sgd".
        mechanism: Its own noise.
        clip: Its own way to a clip norm.
    """

    batches: str
    direction: str
    mechanism: AbstractMechanism
    clip: str


METHODS = {
    "full-batch": Method("full-batch", "glmtron", Independent(), "fixed"),
    "poisson": Method("poisson", "glmtron", Independent(), "fixed"),
    "mb-glmtron": Method("pass", "glmtron", Independent(), "threshold"),
    "glmtron": Method("single", "glmtron", Independent(), "threshold"),
    "ta-glmtron": Method("single", "glmtron", Tree(), "fixed"),
    "sgd": Method("pass", "sgd", Independent(), "fixed"),
    "pgd": Method("full-batch", "sgd", Independent(), "fixed"),
}
_NAMES = {"full-batch": "full-batch", "poisson": "poisson"}  # of samplings; else "shuffled"


def method_of(name: Any, sampling: Any) -> Method:
    """The method of this name, if ``sampling`` is None or its own."""
    if name not in METHODS:
        raise PlanError(f"method is one of {', '.join(METHODS)}; got {name!r}.")
    method = METHODS[name]
    own = _NAMES.get(method.batches, "shuffled")
    if sampling not in (None, own):
        raise PlanError(
            f"method={name!r} draws batches its own way, {own!r}, and is accounted for as such; got "
            f"sampling={sampling!r}. Choose the method that draws them so, and leave sampling out."
        )
    return method


def pass_steps(n: int, mu: float) -> int:
    """Steps of one pass in batches: many enough to arrive, as few as the noise demands.

    With T steps, batches of n/T and noise of 2/μ clip norms, the noise of the whole pass is 2 T^1.5/(n μ)
    times the length of a step. T keeps that at 0.6, within 300.

    Example:
        >>> pass_steps(400, 0.4), pass_steps(16_000, 0.3), pass_steps(10**6, 0.3)
        (13, 127, 300)
    """
    return int(min(max((0.3 * n * mu) ** (2 / 3), 2), _STEPS, n))


def scheme(
    method: Method,
    n: int,
    columns: int,
    *,
    steps: int | None,
    batch_size: int | None,
    mu: float,
    is_voted: bool = False,
) -> tuple[AbstractSampling, int]:
    """How batches are drawn, and how many steps there are.

    Args:
        method: The method.
        n: Records.
        columns: Of the table.
        steps: As the user wants it, or None.
        batch_size: As the user wants it, or None.
        mu: The budget as a Gaussian release.
        is_voted: Whether records vote on clip norms.
    """
    T = None if steps is None else whole("steps", steps)
    size = None if batch_size is None else whole("batch_size", batch_size)
    if size is not None and size > n:
        raise PlanError(f"batch_size={size} is larger than the {n} records of the data.")
    match method.batches:
        case "full-batch":
            if size is not None:
                raise PlanError(
                    f"batch_size={size} was given, but this method's batches are all records. Leave it "
                    "out, or use method='poisson'."
                )
            return FullBatch(), T or _STEPS
        case "poisson":
            return Poisson((size or batch_for(n, columns)) / n), T or _STEPS
        case "single":
            if T is not None or size not in (None, 1):
                raise PlanError(
                    f"this method takes one step with each of the {n} records; got steps={steps} and "
                    f"batch_size={batch_size}. Leave both out, or use method='mb-glmtron'."
                )
            return ShuffledEpochs(1), n
    usual = min(n // 2, _VOTED_STEPS) if is_voted else pass_steps(n, mu)
    T = T or (usual if size is None else n // size)
    size = n // T if size is None else size
    if not 0 < T * size <= n:
        raise PlanError(
            f"{T} steps with batches of {size} are more than one pass over {n} records. Lower one of them: "
            "this method is private because it uses each record once."
        )
    return ShuffledEpochs(size), T


def passes(plan: Plan) -> str:
    """How often a record is used, for the certificate."""
    match plan.sampling:
        case FullBatch():
            return (
                f"each record is used in all {plan.steps} steps: {plan.steps} passes over the data"
            )
        case Poisson(rate):
            return (
                f"each record is used in each of {plan.steps} steps with probability {rate:.4g}: "
                f"{rate * plan.steps:.4g} passes over the data on average"
            )
    return (
        f"each record is used at most once: one pass over the data in a secret random order, "
        f"{plan.steps} steps"
    )
