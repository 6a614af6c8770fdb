"""The comparison table and its picture."""

import json

import pytest
from matplotlib.figure import Figure

from antiphon.errors import PlanError
from antiphon.mechanisms import FullHonaker, Independent, LambdaCGD, figure, from_dict, table
from antiphon.participation import FixedEpochs, Once, Reshuffled


@pytest.fixture(scope="module")
def result():
    return table(48, FixedEpochs(4, 12))


def test_rows_are_ordered_by_loss_and_belong_to_their_mechanisms(result):
    losses = [row.loss for row in result.rows]
    assert losses == sorted(losses)
    assert result.rows[0].label == "dense"
    assert result.bound <= losses[0]
    for row in result.rows:
        assert row.loss == pytest.approx(row.mechanism.loss(48, FixedEpochs(4, 12)))


def test_buffers_are_what_the_noise_really_keeps(result):
    kept = {row.label: row.buffers for row in result.rows}
    assert kept["independent"] == 0
    assert kept["lambda-cgd"] == 1
    assert kept["banded, 8"] == 7
    assert kept["nu-ftrl, 5 buffers"] == 5
    assert kept["tree"] == 6
    assert kept["dense"] == kept["optimal cc"] == 47


def test_the_table_prints_and_exports(result):
    text = str(result)
    assert "lambda-cgd" in text
    assert "no mechanism at all" in text
    assert "≤" in text  # Honaker's sensitivity is a bound
    values = json.loads(result.to_json())
    assert values["T"] == 48
    assert [from_dict(row["mechanism"]) for row in values["rows"]] == [
        r.mechanism for r in result.rows
    ]


def test_progress_sees_every_name():
    seen = []
    table(8, Once(), progress=lambda names: (seen.append(n) or n for n in names))
    assert {"independent", "tree", "dense"} <= set(seen)


def test_reshuffled_epochs_have_a_table_without_the_dense_optimum():
    labels = [row.label for row in table(20, Reshuffled(2, 10)).rows]
    assert "dense" not in labels
    assert "blt" in labels


def test_a_wrong_plan_is_refused():
    with pytest.raises(PlanError, match="need at least"):
        table(10, FixedEpochs(5, 4))


def test_the_figure_shows_each_mechanism_in_both_panels():
    mechanisms = {"dp-sgd": Independent(), "λ": LambdaCGD(0.5), "tree": FullHonaker()}
    picture = figure(mechanisms, 16, Once())
    assert isinstance(picture, Figure)
    left, right = picture.axes
    assert len(right.lines) == 3
    assert len(left.lines) == 2  # independent noise takes nothing back
    assert [text.get_text() for text in picture.legends[0].get_texts()] == ["dp-sgd", "λ", "tree"]
