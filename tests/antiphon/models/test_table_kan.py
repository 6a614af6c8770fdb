import math

import pytest
import torch

from antiphon.errors import PlanError
from antiphon.models import TableKAN, spline_basis

KINDS = [True, False, False, True]


def filled(*args, **options):
    torch.manual_seed(0)
    model = TableKAN(*args, **options).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    return model


def test_additive_output_is_a_sum_of_functions_of_single_columns():
    model = filled(KINDS, columns=3, outputs=2)
    x = torch.rand(6, 4, dtype=torch.float64) * 2 - 1
    features = spline_basis(x[:, [0, 3]], model.splines.splines).flatten(1)
    expected = features @ model.splines.coef.T + x[:, [1, 2]] @ model.weights.weight.T
    torch.testing.assert_close(model(x), expected / math.sqrt(3))


def test_starts_at_zero_without_hidden_layers():
    assert torch.equal(TableKAN(KINDS, 3, 2)(torch.rand(5, 4)), torch.zeros(5, 2))


def test_starts_as_a_perceptron_with_signs_as_weights_if_there_is_a_hidden_layer():
    model = TableKAN(KINDS, 3, 2, (9,)).double()
    x = torch.rand(50, 4, dtype=torch.float64) * 2 - 1
    (last,) = model.further
    signs = torch.sign(last.coef.unflatten(1, (9, -1))[..., -1])
    inner = model.splines(x[:, model.numbers]) + model.weights(x[:, model.indicators])
    assert 0.1 < inner.std() / math.sqrt(3) < 0.6
    torch.testing.assert_close(model(x), torch.tanh(inner / math.sqrt(3)) @ signs.T / 3)
    assert 0 < signs.eq(1).sum() < signs.numel()


def test_hidden_layers_pass_a_gradient_to_the_first_one():
    model = filled(KINDS, columns=3, outputs=1, hidden=(4,))
    model(torch.rand(5, 4, dtype=torch.float64)).sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters())


def test_tables_of_one_kind_have_one_part():
    assert TableKAN([True], 1, 1).weights is None
    only_categories = TableKAN([False, False], 1, 1)
    assert only_categories.splines is None
    assert only_categories(torch.eye(2)).shape == (2, 1)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (([], 1, 1), "at least one feature"),
        (([True], 0, 1), "columns"),
        (([True], 1, 1, (0,)), "width"),
    ],
)
def test_impossible_sizes_are_refused(args, words):
    with pytest.raises(PlanError, match=words):
        TableKAN(*args)


def test_plot_shows_numbers_in_their_units_and_categories_by_name():
    model = filled(KINDS, columns=3, outputs=1)
    figure = model.plot(["age", "sex=f", "sex=m", "height"], "private", bounds={"age": (0, 90)})
    age, height, sex = figure.axes
    assert (age.get_xlabel(), height.get_xlabel()) == ("age", "height")
    assert age.lines[-1].get_xdata()[[0, -1]].tolist() == [0, 90]
    assert height.lines[-1].get_xdata()[[0, -1]].tolist() == [-1, 1]
    assert {text.get_text() for text in sex.get_yticklabels()} == {"sex=f", "sex=m"}
    shown = dict(zip(sex.lines[-1].get_ydata().tolist(), sex.lines[-1].get_xdata(), strict=True))
    by_name = {t.get_text(): shown[t.get_position()[1]] for t in sex.get_yticklabels()}
    expected = model.weights.weight[0, 1].item() / math.sqrt(3)
    assert by_name["sex=m"] == pytest.approx(expected)


def test_plot_of_a_deep_model_has_a_part_for_each_layer():
    names = ["age", "sex=f", "sex=m", "height"]
    assert len(filled(KINDS, columns=3, outputs=1, hidden=(2,)).plot(names).subfigs) == 3
