"""All audits of one certificate, and one verdict."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from rich.table import Table

from antiphon.audits.claim import is_gaussian
from antiphon.audits.one_run import one_run
from antiphon.audits.result import VERDICT_CONFIDENCE, VIOLATION, Audit
from antiphon.audits.trainer import Trainer, train
from antiphon.audits.two_world import Worlds, play
from antiphon.audits.whiteness import Whiteness, whiteness
from antiphon.certificates import Certificate
from antiphon.plain_text import plain_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["AuditReport", "audit"]

_QUICK, _FULL = 20.0, 300.0  # seconds of two-world runs that are aimed at
_FEWEST, _MOST = 200, 20_000  # runs that are worth the while,
_FEWEST_OF_POINT = 1000  # and for a claim of one point (ε, δ), whose bound needs rare events


@final
@dataclass(frozen=True)
class AuditReport:
    """What every audit of a certificate found.

    Attributes:
        certificate: The claim.
        audits: The audits that attack ε.
        noise: The test of the noise itself.
        worlds: The scores of the two-world audit, for its picture; None if it was left out.
        verdict_confidence: With this probability no honest trainer is accused by any part.
    """

    certificate: Certificate
    audits: tuple[Audit, ...]
    noise: Whiteness
    worlds: Worlds | None
    verdict_confidence: float

    @property
    def audited_epsilon(self) -> float:
        """The largest of the bounds; they hold together at 95 %."""
        return max(audit.audited_epsilon for audit in self.audits)

    @property
    def ratio(self) -> float:
        """Audited ε to certified ε."""
        return self.audited_epsilon / self.certificate.epsilon

    @property
    def is_violation(self) -> bool:
        """Whether any part refutes the claim."""
        limit = (1 - self.verdict_confidence) / (len(self.audits) + 1)
        return any(audit.is_violation for audit in self.audits) or self.noise.p_value < limit

    @property
    def verdict(self) -> str:
        """The conclusion in words."""
        return VIOLATION if self.is_violation else "consistent"

    def to_json(self) -> str:
        """The four numbers that count, then every part."""
        values: dict[str, Any] = {
            "certified_epsilon": self.certificate.epsilon,
            "audited_epsilon": self.audited_epsilon,
            "ratio": self.ratio,
            "verdict": self.verdict,
            "delta": self.certificate.delta,
            "verdict_confidence": self.verdict_confidence,
            "audits": [audit.to_dict() for audit in self.audits],
            "noise": vars(self.noise),
            "plan": json.loads(self.certificate.plan.to_json()),
        }
        return json.dumps(values)

    def plot(self) -> "Figure":
        """The certified trade-off with the attacks on it, beside every ε: a matplotlib figure."""
        from antiphon.audits.audit_figure import plot_audit

        return plot_audit(self)

    def __rich__(self) -> Table:
        """For a rich console."""
        claim = self.certificate
        view = Table(
            title=f"Audit of a certificate: ε ≤ {claim.epsilon:.4g} at δ = {claim.delta:g}",
            caption=f"verdict: {self.verdict} (an honest trainer passes in "
            f"{100 * self.verdict_confidence:g} % of audits)",
            title_justify="left",
            caption_justify="left",
        )
        for name in ("audit", "ε is at least", "of certified", "right guesses", "seconds"):
            view.add_column(name, justify="left" if name == "audit" else "right")
        for audit in self.audits:
            view.add_row(
                audit.method,
                f"{audit.audited_epsilon:.4g}",
                f"{100 * audit.ratio:.0f} %",
                f"{audit.right} of {audit.guesses}",
                f"{audit.seconds:.1f}",
            )
        noise = self.noise
        view.add_row("noise", "", "", f"scale {noise.scale:.4f}, p = {noise.p_value:.2g}", "")
        return view

    def __str__(self) -> str:
        return plain_text(self.__rich__())


def audit(
    certificate: Certificate,
    *,
    quick: bool = False,
    runs: int | None = None,
    seed: int = 0,
    jobs: int = 1,
    trainer: Trainer = train,
) -> AuditReport:
    """Attack real runs of a certificate's plan in every way that is known here.

    Args:
        certificate: The claim, with its plan.
        quick: Within about a minute, with fewer canaries and runs.
        runs: Of the two-world audit; unless given, as many as fit, none if those are too few to find
            anything. 0 leaves it out.
        seed: Of coins, noise and batches.
        jobs: Processes for the two-world audit.
        trainer: What is attacked; unless given, the trainer that everyone uses.

    Guarantee:
        If what runs is private as certified and its noise as planned, then no bound is above the certified
        ε with probability 95 %, and the verdict is "consistent" with probability 99.9 %.
    """
    if runs is None:
        play(certificate, 1, seed=seed, trainer=trainer)  # what is loaded once does not count
        each = play(certificate, 2, seed=seed, trainer=trainer).seconds / 2
        room = (_QUICK if quick else _FULL) * jobs / each
        fewest = _FEWEST if is_gaussian(certificate) else _FEWEST_OF_POINT
        runs = min(_MOST, int(room)) if room >= fewest else 0
    parts = 2 if runs else 1
    confidence = 1 - 0.05 / parts
    strict = 1 - (1 - VERDICT_CONFIDENCE) / (parts + 1)
    noise = whiteness(certificate, seed=seed, trainer=trainer)
    audits = [
        one_run(
            certificate, numbers=2e6 if quick else 2e7, confidence=confidence,
            verdict_confidence=strict, seed=seed, trainer=trainer,
        )
    ]  # fmt: skip
    worlds = None
    if runs:
        worlds = play(certificate, runs, seed=seed, jobs=jobs, trainer=trainer)
        audits.append(worlds.audit(confidence, strict))
    return AuditReport(certificate, tuple(audits), noise, worlds, VERDICT_CONFIDENCE)
