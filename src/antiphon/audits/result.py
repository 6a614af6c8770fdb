"""What an audit found, beside what the certificate promised."""

import json
from dataclasses import dataclass
from typing import Any, final

from rich.table import Table

from antiphon.plain_text import plain_text

__all__ = ["VERDICT_CONFIDENCE", "VIOLATION", "Audit"]

VERDICT_CONFIDENCE = 0.999
VIOLATION = "VIOLATION: report this"


@final
@dataclass(frozen=True)
class Audit:
    """A lower confidence bound on the ε of what ran, beside the certified upper bound.

    Attributes:
        method: "one-run", "two-world" or "black-box".
        certified_epsilon: ε of the certificate.
        audited_epsilon: With ``confidence``, what ran has no smaller ε at this δ.
        delta: δ of both.
        confidence: Of ``audited_epsilon``.
        is_violation: Whether the certificate's whole curve is refuted at ``verdict_confidence``.
        verdict_confidence: Probability with which an honest trainer is not accused.
        curve: "gaussian" if the bound is on μ, because the certificate is exactly Gaussian, else "point".
        right: Right guesses, of ``guesses``.
        guesses: Guesses that counted.
        canaries: Canaries in one run, or runs.
        runs: Training runs in all, those that only chose how to guess included.
        plan: Its hash.
        seconds: Time taken.
    """

    method: str
    certified_epsilon: float
    audited_epsilon: float
    delta: float
    confidence: float
    is_violation: bool
    verdict_confidence: float
    curve: str
    right: int
    guesses: int
    canaries: int
    runs: int
    plan: str
    seconds: float

    @property
    def ratio(self) -> float:
        """Audited ε to certified ε."""
        return self.audited_epsilon / self.certified_epsilon

    @property
    def verdict(self) -> str:
        """The conclusion in words."""
        return VIOLATION if self.is_violation else "consistent"

    def to_dict(self) -> dict[str, Any]:
        """Every field, the ratio and the verdict, as JSON types."""
        return vars(self) | {"ratio": self.ratio, "verdict": self.verdict}

    def to_json(self) -> str:
        """As one line."""
        return json.dumps(self.to_dict())

    def __rich__(self) -> Table:
        """For a rich console."""
        view = Table(title=f"Audit ({self.method})", show_header=False, title_justify="left")
        view.add_column(style="bold", no_wrap=True)
        view.add_column()
        for name, text in self._lines():
            view.add_row(name, text)
        return view

    def __str__(self) -> str:
        return plain_text(self.__rich__())

    def _lines(self) -> list[tuple[str, str]]:
        what = {"two-world": "runs"}.get(self.method, "canaries")
        return [
            ("certified", f"ε ≤ {self.certified_epsilon:.4g} at δ = {self.delta:g}"),
            (
                "audited",
                f"ε ≥ {self.audited_epsilon:.4g}, at {100 * self.confidence:g} % confidence",
            ),
            ("ratio", f"{self.ratio:.2f}"),
            ("verdict", f"{self.verdict} (tested at {100 * self.verdict_confidence:g} %)"),
            (
                "how",
                f"{self.right} of {self.guesses} guesses right, about {self.canaries} {what}, "
                f"{self.runs} runs, {self.seconds:.1f} s; bound by the "
                + ("Gaussian curve" if self.curve == "gaussian" else "point (ε, δ)"),
            ),
        ]
