"""GD and DP-GD on the two-layer CNN: the worked example, sensitivity, certificates and refusals."""

import math

import numpy as np
import pytest
import torch

from antiphon.accounting import gaussian_delta, gaussian_mu
from antiphon.errors import PlanError, UnsupportedError
from antiphon_papers import cnn
from antiphon_papers.cnn import TwoLayerCNN
from antiphon_papers.cnn.patch_form import PatchForm

MU = [2.0, 0.0, 0.0]
FILTERS = [[0.2, 0.3, -0.1], [0.1, -0.2, 0.4], [-0.1, 0.4, 0.2], [0.3, 0.1, 0.05]]


def worked_example():
    """Section 8, check 3 of the specification."""
    model = TwoLayerCNN(3, 2, q=3, knee=0.5).double()
    with torch.no_grad():
        model.filters.weight.copy_(torch.tensor(FILTERS, dtype=torch.float64))
    x = torch.tensor([[MU, [0.0, 1.0, 0.0]], [[-2.0, 0.0, 0.0], [0.0, 0.5, 1.0]]]).double()
    return model, x, torch.tensor([1.0, -1.0]).double()


def close(found, expected, atol=5e-9):
    torch.testing.assert_close(
        found.double(), torch.tensor(expected, dtype=torch.float64), atol=atol, rtol=0
    )


def test_acceptance_cnn_3_worked_example():
    model, x, y = worked_example()
    sums = PatchForm(model, x, y).sums()
    close(sums.margins, [-0.11066667, 0.03058333])
    close(sums.losses.mean(), 0.71399152)
    close(sums.norms, [0.66121332, 0.21721231])
    close(sums.gradient[0] / 2, [-0.16884431, -0.04687202, 0.00123089])
    found = cnn.gradient_descent(model, x, y, step_size=1.0, steps=3)
    close(found.model.filters.weight[3].detach(), [0.02849066, 0.09477070, 0.06546059])
    close(model.filters.weight.detach(), FILTERS)  # the one given stays


def test_a_run_is_its_steps_and_noise_has_the_stated_size():
    model, x, y = worked_example()
    seen = []
    run = cnn.printed_descent(model, x, y, step_size=0.3, steps=400, noise=0.02, seed=1,
                              watch=seen.append)  # fmt: skip
    weight = model.filters.weight.detach().clone()
    for step in seen:
        torch.testing.assert_close(step.weight, weight, atol=1e-12, rtol=0)
        weight -= 0.3 * (step.sums.gradient / 2 + step.noise)
    torch.testing.assert_close(run.model.filters.weight.detach(), weight, atol=1e-12, rtol=0)
    noise = torch.stack([step.noise for step in seen])
    # 4800 normals: five standard errors of their standard deviation are 5.1 %.
    assert float(noise.std()) == pytest.approx(0.02, rel=0.051)


def test_noise_of_equal_seeds_is_equal_for_equal_data_and_for_no_others():
    model, x, y = worked_example()
    drawn = []
    for labels in (y, y, -y):
        cnn.printed_descent(model, x, labels, step_size=0.3, steps=1, noise=1.0, seed=1,
                            watch=lambda step: drawn.append(step.noise))  # fmt: skip
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])


# --- Sensitivity


def counterexample(d=2000, m=100, spread=0.5, c=60.0):
    """Two neighbours under replace-one, and filters at which their gradients are furthest apart."""
    signal = np.eye(1, d)[0]
    xi = np.sqrt(1.5 * spread**2 * d) * np.eye(1, d, 1)[0]
    model = TwoLayerCNN(d, m).double()
    rows = np.repeat([[-c], [c]], m, axis=0) * signal + xi / (xi @ xi)
    with torch.no_grad():
        model.filters.weight.copy_(torch.from_numpy(rows))
    records = [torch.from_numpy(np.stack([label * signal, xi]))[None] for label in (1.0, -1.0)]
    return model, records


def test_acceptance_cnn_11_printed_sensitivity_is_too_small_and_ours_is_not():
    n, m, spread, d = 1000, 100, 0.5, 2000
    model, (one, other) = counterexample()
    gradients = [
        PatchForm(model, x, torch.tensor([label])).sums().gradient
        for x, label in ((one, 1.0), (other, -1.0))
    ]
    measured = float((gradients[0] - gradients[1]).norm()) / n
    assert measured == pytest.approx(0.0077472576, rel=1e-6)
    longest = math.sqrt(1.5 * spread**2 * d)
    tight = cnn.joint_sensitivity(n=n, m=m, signal=1.0, longest=longest)
    assert tight == pytest.approx(measured, rel=1e-6) and tight >= measured * (1 - 1e-9)
    assert cnn.joint_sensitivity(n=n, m=m, signal=1.0, longest=longest, relation="zero-out") < tight
    printed = math.sqrt(2 * m) * (1 + longest) / (n * m)
    assert printed == pytest.approx(0.0040144047, abs=5e-11) and printed < measured
    # By clipping gradients, too: C is the longest gradient that there is.
    clip_norm = max(float(g.norm()) for g in gradients)
    assert 2 * clip_norm / n >= measured
    assert float(gaussian_delta(measured / 0.01, 3.265170)) == pytest.approx(1e-5, rel=1e-4)


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
def test_neighbours_of_a_clipped_run_differ_by_no_more_than_is_certified(relation):
    rng = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    model, n = TwoLayerCNN(6, 3, scale=1.0, knee=0.5).double(), 8
    x = torch.randn(n, 2, 6, generator=rng).double() * 3
    y = torch.where(torch.rand(n, generator=rng) < 0.5, -1.0, 1.0).double()
    largest = 0.0
    for scale in (0.1, 1.0, 100.0):
        other, labels = x.clone(), y.clone()
        other[0], labels[0] = scale * torch.randn(2, 6, generator=rng).double(), -y[0]
        if relation == "zero-out":
            other[0] = 0.0
        sums = [PatchForm(model, a, b).sums(0.2).gradient for a, b in ((x, y), (other, labels))]
        largest = max(largest, float((sums[0] - sums[1]).norm()))
    amplitude = 2.0 if relation == "replace-one" else 1.0
    assert 0.5 * 0.2 < largest <= amplitude * 0.2


# --- Certificates


def test_acceptance_cnn_15_calibration():
    for steps, noise in ((20, 2.684306e-3), (20_000, 8.488521e-2)):
        for relation, times in (("zero-out", 1), ("replace-one", 2)):
            sigma = cnn.clipped_noise(1000, steps, 1.0, 8.0, 1e-5, relation=relation)
            assert sigma == pytest.approx(times * noise, rel=1e-6)


@pytest.mark.parametrize("relation", ["replace-one", "zero-out", "add-remove"])
def test_a_certified_run_has_the_noise_and_the_epsilon_that_it_says(relation):
    model, x, y = worked_example()
    run = {"step_size": 0.1, "steps": 20, "epsilon": 8.0, "delta": 1e-5, "clip_norm": 0.5}
    found = cnn.descend(model, x, y, relation=relation, n=1000, **run)
    amplitude = 2.0 if relation == "replace-one" else 1.0
    assert found.noise == pytest.approx(amplitude * 0.5 * 2.684306e-3, rel=1e-6)
    assert found.epsilon == found.certificate.epsilon == pytest.approx(8.0, rel=1e-9)
    assert found.certificate.is_tight and str(found.certificate.relation) == relation
    assert found.certificate.plan.clip_norm == 0.5 and found.certificate.plan.steps == 20
    mu = amplitude * 0.5 * math.sqrt(20) / (1000 * found.noise)
    assert mu == pytest.approx(gaussian_mu(8.0, 1e-5), rel=1e-9)


def test_clipped_inputs_need_no_clipped_gradients():
    model, x, y = worked_example()
    run = {"step_size": 0.1, "steps": 5, "epsilon": 8.0, "delta": 1e-5, "seed": 0}
    seen = []
    found = cnn.descend(model, x, y, clip="inputs", clip_norm=1.5, watch=seen.append, **run)
    assert found.certificate.plan.clip_norm == pytest.approx(2 / math.sqrt(2) * 1.5)
    for step in seen:
        assert (step.sums.norms <= found.certificate.plan.clip_norm).all()
        close(step.sums.pulls, (-torch.sigmoid(-step.sums.margins)).tolist(), 1e-12)
    shortened = cnn.clip_inputs(x, 1.5)
    assert shortened.flatten(1).norm(dim=1).max() <= 1.5 + 1e-12
    assert (cnn.clip_inputs(x, 100.0) == x).all()


def test_noise_is_added_before_anything_is_rounded_into_the_weights():
    """Steps below half a rounding of the weight: what they add up to is seen of the noisy sum alone."""
    n = 60_000
    model = TwoLayerCNN(1, 1)
    with torch.no_grad():
        model.filters.weight.copy_(torch.tensor([[0.75], [-0.75]]))
    x = torch.zeros(n, 2, 1)
    run = {"step_size": 1e-3, "steps": 1, "epsilon": 1.0, "delta": 1e-6, "clip_norm": 0.01}
    ends: dict[int, set[float]] = {178: set(), 179: set()}
    for count, seen in ends.items():
        x[:count, 0, 0] = 1.0
        for seed in range(60):
            found = cnn.descend(model, x, torch.ones(n), relation="zero-out", seed=seed, **run)
            seen.add(found.model.filters.weight[0].item())
    # Both counts lead to both neighbouring numbers; rounded first, each would lead to one of its own.
    assert ends[178] == ends[179] and len(ends[178]) == 2


def test_who_watches_cannot_change_the_run():
    model, x, y = worked_example()
    run = {"step_size": 0.3, "steps": 3, "epsilon": 2.0, "delta": 1e-5, "seed": 0}

    def spoil(step):
        for values in (step.noise, step.sums.gradient, step.weight):
            values.zero_()

    spoiled = cnn.descend(model, x, y, watch=spoil, **run).model.filters.weight
    assert torch.equal(spoiled, cnn.descend(model, x, y, **run).model.filters.weight)


def test_certificates_say_what_was_seeded_and_watched():
    model, x, y = worked_example()
    run = {"step_size": 0.1, "steps": 2, "epsilon": 8.0, "delta": 1e-5}
    plain = cnn.descend(model, x, y, **run)
    seeded = cnn.descend(model, x, y, seed=3, watch=lambda step: None, **run)
    text = " ".join(seeded.certificate.assumptions)
    assert "reproducible, not for release" in text and "steps were watched" in text
    text = " ".join(plain.certificate.assumptions)
    assert "not for release" not in text and "holds nothing of the data" in text
    again = cnn.descend(model, x, y, **run)
    assert not torch.equal(plain.model.filters.weight, again.model.filters.weight)


def test_acceptance_cnn_25_unclipped_runs_have_no_epsilon():
    model, x, y = worked_example()
    noisy = cnn.printed_descent(model, x, y, step_size=0.1, steps=2, noise=0.1)
    assert noisy.certificate is None
    with pytest.raises(UnsupportedError, match=r"not clipped.*random_dp"):
        _ = noisy.epsilon
    plain = cnn.gradient_descent(model, x, y, step_size=0.1, steps=2)
    with pytest.raises(UnsupportedError, match="without noise"):
        _ = plain.epsilon
    report = cnn.random_dp(cnn.Setting(noise=0.01, spread=0.5), delta=1e-5, miss=5e-6)
    assert report.label == "conditional (random-DP)"
    assert report.miss == 5e-6 and report.delta == 1e-5  # two numbers, never their sum
    assert "no differential privacy" in str(report)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clip": "weights"}, "clip is 'gradients' or 'inputs'; got 'weights'"),
        ({"clip_norm": 0.0}, "clip_norm must be positive"),
        ({"steps": 0}, "steps must be a whole number"),
        ({"step_size": -1.0}, "step_size must be positive"),
        ({"relation": "none"}, "neighbouring relation is one of"),
        ({"epsilon": 0.0}, "0"),
    ],
)
def test_what_cannot_run_is_refused(options, message):
    run = {"step_size": 0.1, "steps": 2, "epsilon": 8.0, "delta": 1e-5}
    with pytest.raises(PlanError, match=message):
        cnn.descend(*worked_example(), **run | options)


def test_bad_noise_and_inputs_are_refused():
    with pytest.raises(PlanError, match="noise must be positive"):
        cnn.printed_descent(*worked_example(), step_size=0.1, steps=1, noise=0.0)
    with pytest.raises(PlanError, match=r"shape \(n, patches, d\)"):
        cnn.clip_inputs(torch.ones(3, 2), 1.0)
