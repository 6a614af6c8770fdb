"""What right guesses say against a certificate, by the curve that it really claims."""

from antiphon.accounting import gaussian_epsilon, gaussian_mu
from antiphon.audits.hypotheses import AbstractCurve, GaussianCurve, ProfileCurve
from antiphon.audits.one_run_bounds import epsilon_from_one_run, mu_from_one_run
from antiphon.certificates import Certificate

__all__ = ["bound_on_epsilon", "curve_of", "epsilon_of", "is_gaussian"]


def is_gaussian(certificate: Certificate) -> bool:
    """Whether the claim is a Gaussian curve as a whole, and holds for every pattern of participation."""
    return certificate.route == "gaussian"


def epsilon_of(mu: float, certificate: Certificate) -> float:
    """The ε of a bound on μ, at the certificate's δ."""
    return gaussian_epsilon(mu, certificate.delta) if mu > 0 else 0.0


def curve_of(certificate: Certificate) -> AbstractCurve:
    """All that the certificate proves: what a verdict tests.

    A verdict on the single pair (ε, δ) would be idle: a mechanism may show everything with probability δ
    for each of m canaries, and where m δ is above the verdict's failure probability, no outcome refutes it.
    """
    if is_gaussian(certificate):
        return GaussianCurve(gaussian_mu(certificate.epsilon, certificate.delta))
    return ProfileCurve(certificate.curve)


def bound_on_epsilon(
    certificate: Certificate, right: int, guesses: int, canaries: int, confidence: float
) -> float:
    """The largest ε that is refuted at the certificate's δ; 0 if there is none.

    Args:
        certificate: The claim: a bound on μ is used where it is exactly Gaussian, else one on (ε, δ).
        right: How many of the guesses were right.
        guesses: How many of the coins were guessed. Fixed in advance.
        canaries: How many fair, independent coins there were.
        confidence: Probability with which the bound holds, in (0, 1).

    Guarantee:
        That of `mu_from_one_run`, or of `epsilon_from_one_run`.
    """
    if is_gaussian(certificate):
        return epsilon_of(mu_from_one_run(right, guesses, canaries, confidence), certificate)
    return epsilon_from_one_run(right, guesses, canaries, certificate.delta, confidence)
