import numpy as np
import pytest

from antiphon.errors import PlanError
from antiphon.tables.data import Column, Schema
from antiphon.tables.estimators.columns import schema_for

NAMES = ("age", "sex", "income")


def test_private_leaves_every_number_unknown():
    schema = schema_for(NAMES, "private", {"sex": ("f", "m")})
    assert schema.unbounded == ("age", "income")


def test_unnamed_columns_are_numbered():
    assert schema_for(2, (0, [1, 2])).columns == (
        Column("x0", (0, 1)),
        Column("x1", (0, 2)),
    )


def test_pairs_skip_categories():
    schema = schema_for(NAMES, (np.zeros(3), np.array([100, 0, 1e6])), {1: ("f", "m")})
    assert [c.bounds for c in schema.columns] == [(0, 100), None, (0, 1e6)]


def test_mapping_by_name_or_place_leaves_the_rest_unknown():
    schema = schema_for(NAMES, {"age": (0, 100)}, {-2: ("f", "m")})
    assert schema.unbounded == ("income",) and schema.columns[1].kind == "category"


def test_schema_takes_the_order_of_the_table():
    schema = Schema((Column("b", (0, 1)), Column("a", (0, 2))))
    assert schema_for(("a", "b"), schema).names == ("a", "b")
    assert schema_for(2, schema).names == ("b", "a")


@pytest.mark.parametrize(
    ("bounds", "categories", "words"),
    [
        ("public", None, "'public'"),
        ((0,), None, "pair"),
        (([0, 1], [1, 2]), None, "3 columns"),
        ((1, 0), None, "low below high"),
        ((0, np.inf), None, "finite"),
        ({"weight": (0, 1)}, None, "'weight'"),
        ({7: (0, 1)}, None, "column 7"),
        ("private", [("f", "m")], "mapping"),
        (Schema((Column("a", (0, 1)),)), None, "the table"),
        (Schema((Column("a", (0, 1)),)), {"a": ("f",)}, "whole schema"),
        ({"sex": (0, 1)}, {"sex": ("f", "m")}, "one of the two"),
    ],
)
def test_contradictions_are_refused(bounds, categories, words):
    with pytest.raises(PlanError, match=words):
        schema_for(NAMES, bounds, categories)


def test_a_schema_of_another_width_is_refused():
    with pytest.raises(PlanError, match="the table 3"):
        schema_for(3, Schema((Column("a", (0, 1)),)))
