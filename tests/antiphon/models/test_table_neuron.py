import numpy as np
import pytest
import torch

from antiphon.errors import PlanError
from antiphon.models import TableNeuron


def test_the_output_is_a_relu_from_minus_one_on():
    model = TableNeuron([True, True], columns=2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([3.0, 0.0, 1.5]))
    x = torch.tensor([[1.0, 0.3], [0.0, 0.3], [-1.0, 0.3]])
    expected = 2 * np.maximum((3 * x[:, 0].numpy() + 1.5) / np.sqrt(3), 0) - 1
    np.testing.assert_allclose(model(x)[:, 0].detach(), expected, rtol=1e-6)
    coefficients, intercept = model.linear()
    line = x @ coefficients + intercept
    np.testing.assert_allclose(torch.relu(line) - 1, expected, rtol=1e-6)


def test_inputs_have_norm_one_at_most():
    x = torch.tensor([[1.0, -1.0, 1.0, 0.0]])  # two numbers, one category of two values
    for has_intercept in (True, False):
        model = TableNeuron([True, True, False, False], columns=3, has_intercept=has_intercept)
        assert float(model.inputs(x).norm()) == pytest.approx(1.0)
        assert len(model.weight) == 4 + has_intercept


def test_starts_are_zero_or_awake():
    assert not TableNeuron([True] * 5, columns=5).weight.any()
    torch.manual_seed(0)
    model = TableNeuron([True] * 500, columns=500, spread=0.1)
    weight = model.weight.detach()
    assert float(weight[:-1].norm()) == pytest.approx(0.1, rel=0.1)
    assert float(weight[-1]) == pytest.approx(0.1)
    assert (model(2 * torch.rand(200, 500) - 1) > -1).float().mean() > 0.9


def test_a_table_without_features_is_refused():
    with pytest.raises(PlanError, match="at least one feature"):
        TableNeuron([], columns=1)
