"""The Huberized ReLU and the two-layer CNN against values by hand, limits and symmetries."""

import pytest
import torch

from antiphon.errors import PlanError
from antiphon_papers.cnn import HuberizedReLU, TwoLayerCNN, huberized_relu, huberized_slope


def doubles(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_acceptance_cnn_1_activation_by_hand():
    z = doubles(-1, 0, 0.25, 0.5, 1)
    expected = doubles(0, 0, 0.0208333, 0.1666667, 0.6666667)
    torch.testing.assert_close(huberized_relu(z, 3, 0.5), expected, atol=5e-8, rtol=0)
    torch.testing.assert_close(huberized_slope(z, 3, 0.5), doubles(0, 0, 0.25, 1, 1))
    values = huberized_relu(doubles(0.05, 0.1, 0.3), 4, 0.1)
    torch.testing.assert_close(values, doubles(0.0015625, 0.025, 0.225), atol=1e-14, rtol=0)


@pytest.mark.parametrize("q", [1.5, 2, 3, 4.5])
@pytest.mark.parametrize("knee", [0.1, 2.0])
def test_acceptance_cnn_2_slope_is_continuous_and_the_derivative(q, knee):
    z = torch.linspace(-3, 3, 4001, dtype=torch.float64).requires_grad_()
    (autograd,) = torch.autograd.grad(huberized_relu(z, q, knee).sum(), z)
    slope = huberized_slope(z.detach(), q, knee)
    torch.testing.assert_close(autograd, slope, atol=1e-12, rtol=0)
    h, at = 1e-7, z.detach()
    difference = (huberized_relu(at + h, q, knee) - huberized_relu(at - h, q, knee)) / (2 * h)
    inner = (at.abs() > 1e-3) & ((at - knee).abs() > 1e-3)
    torch.testing.assert_close(difference[inner], slope[inner], atol=1e-6, rtol=0)
    for place in (0.0, knee):
        near = doubles(place - 1e-12, place, place + 1e-12)
        for function in (huberized_relu, huberized_slope):
            values = function(near, q, knee)
            assert float(values.max() - values.min()) < 1e-5
    assert slope.min() == 0 and slope.max() == 1 and (slope.diff() >= 0).all()


def test_acceptance_cnn_2_the_limit_of_a_small_knee_is_the_relu():
    z = torch.linspace(-2, 2, 1001, dtype=torch.float64)
    for q, knee in [(3, 0.1), (3, 1e-3), (5, 0.5)]:
        gap = (z.relu() - huberized_relu(z, q, knee)).max()
        assert float(gap) == pytest.approx(knee * (1 - 1 / q))
        assert ((z.relu() - huberized_relu(z, q, knee)) >= 0).all()


def test_inequalities_of_the_activation():
    z = torch.linspace(0, 2, 2001, dtype=torch.float64)
    sigma, slope = huberized_relu(z, 3, 0.5), huberized_slope(z, 3, 0.5)
    assert (sigma <= z + 1e-15).all() and (sigma >= z - 0.5 * (1 - 1 / 3) - 1e-15).all()
    gap = 3 * sigma - slope * z  # the paper once has the inequality the other way round
    assert (gap >= -1e-15).all() and (gap[z > 0.51] > 1e-3).all()
    assert (gap[z <= 0.5].abs() < 1e-15).all()


def test_acceptance_cnn_10_the_order_of_patches_changes_nothing():
    torch.manual_seed(0)
    model, x = TwoLayerCNN(6, 3, scale=1.0).double(), torch.randn(20, 3, 6).double()
    for order in ([1, 0, 2], [2, 0, 1]):
        torch.testing.assert_close(model(x[:, order]), model(x), atol=1e-14, rtol=0)


def test_the_network_is_the_difference_of_two_means_of_filters():
    torch.manual_seed(0)
    model, x = TwoLayerCNN(4, 3, q=4, knee=0.3, scale=1.0).double(), torch.randn(5, 2, 4).double()
    w = model.filters.weight.detach()
    for record, found in zip(x, model(x).detach(), strict=True):
        parts = [
            sum(float(huberized_relu(w[k] @ patch, 4, 0.3)) for k in filters for patch in record)
            for filters in (range(3), range(3, 6))
        ]
        assert float(found) == pytest.approx((parts[0] - parts[1]) / 3)


def test_the_start_has_the_scale_and_only_filters_are_trained():
    torch.manual_seed(0)
    model = TwoLayerCNN(500, 40, scale=0.02)
    assert [name for name, _ in model.named_parameters()] == ["filters.weight"]
    # 40 000 weights: five standard errors of their standard deviation are 1.8 %.
    assert float(model.filters.weight.detach().std()) == pytest.approx(0.02, rel=0.018)
    assert repr(model.activation) == "HuberizedReLU(q=3, knee=0.1)"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HuberizedReLU(q=1.0), "q must be above 1"),
        (lambda: HuberizedReLU(knee=0.0), "knee must be positive"),
        (lambda: TwoLayerCNN(3, 0), "m must be a whole number"),
        (lambda: TwoLayerCNN(3, 1, scale=0.0), "scale must be positive"),
    ],
)
def test_what_is_no_network_is_refused(make, message):
    with pytest.raises(PlanError, match=message):
        make()
