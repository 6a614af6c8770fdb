"""The picture of an audit: what the certificate forbids, and what the attacks reached."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from antiphon.accounting import gaussian_mu, gaussian_trade_off
from antiphon.audits.claim import is_gaussian
from antiphon.audits.result import VERDICT_CONFIDENCE
from antiphon.audits.trial_bounds import TradeOffBand
from antiphon.certificates import Certificate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from antiphon.audits.audit_report import AuditReport
    from antiphon.audits.two_world import Worlds

__all__ = ["plot_audit"]

_Array = NDArray[np.float64]

# Blue and vermilion stay apart for readers who see few colours, and in grey print by their lightness.
_CLAIM, _ATTACK, _FORBIDDEN = "#D55E00", "#0072B2", "#F0D9CC"
_RATES = np.concatenate([[0.0], np.geomspace(1e-6, 0.01, 60), np.linspace(0.01, 1, 241)[1:]])


def plot_audit(report: "AuditReport") -> "Figure":
    """Two panels: error rates of the two-world audit over the certified curve, and every ε.

    The certified curve is the least rate of false negatives that the certificate allows at each rate of
    false positives; what lies below it no attack can reach. For a Gaussian claim it is that of its μ, else
    that of the certificate's proved points. Over it are the rates of the two-world audit's score at
    thresholds fixed in advance.

    Args:
        report: What was found.

    Returns:
        A matplotlib figure, bound to no window: save it with ``savefig``.

    Guarantee:
        With probability 99.9 % both rates of the score, at all thresholds at once and for tests that toss
        a coin between two of them, lie within the band (`Worlds.band`). Where all of it is below the
        curve, the certificate is refuted. The verdict comes from tests of its own, which may see more.
    """
    from matplotlib.figure import Figure

    picture = Figure(figsize=(11, 5), layout="constrained")
    left, right = picture.subplots(1, 2)
    _draw_trade_off(left, report.certificate, report.worlds)
    _draw_epsilons(right, report)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    claim = report.certificate
    picture.suptitle(
        f"Audit of ε ≤ {claim.epsilon:.4g} at δ = {claim.delta:.4g}: {report.verdict}",
        weight="bold",
        color=_CLAIM if report.is_violation else "black",
    )
    return picture


def _draw_trade_off(axes: "Axes", certificate: Certificate, worlds: "Worlds | None") -> None:
    curve = _certified(certificate)
    axes.fill_between(
        _RATES, 0, curve, color=_FORBIDDEN, lw=0, label="impossible if the certificate is true"
    )
    axes.plot([0, 1], [1, 0], color="0.5", lw=1, ls=":", label="guessing blindly")
    # Runs in one world only have no rate of the other kind.
    if worlds is not None and worlds.is_in.any() and not worlds.is_in.all():
        band = worlds.band()
        label = f"{100 * VERDICT_CONFIDENCE:g} % band, all thresholds at once"
        axes.fill(*_outline(band), color=_ATTACK, alpha=0.25, lw=0, label=label)
        label = f"attack on {len(worlds.scores)} runs"
        axes.plot(band.alpha, band.beta, "o", color=_ATTACK, ms=3.5, label=label)
    else:
        axes.text(0.72, 0.5, "no two-world runs", ha="center", color="0.35")
    axes.plot(_RATES, curve, color=_CLAIM, lw=2, label="certified")
    axes.set(
        xlim=(0, 1),
        ylim=(0, 1),
        aspect="equal",
        xlabel="false-positive rate\nwhere the whole band is below the curve, it is refuted",
        ylabel="false-negative rate",
        title="Errors of attacks",
    )
    axes.legend(frameon=False, loc="upper right", fontsize=9)


def _certified(certificate: Certificate) -> _Array:
    """The least rate of false negatives at each of `_RATES`."""
    if is_gaussian(certificate):
        mu = gaussian_mu(certificate.epsilon, certificate.delta)
        return 1 - gaussian_trade_off(mu, _RATES)
    profile = certificate.profile
    return 1 - np.array([profile.true_positive(float(rate)) for rate in _RATES])


def _outline(band: TradeOffBand) -> tuple[_Array, _Array]:
    """The corners of a region that holds both rates of every test that the thresholds allow.

    At a threshold the rates lie in a box. A test that tosses a coin between two neighbouring thresholds
    has rates in the convex hull of their boxes, whose edges join the lower and the upper corners. The
    tests that always and never say yes, at (1, 0) and (0, 1), are the ends.
    """
    alpha = [1.0, *band.alpha_low, 0.0, *band.alpha_high[::-1]]
    beta = [0.0, *band.beta_low, 1.0, *band.beta_high[::-1]]
    return np.array(alpha), np.array(beta)


def _draw_epsilons(axes: "Axes", report: "AuditReport") -> None:
    claim, noise = report.certificate, report.noise
    names = ["certified", *(audit.method for audit in report.audits)]
    values = [claim.epsilon, *(audit.audited_epsilon for audit in report.audits)]
    texts = [f"ε ≤ {claim.epsilon:.4g}"]
    texts += [f"ε ≥ {a.audited_epsilon:.4g} ({100 * a.confidence:g} %)" for a in report.audits]
    colours = [_CLAIM] + [_ATTACK] * len(report.audits)
    bars = axes.barh(range(len(names)), values, tick_label=names, color=colours, height=0.6)
    axes.bar_label(bars, texts, padding=4, bbox={"color": "white", "pad": 1})
    axes.axvline(claim.epsilon, color=_CLAIM, lw=1, ls="--")
    axes.invert_yaxis()
    axes.margins(x=0.35)
    axes.set(
        xlabel=f"ε at δ = {claim.delta:.4g}\n"
        f"noise: scale {noise.scale:.4f} of the planned, p = {noise.p_value:.2g}",
        title="ε: at most by proof, at least by attack",
    )
