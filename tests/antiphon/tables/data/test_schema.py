import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import PlanError
from antiphon.tables.data import Column, Schema

SCHEMA = Schema((Column("age", bounds=(0, 100)), Column("sex", categories=("f", "m"))))
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
widths = st.floats(1e-3, 1e6)
bounds = st.tuples(st.floats(-1e6, 1e6), widths).map(lambda pair: (pair[0], pair[0] + pair[1]))
categories = st.lists(names | st.integers(2, 99), min_size=1, max_size=4, unique=True).map(tuple)
columns = st.one_of(
    names.map(Column),
    st.builds(Column, names, bounds=bounds),
    st.builds(Column, names, categories=categories),
)
different = st.lists(columns, min_size=1, max_size=5, unique_by=lambda c: c.name).map(tuple)
values = st.one_of(st.floats(), st.integers(), st.none(), st.text(max_size=3), st.booleans())


class Frame:
    """As much of a data frame as is needed: names, and columns by name."""

    def __init__(self, data):
        self.data, self.columns = data, list(data)

    def __getitem__(self, name):
        return self.data[name]


class ArrowTable(Frame):
    """Where ``columns`` are the data themselves."""

    def __init__(self, data):
        self.data, self.column_names, self.columns = data, list(data), list(data.values())


def test_numbers_are_scaled_by_their_bounds_and_categories_are_one_hot():
    encoded = SCHEMA.encode([[0, "f"], [50, "m"], [100, "f"], [-3, "x"], [np.inf, None]])
    expected = [[-1, 1, 0], [0, 0, 1], [1, 1, 0], [-1, 0, 0], [1, 0, 0]]
    assert encoded.dtype == np.float64 and encoded.tolist() == expected
    assert SCHEMA.feature_names == ("age", "sex=f", "sex=m")
    assert [column.kind for column in SCHEMA.columns] == ["number", "category"]


@given(st.lists(st.tuples(values, values), max_size=8))
def test_whatever_the_table_holds_the_result_is_finite_and_within_one(rows):
    schema = Schema(SCHEMA.columns, missing="middle")
    encoded = schema.encode(rows)
    assert encoded.shape == (len(rows), 3)
    assert (np.abs(encoded) <= 1).all()


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=8), bounds)
def test_numbers_stay_within_one_for_all_bounds(numbers, given_bounds):
    encoded = Schema((Column("x", bounds=given_bounds),)).encode(np.array(numbers)[:, None])
    assert (np.abs(encoded) <= 1).all()


@given(st.permutations(range(6)))
def test_permuting_rows_permutes_the_result(order):
    rows = [[10, "f"], [20, "m"], [30, "x"], [40, "m"], [50, "f"], [-60, "f"]]
    assert (SCHEMA.encode([rows[i] for i in order]) == SCHEMA.encode(rows)[list(order)]).all()


@pytest.mark.parametrize(
    "table",
    [
        Frame({"sex": np.array(["m", "f"]), "age": np.array([25, 75])}),
        ArrowTable({"sex": ["m", "f"], "age": [25, 75]}),
        {"sex": ["m", "f"], "age": [25.0, 75.0]},
        [(25, "m"), (75, "f")],
        np.array([[25, "m"], [75, "f"]], dtype=object),
        np.array([["25", "m"], ["75", "f"]]),
    ],
    ids=["frame", "arrow", "mapping", "rows", "objects", "texts"],
)
def test_every_form_of_a_table_gives_the_same_array(table):
    assert SCHEMA.encode(table).tolist() == [[-0.5, 0, 1], [0.5, 1, 0]]


def test_numpy_categories_meet_declared_numbers():
    schema = Schema((Column("grade", categories=(1, 2)),))
    assert schema.encode(np.array([[2], [3], [1]])).tolist() == [[0, 1], [0, 0], [1, 0]]
    assert schema.encode(np.array([[2.0], [np.nan], [1.0]])).tolist() == [[0, 1], [0, 0], [1, 0]]


def test_a_table_without_rows_has_all_features():
    assert SCHEMA.encode([]).shape == SCHEMA.encode(np.empty((0, 2))).shape == (0, 3)


def test_missing_numbers_are_refused_or_put_in_the_middle():
    rows = [[None, "f"], [float("nan"), "f"], ["unknown", "f"]]
    with pytest.raises(PlanError, match=r"'age' has missing values.*missing='middle'") as error:
        SCHEMA.encode(rows)
    assert "unknown" not in str(error.value)
    assert SCHEMA.encode([[50, "f"]])[0, 0] == 0
    assert (Schema(SCHEMA.columns, missing="middle").encode(rows)[:, 0] == 0).all()


@pytest.mark.parametrize("row", [[101, "f"], [-1, "f"], [50, "secret"]])
def test_values_outside_are_refused_only_if_asked_and_never_shown(row):
    SCHEMA.encode([row])
    with pytest.raises(PlanError, match="outside the declared") as error:
        Schema(SCHEMA.columns, outside="raise").encode([row])
    assert "secret" not in str(error.value) and "-1" not in str(error.value)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"age": [1]}, r"no column 'sex'; its columns are \['age'\]"),
        ({"age": [1], "sex": ["f"], "bmi": [2]}, r"does not know: \['bmi'\]. Drop them"),
        ({"age": [1, 2], "sex": ["f"]}, "different lengths"),
        ([[1, "f", 3]], r"2 columns, \['age', 'sex'\]; got a table of shape \(1, 3\)"),
        ([[1, "f"], [2]], r"rows have different lengths: \[1, 2\]"),
        ([1, 2], r"shape \(2, 1\)"),
        (np.zeros(4), r"shape \(4,\)"),
    ],
)
def test_a_table_of_another_form_is_refused(table, message):
    with pytest.raises(PlanError, match=message):
        SCHEMA.encode(table)


def test_a_frame_with_two_columns_of_one_name_is_refused():
    frame = Frame({"age": [1], "sex": ["f"]})
    frame.columns.append("age")
    with pytest.raises(PlanError, match="several columns of one name"):
        SCHEMA.encode(frame)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Column("x", bounds=(2, 1)),
            r"'x' must be finite, with low below high; got \[2.0, 1.0\]",
        ),
        (lambda: Column("x", bounds=(1, 1)), "low below high"),
        (lambda: Column("x", bounds=(0, float("inf"))), "finite"),
        (lambda: Column("x", bounds=(float("nan"), 1)), "finite"),
        (lambda: Column("x", bounds=(-1e308, 1e308)), "finite"),
        (lambda: Column("x", bounds=(1, 2, 3)), r"two numbers, \[low, high\]; got \(1, 2, 3\)"),
        (lambda: Column("x", bounds="ab"), "two numbers"),
        (lambda: Column("x", bounds=(0, 1), categories=("a",)), "Declare one of the two"),
        (lambda: Column("x", categories=()), "at least one"),
        (lambda: Column("x", categories="abc"), "list of different texts"),
        (lambda: Column("x", categories=("a", "a")), "different"),
        (lambda: Column("x", categories=(1, True)), "different"),
        (lambda: Column("x", categories=(None,)), "texts or numbers"),
        (lambda: Column(""), "at least one letter"),
        (lambda: Schema(()), "at least one column"),
        (lambda: Schema((Column("x"), Column("x"))), r"\['x'\] more than once"),
        (lambda: Schema((Column("x"),), missing="zero"), "'raise' or 'middle'; got 'zero'"),
        (lambda: Schema((Column("x"),), outside="cut"), "'clamp' or 'raise'; got 'cut'"),
        (lambda: SCHEMA.with_bounds({"bmi": (1, 2)}), r"no such column: \['bmi'\]"),
        (lambda: SCHEMA.with_bounds({"sex": (1, 2)}), "Declare one of the two"),
        (lambda: SCHEMA.numbers([[1, "f"]], ["sex"]), r"no such columns of numbers: \['sex'\]"),
    ],
)
def test_what_cannot_be_is_refused_with_what_was_given(make, message):
    with pytest.raises(PlanError, match=message):
        make()


def test_bounds_that_are_unknown_must_be_found_before_encoding():
    schema = Schema((Column("a"), Column("b", bounds=(0, 1)), Column("c")))
    table = [[1, 2, "x"], [3, 4, 5]]
    with pytest.raises(PlanError, match=r"bounds of \['a', 'c'\] are unknown.*private_bounds"):
        schema.encode(table)
    assert schema.unbounded == ("a", "c")
    np.testing.assert_array_equal(schema.numbers(table), [[1, np.nan], [3, 5]])
    np.testing.assert_array_equal(schema.numbers(table, ["b"]), [[2], [4]])
    known = schema.with_bounds({"a": (0, 4), "c": (0, 10)})
    assert known.unbounded == () and known.numbers(table).shape == (2, 0)
    assert known.encode([[1, 0.5, 5]]).tolist() == [[-0.5, 0, 0]]


@given(different, st.sampled_from(["raise", "middle"]), st.sampled_from(["clamp", "raise"]))
def test_a_schema_survives_its_file(tmp_path_factory, declared, missing, outside):
    schema = Schema(declared, missing, outside)
    path = tmp_path_factory.getbasetemp() / "schema.toml"
    schema.to_toml(path)
    assert Schema.from_toml(path) == schema


def test_a_file_written_by_hand_needs_only_its_tables(tmp_path):
    path = tmp_path / "bounds.toml"
    path.write_text('[bounds]\nage = [0, 100]\n[categories]\nsex = ["f", "m"]\n')
    assert Schema.from_toml(path) == SCHEMA


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bounds = ", "is not TOML"),
        ("bounds = 3", r"is a table, \[bounds\]; got 3"),
        ("columns = 'a'", "a list of names; got 'a'"),
        ("columns = [[1]]", "a list of names"),
        ("[limits]\na = [0, 1]", r"unknown keys \['limits'\]"),
        ("columns = ['a']\n[bounds]\nb = [0, 1]", r"of \['b'\], which its list of columns"),
        ("[bounds]\nb = [1, 0]", "low below high"),
        ("[bounds]\nb = [0, 1]\n[categories]\nb = ['x']", "Declare one of the two"),
        ("missing = 'x'\n[bounds]\nb = [0, 1]", "'raise' or 'middle'; got 'x'"),
        ("", "at least one column"),
    ],
)
def test_a_file_that_is_no_schema_is_refused(text, message, tmp_path):
    path = tmp_path / "bounds.toml"
    path.write_text(text)
    with pytest.raises(PlanError, match=message):
        Schema.from_toml(path)


def test_pandas_is_not_loaded_for_tables_of_other_kinds():
    code = (
        "import sys; from antiphon.tables.data import Column, Schema; "
        "Schema((Column('age', bounds=(0, 1)),)).encode([[1]]); print('pandas' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.integers(), max_size=1),
)


@given(st.lists(ODD, min_size=1, max_size=4), ODD)
def test_no_record_changes_how_another_one_is_encoded(values, record):
    schema = Schema(
        (Column("a", (0, 1)), Column("b", categories=(1, 2, 2**60 + 1, "x", "1"))), missing="middle"
    )
    tables = [{"a": v, "b": v} for v in (values, [*values, record])]
    alone, together = (schema.encode(table) for table in tables)
    assert np.array_equal(alone, together[:-1])


def test_columns_with_missing_values_keep_their_large_integers():
    large = 2**60 + 1
    schema = Schema((Column("c", categories=(large, 7)),))
    for column in (
        pd.array([large, 7, None], dtype="Int64"),
        pd.Categorical([large, 7, None]),
    ):
        encoded = schema.encode(pd.DataFrame({"c": column}))
        assert encoded.tolist() == [[1, 0], [0, 1], [0, 0]]
