"""Leading-order risk: what remains of it once the start is forgotten and nothing is clipped.

Noise multipliers are ours, the standard deviation of the noise per unit of clip norm: twice the paper's f
under replace-one, and for several steps on the same records grown by sqrt(T).
"""

from dataclasses import dataclass
from typing import final

from antiphon.checks import positive, whole
from antiphon.errors import PlanError
from antiphon_papers.relu.theory.problem import Problem

__all__ = ["LeadingRisk", "batch_one_risk", "full_batch_risk", "one_pass_risk"]


@final
@dataclass(frozen=True)
class LeadingRisk:
    """An excess risk in two parts, to leading order: an estimate and no bound.

    Attributes:
        labels: By the noise of the labels; σ²d/N for GLMtron at its best. Least squares, which reads active
            records alone, has half of that without privacy.
        privacy: By the noise of privacy.
    """

    labels: float
    privacy: float

    @property
    def value(self) -> float:
        """The sum."""
        return self.labels + self.privacy


def one_pass_risk(
    problem: Problem,
    n: int,
    steps: int,
    noise_multiplier: float,
    clip_norm: float,
    share: float = 0.5,
) -> LeadingRisk:
    """One pass over n records in T batches, averaging a share φ of the steps.

    (1/φ)(σ²d/N + κ² s² tr(H⁻¹) T/N²), κ the noise multiplier (2f): privacy costs more with every step.

    Example:
        >>> problem = Problem([1.0] + [0.0] * 9, label_noise=0.5)
        >>> round(one_pass_risk(problem, 16_000, 5, 2 * 6.61326, 4.743).value, 5)
        0.00185
    """
    n, steps, share = _checked(n, steps, share)
    each = _squared(noise_multiplier, clip_norm) * problem.inverse_trace * steps / n**2
    return LeadingRisk(_labels(problem, n) / share, each / share)


def batch_one_risk(
    problem: Problem, n: int, noise_multiplier: float, clip_norm: float
) -> LeadingRisk:
    """One pass of batches of one record, averaging all iterates: σ²d/N + κ² s² tr(H⁻¹)/N."""
    return one_pass_risk(problem, n, n, noise_multiplier, clip_norm, 1.0)


def full_batch_risk(
    problem: Problem,
    n: int,
    steps: int,
    noise_multiplier: float,
    clip_norm: float,
    share: float = 0.5,
) -> LeadingRisk:
    """T steps on all records, averaging a share φ of them: σ²d/N + κ² s² tr(H⁻¹)/(φ T N²).

    At a given ε the noise multiplier grows with sqrt(T), so that the risk does not depend on T.

    Example:
        >>> problem = Problem([1.0] + [0.0] * 9, label_noise=0.5)
        >>> round(full_batch_risk(problem, 16_000, 40, 2 * 6.61326 * 40**0.5, 4.743).value, 6)
        0.000464
    """
    n, steps, share = _checked(n, steps, share)
    noise = _squared(noise_multiplier, clip_norm) * problem.inverse_trace
    return LeadingRisk(_labels(problem, n), noise / (share * steps * n**2))


def _labels(problem: Problem, n: int) -> float:
    return problem.label_noise**2 * problem.d / n


def _squared(noise_multiplier: float, clip_norm: float) -> float:
    if not noise_multiplier >= 0:
        raise PlanError(f"noise_multiplier must be at least 0; got {noise_multiplier}.")
    return (noise_multiplier * positive("clip_norm", clip_norm)) ** 2


def _checked(n: int, steps: int, share: float) -> tuple[int, int, float]:
    if not 0 < share <= 1:
        raise PlanError(f"share is the part of the steps that is averaged, in (0, 1]; got {share}.")
    return whole("n", n), whole("steps", steps), float(share)
