"""The picture shows the numbers of the report: they are read off its lines, areas and bars."""

import io
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from antiphon.accounting import gaussian_mu
from antiphon.audits import AuditReport, Whiteness, Worlds
from antiphon.audits.audit_figure import plot_audit
from antiphon.certificates import certify
from antiphon.mechanisms import Independent
from antiphon.plans import FullBatch, Plan, Poisson

DELTA = 1e-5
GAUSSIAN = Plan(n=100, sampling=FullBatch(), steps=2, mechanism=Independent(), noise_multiplier=1.5)
SAMPLED = replace(GAUSSIAN, sampling=Poisson(0.3), noise_multiplier=1.0)


def report(plan=GAUSSIAN, runs=2000, mu=0.9, **changes):
    """What an attack of strength μ would find; no run is made."""
    certificate = replace(certify(plan, DELTA), **changes)
    rng = np.random.default_rng(5)
    is_in = rng.random(runs) < 0.5
    scores = mu * (rng.standard_normal(runs) + np.where(is_in, mu, -mu) / 2)
    worlds = Worlds(certificate, scores, is_in, 1.0)
    alone = replace(worlds.audit(), method="one-run")
    noise = Whiteness(scale=1.0, correlation=0.01, p_value=0.5, places=1000)
    return AuditReport(certificate, (alone, worlds.audit()), noise, worlds, 0.999)


def line(axes, label):
    (found,) = (line for line in axes.lines if line.get_label() == label)
    return found.get_xydata().T


def area(axes, label):
    found = [*axes.collections, *axes.patches]
    (patch,) = (patch for patch in found if str(patch.get_label()).startswith(label))
    return patch


def test_points_and_band_are_those_of_the_two_world_runs():
    found = report()
    axes = found.plot().axes[0]
    band = found.worlds.band()
    np.testing.assert_array_equal(line(axes, "attack on 2000 runs"), [band.alpha, band.beta])
    outline = area(axes, "99.9 % band").get_path()
    corners = {tuple(xy) for xy in outline.vertices}
    for name in ("low", "high"):
        edges = getattr(band, f"alpha_{name}"), getattr(band, f"beta_{name}")
        assert set(zip(*edges, strict=True)) <= corners
    inner = (band.alpha > 0.02) & (band.alpha < 0.98)
    points = np.column_stack([band.alpha, band.beta])[inner]
    assert inner.sum() > 5
    assert outline.contains_points(points).all()


def test_a_gaussian_claim_is_drawn_as_its_exact_curve():
    found = report()
    alpha, beta = line(found.plot().axes[0], "certified")
    mu = gaussian_mu(found.certificate.epsilon, DELTA)
    np.testing.assert_allclose(beta, norm.cdf(norm.isf(alpha) - mu), atol=1e-12)


@pytest.mark.parametrize("plan", [GAUSSIAN, SAMPLED], ids=["gaussian", "sampled"])
def test_the_certified_curve_is_convex_falls_and_bounds_what_is_impossible(plan):
    found = report(plan)
    axes = found.plot().axes[0]
    alpha, beta = line(axes, "certified")
    assert (alpha[0], alpha[-1], beta[-1]) == (0, 1, pytest.approx(0, abs=1e-12))
    slopes = np.diff(beta) / np.diff(alpha)
    assert (slopes <= 1e-12).all()
    assert (np.diff(slopes) >= -1e-6 * np.abs(slopes[:-1])).all()
    assert (beta <= 1 - alpha + 1e-12).all()
    epsilon = found.certificate.epsilon
    assert (np.exp(epsilon) * alpha + beta + DELTA >= 1 - 1e-9).all()
    # The exact curve of a Gaussian claim is never below what follows from its proved points.
    proved = [1 - found.certificate.profile.true_positive(rate) for rate in alpha]
    assert (beta >= np.array(proved) - 1e-9).all()
    shaded = area(axes, "impossible").get_paths()[0]
    middle = len(alpha) // 2
    assert shaded.contains_point((alpha[middle], beta[middle] - 0.01))
    assert not shaded.contains_point((alpha[middle], beta[middle] + 0.01))


def test_bars_are_the_certified_epsilon_and_every_bound():
    found = report()
    axes = found.plot().axes[1]
    shown = dict(
        zip(
            (text.get_text() for text in axes.get_yticklabels()),
            (bar.get_width() for bar in axes.patches),
            strict=True,
        )
    )
    assert shown == {
        "certified": found.certificate.epsilon,
        **{audit.method: audit.audited_epsilon for audit in found.audits},
    }
    assert len({bar.get_facecolor() for bar in axes.patches}) == 2


def test_the_title_says_the_verdict():
    assert plot_audit(report()).get_suptitle().endswith(": consistent")
    # An attack of μ = 3 beats a claim of ε = 0.5, and the whole band is below the curve somewhere.
    refuted = report(mu=3.0, epsilon=0.5)
    picture = plot_audit(refuted)
    assert picture.get_suptitle().endswith("VIOLATION: report this")
    alpha, beta = line(picture.axes[0], "certified")
    band = refuted.worlds.band()
    assert (band.beta_high < np.interp(band.alpha_high, alpha, beta)).any()


def test_without_two_world_runs_the_panel_says_so():
    found = report()
    alone = replace(found, worlds=None, audits=found.audits[:1])
    one_sided = replace(found.worlds, is_in=np.ones_like(found.worlds.is_in))
    for bare in (alone, replace(alone, worlds=one_sided)):
        axes = bare.plot().axes
        assert "no two-world runs" in [text.get_text() for text in axes[0].texts]
        assert len(line(axes[0], "certified")[0]) > 100
        assert not any(str(found.get_label()).startswith("attack") for found in axes[0].lines)
        assert len(axes[1].patches) == 2


@pytest.mark.parametrize("kind", ["png", "pdf", "svg"])
def test_the_figure_can_be_saved_and_no_window_opens(kind):
    import matplotlib.pyplot as plt

    file = io.BytesIO()
    report(runs=50).plot().savefig(file, format=kind)
    assert file.tell() > 5000
    assert plt.get_fignums() == []
