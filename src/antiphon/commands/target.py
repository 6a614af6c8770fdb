"""From a file or folder to the plan or certificate in it, proved again where that is cheap."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from antiphon.accounting import SLOW, best_account, check_delta, sampled_routes
from antiphon.certificates import Certificate, certify
from antiphon.checks import positive
from antiphon.errors import PlanError, StateError
from antiphon.plans import Plan, delta_of
from antiphon.training.checkpoints import peek, read_export

__all__ = ["checked", "find", "read"]

_MODEL = "model.safetensors"  # in the folder of `antiphon train`
_RTOL = 1e-9  # two proofs of one ε differ by rounding
_MALFORMED = (AttributeError, KeyError, RecursionError, TypeError, ValueError)

Found = tuple[Certificate, tuple[str, ...]]


def read(target: Path, delta: float | None = None) -> Found:
    """The certificate at ``target``, and remarks for the user.

    Args:
        target: The folder of a run or of ``antiphon train``, an exported ``.safetensors`` file, or the
            JSON of a certificate or a plan.
        delta: δ at which a plan is certified, n^-1.1 unless given. A certificate has its own.

    Guarantee:
        ε is proved here and now by this version, or the remarks say that it is not: a Monte Carlo bound
        takes minutes, and is taken from the file. A file that claims a smaller ε than is proved is refused.
    """
    found, notes = find(target)
    if isinstance(found, Plan):
        return _certified(found, delta), notes
    if delta is not None and not math.isclose(delta, found.delta, rel_tol=_RTOL):
        raise PlanError(
            f"the certificate is for δ = {found.delta:g}, not {delta:g}: leave --delta out, or audit the "
            "plan instead."
        )
    certificate, more = checked(found)
    return certificate, (*notes, *more)


def find(target: Path) -> tuple[Plan | Certificate, tuple[str, ...]]:
    """What ``target`` holds, whatever it claims, and remarks for the user.

    Args:
        target: As for `read`.
    """
    if (target / _MODEL).is_file():
        target = target / _MODEL
    if target.is_dir():
        meta, is_running = peek(target)
        note = f"a process holds the run in {target}; its certificate is that of the whole plan."
        return _certificate(target, meta), (note,) if is_running else ()
    if target.suffix == ".safetensors":
        return _certificate(target, read_export(target)[1]), ()
    values = _json(target)
    if "plan" in values:
        return _certificate(target, {"certificate": values}), ()
    return _plan(target, values), ()


def _json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_bytes())
    except (RecursionError, ValueError) as error:
        raise PlanError(f"{path} is not JSON: {error}.") from error
    if not isinstance(values, dict) or not {"plan", "sampling"} & set(values):
        raise PlanError(
            f"{path} holds neither a certificate nor a plan: write one with certificate.to_json() or "
            "plan.to_json()."
        )
    return values


def _plan(path: Path, values: dict[str, Any]) -> Plan:
    try:
        return Plan.from_json(json.dumps(values))
    except _MALFORMED as error:
        raise PlanError(f"{path} holds no plan that can run: {error}") from error


def _certificate(path: Path, meta: dict[str, Any]) -> Certificate:
    """The certificate in what was read, whatever it claims."""
    try:
        found = meta["certificate"]
        certificate = Certificate.from_json(found if isinstance(found, str) else json.dumps(found))
        positive("its ε", certificate.epsilon)
        check_delta(positive("its δ", certificate.delta))
    except _MALFORMED as error:
        raise StateError(f"{path} holds no certificate that can be checked: {error}") from error
    return certificate


def _certified(plan: Plan, delta: float | None) -> Certificate:
    plan.known_mechanism()  # each of the two says what to do without it
    if not plan.blocks:
        plan.known_noise()
    certificate = certify(plan, delta_of(delta, plan.n))
    positive("ε of the plan", certificate.epsilon)
    return certificate


def checked(claim: Certificate, *, anew: bool = False) -> Found:
    """The claim, if it can be proved again or comes from Monte Carlo, and remarks for the user.

    Args:
        claim: A certificate, whatever it claims.
        anew: Prove a Monte Carlo bound again, too, which may take minutes, or refuse it.

    Guarantee:
        As for `read`; with ``anew``, ε is proved by this call.
    """
    if anew and claim.confidence is not None:
        if not sampled_routes(claim.plan):
            raise StateError("the file claims a Monte Carlo bound, but its plan has none.")
        return certify(claim.plan, claim.delta, epsilon=claim.epsilon), ()
    if claim.confidence is not None and claim.route in {
        r.route for r in sampled_routes(claim.plan)
    }:
        note = f"ε = {claim.epsilon:.4g} is a Monte Carlo bound, taken from the file as it stands."
        return claim, (note,)
    is_slow = claim.route in SLOW
    account = best_account(claim.plan, claim.delta, tight=is_slow)
    proved = account.profile.epsilon(claim.delta)
    if claim.epsilon < proved * (1 - _RTOL):
        raise StateError(
            f"the file claims ε = {claim.epsilon:.10g}, but only {proved:.10g} is proved for its plan: it "
            "was changed, or an earlier version was wrong. Certify the plan again."
        )
    # All but ε is made anew: the attack depends on why ε holds.
    own = certify(claim.plan, claim.delta, epsilon=max(claim.epsilon, proved), tight=is_slow)
    if claim.epsilon > proved * (1 + _RTOL):
        note = f"the file claims ε = {claim.epsilon:.10g}; {proved:.10g} is proved now, and taken."
        return own, (note,)
    return replace(own, epsilon=claim.epsilon), ()
