"""Pictures of splines: what they show, checked on the drawn lines."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from antiphon.errors import PlanError
from antiphon.models import KAN, KANLayer
from antiphon_papers.common.two_layer_kan import TwoLayerKAN


def lines(axes):
    """Drawn curves, without the line at zero."""
    return [line for line in axes.lines if len(line.get_xdata()) > 2]


def visible(figure):
    return [axes for axes in figure.axes if axes.get_visible()]


def test_a_layer_has_a_row_per_output_and_a_column_per_input():
    torch.manual_seed(0)
    layer = KANLayer(3, 2, base=nn.SiLU(), low=0.0, high=2.0)
    figure = layer.plot(names=["age", "height", "weight"], caption="ε = 1")
    assert len(figure.axes) == 6 and figure.get_supxlabel() == "ε = 1"
    assert [axes.get_xlabel() for axes in figure.axes[3:]] == ["age", "height", "weight"]
    assert [axes.get_ylabel() for axes in figure.axes[::3]] == ["y1", "y2"]
    for place, axes in enumerate(figure.axes):
        o, i = divmod(place, 3)
        (line,) = lines(axes)
        x = torch.zeros(101, 3)
        x[:, i] = torch.as_tensor(line.get_xdata())
        alone = layer(x)[:, o] - layer(x[:1])[:, o]  # a sum of edges: only that of input i changes
        drawn = torch.as_tensor(line.get_ydata())
        torch.testing.assert_close(alone.double(), drawn - drawn[0], atol=1e-5, rtol=0)
        assert line.get_xdata()[-1] == 2.0


def test_an_additive_model_has_a_panel_per_input_with_all_outputs():
    figure = KAN([7, 3]).plot()
    assert [axes.get_xlabel() for axes in visible(figure)] == [f"x{i}" for i in range(1, 8)]
    assert all(len(lines(axes)) == 3 for axes in visible(figure))
    (legend,) = (part.legends[0] for part in figure.subfigs)
    assert [text.get_text() for text in legend.get_texts()] == ["y1", "y2", "y3"]


def test_of_a_wide_model_the_largest_edges_are_drawn_in_order():
    torch.manual_seed(1)
    model = TwoLayerKAN(50, 16)
    figure = model.plot(most=5)
    first, second = figure.subfigs
    assert "the 5 of 800 edges with the largest range" in first.get_suptitle()
    assert "the 5 of 16 edges" in second.get_suptitle()
    ranges = [float(np.ptp(lines(axes)[0].get_ydata())) for axes in visible(first)]
    assert len(ranges) == 5 and ranges == sorted(ranges, reverse=True)
    basis = torch.linspace(-1, 1, 101)[:, None].expand(-1, 50)
    features = model.first.features(basis).reshape(101, 50, -1)
    curves = torch.einsum("tik,jik->jit", features, model.first.coef.reshape(16, 50, -1))
    largest = (curves.amax(-1) - curves.amin(-1)).max() / math.sqrt(50)
    assert ranges[0] == pytest.approx(largest.item(), rel=1e-5)


def test_deep_models_show_every_layer_and_files_can_be_written(tmp_path):
    figure = KAN([2, 3, 4, 1]).plot(caption="below")
    assert len(figure.subfigs) == 3
    last = figure.subfigs[-1].axes[-1]
    assert last.get_xlabel() == "tanh u2.4"
    figure.savefig(tmp_path / "splines.png")
    assert (tmp_path / "splines.png").stat().st_size > 5_000


def test_names_must_fit_and_drawing_changes_nothing():
    model = KAN([3, 2])
    with pytest.raises(PlanError, match=r"names must be one per input, 3; got \['a'\]"):
        model.plot(names=["a"])
    with pytest.raises(PlanError, match="names must be one per input, 3; got 'abc'"):
        model.plot(names="abc")
    with pytest.raises(PlanError, match="most must be a whole number of at least 1; got 0"):
        model.plot(most=0)
    before = [parameter.clone() for parameter in model.parameters()]
    model.plot()
    assert all(map(torch.equal, before, model.parameters()))
