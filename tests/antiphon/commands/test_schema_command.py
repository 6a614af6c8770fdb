"""``antiphon schema``: a file from the header alone, or filled privately and paid for."""

import json
import tomllib

import numpy as np
import pytest
from oracles.calls import assert_misused, assert_refused, caller

from antiphon.accounting import gaussian_delta, gaussian_mu
from antiphon.certificates import Ledger
from antiphon.plans import event_from_dict
from antiphon.tables.data import Column, Schema, template

ROWS = 2_000
PRIVATE = ("--private", "--epsilon", 0.5, "--delta", 1e-5)


@pytest.fixture
def call(capsys):
    return caller(capsys)


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    ages, incomes = rng.integers(18, 90, ROWS), rng.lognormal(10, 0.7, ROWS)
    rows = (
        f"{a},{b:.2f},{'fm'[i % 2]},{i % 3}"
        for i, (a, b) in enumerate(zip(ages, incomes, strict=True))
    )
    path = tmp_path / "people.csv"
    path.write_text("\n".join(['age,"yearly ""income"", €",sex,outcome', *rows]))
    return path


NAMES = ("age", 'yearly "income", €', "sex")


def test_the_file_can_be_read_before_and_after_it_is_filled_in(call, table, tmp_path):
    out = tmp_path / "bounds.toml"
    code, shown, err = call("schema", table, "--target", "outcome", "--out", out)
    assert (code, err) == (0, "") and shown == f"bounds file: {out}, 4 columns\n"
    assert Schema.from_toml(out).columns == tuple(map(Column, (*NAMES, "outcome")))
    text = out.read_text()
    filled = text.replace("# age = [LOWEST, HIGHEST]", "age = [0, 120]").replace(
        '# sex = ["first", "second"]', 'sex = ["f", "m"]'
    )
    out.write_text(filled)
    assert Schema.from_toml(out).columns == (
        Column("age", bounds=(0, 120)),
        Column(NAMES[1]),
        Column("sex", categories=("f", "m")),
        Column("outcome"),
    )
    # A line that was uncommented and not filled in is no TOML: nothing is taken by mistake.
    out.write_text(text.replace("# age = [L", "age = [L"))
    with pytest.raises(ValueError, match="not TOML"):
        Schema.from_toml(out)


def test_no_record_is_read(call, tmp_path):
    path = tmp_path / "broken.csv"
    path.write_bytes(b"a,b\n" + b"1,2\n" * 10_000 + b"only one\n")
    code, out, err = call("schema", path)
    assert (code, err) == (0, "") and tomllib.loads(out)["columns"] == ["a", "b"]
    assert_refused(call("schema", path, *PRIVATE, "--out", tmp_path / "b.toml"), "line 10002")
    assert [file.name for file in tmp_path.iterdir()] == ["broken.csv"]


def test_json_is_all_that_is_printed(call, table):
    code, out, err = call("schema", table, "--json", "--categories", "sex,outcome")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert found["columns"] == [*NAMES, "outcome"] and found["out"] is None
    assert "# sex = [L" not in found["toml"] and '# sex = ["first"' in found["toml"]


def test_a_file_is_never_replaced_unawares(call, table, tmp_path):
    out = tmp_path / "bounds.toml"
    out.write_text("mine")
    assert_refused(call("schema", table, "--out", out), "exists already: give --force")
    assert out.read_text() == "mine"
    assert call("schema", table, "--out", out, "--force")[0] == 0
    assert "columns" in out.read_text()
    assert_refused(call("schema", table, "--out", tmp_path), "name a file in it")
    assert_refused(call("schema", table, "--out", tmp_path / "no" / "b.toml"), "no such folder")


def test_private_bounds_are_certified_and_paid_first(call, table, tmp_path):
    out, ledger = tmp_path / "bounds.toml", Ledger.create(
        tmp_path / "ledger", epsilon=1, delta=1e-5, relation="add-remove"
    )  # fmt: skip
    options = (*PRIVATE, "--categories", "sex", "--target", "outcome", "--ledger", ledger.path)
    code, shown, err = call("schema", table, *options, "--out", out)
    assert (code, err) == (0, "") and "cost: ε = 0.5, δ = 1e-05" in shown
    age, income, sex, outcome = Schema.from_toml(out).columns
    assert age.bounds[0] <= 18 and 80 < age.bounds[1] <= 256
    assert income.bounds[1] > 10_000 and (sex, outcome) == (Column("sex"), Column("outcome"))
    certificate = json.loads((tmp_path / "bounds.toml.certificate.json").read_text())
    event = event_from_dict(certificate["event"])
    assert event.mu == gaussian_mu(0.5, 1e-5) and event.relation == "add-remove"
    assert gaussian_delta(event.mu, certificate["epsilon"]) <= certificate["delta"] == 1e-5
    assert ledger.spent() == pytest.approx(0.5, abs=1e-9) and ledger.entries()[0].mu >= event.mu
    assert "bounds of the columns of people.csv" in ledger.entries()[0].note
    assert "(0.5, 1e-05)-differential privacy" in out.read_text()


def test_what_the_ledger_refuses_is_not_released(call, table, tmp_path):
    ledger = Ledger.create(tmp_path / "ledger", epsilon=0.1, delta=1e-5, relation="add-remove")
    options = (*PRIVATE, "--ledger", ledger.path, "--out", tmp_path / "b.toml")
    assert_refused(call("schema", table, *options), "is left of the budget")
    assert_refused(
        call("schema", table, *options, "--relation", "replace-one"), "ledger is for add"
    )
    assert sorted(file.name for file in tmp_path.iterdir()) == ["ledger", "people.csv"]
    assert ledger.entries() == ()


def test_replace_one_costs_the_same_for_more_noise(call, table, tmp_path):
    ledger = Ledger.create(tmp_path / "ledger", epsilon=1, delta=1e-5, relation="replace-one")
    options = (*PRIVATE, "--relation", "replace-one", "--ledger", ledger.path)
    code, out, _ = call("schema", table, *options, "--out", tmp_path / "b.toml", "--json")
    assert code == 0 and json.loads(out)["certificate"]["relation"] == "replace-one"
    assert ledger.spent() == pytest.approx(0.5, abs=1e-9)


def test_a_column_without_numbers_gets_bounds_of_noise(call, table, tmp_path):
    code, out, err = call("schema", table, *PRIVATE, "--out", tmp_path / "b.toml", "--json")
    assert (code, err) == (0, "")
    low, high = json.loads(out)["bounds"]["sex"]
    assert low < high


def test_wrong_names_are_refused(call, table, tmp_path):
    assert_refused(call("schema", table, "--target", "outcom"), "Did you mean 'outcome'?")
    assert_refused(call("schema", table, "--categories", "sex,ward"), "no column 'ward'")
    assert_refused(call("schema", tmp_path / "none.csv"), "there is no file")
    path = tmp_path / "one.csv"
    path.write_text("a\n1\n")
    alone = ("--categories", "a", *PRIVATE, "--out", tmp_path / "b.toml")
    assert_refused(call("schema", path, *alone), "all columns are categories")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "TABLE"),
        (("t.csv", "--private"), "--private needs --epsilon and --out"),
        (("t.csv", "--private", "--epsilon", "1"), "--private needs --epsilon and --out"),
        (("t.csv", "--epsilon", "1"), "--epsilon belongs to --private"),
        (("t.csv", "--ledger", "x"), "--ledger belongs to --private"),
        (("t.csv", "--private", "--epsilon", "0"), "is not above 0"),
        (("t.csv", "--categories", "a,,b"), "list of names between commas"),
        (("t.csv", "--relation", "near"), "invalid choice"),
    ],
)
def test_wrong_usage_is_one_line(capsys, options, words):
    assert_misused(capsys, ("schema", *options), words)


def test_a_template_escapes_whatever_a_name_holds(tmp_path):
    names = ["a\nb", '"', "\x7f", "#", "ü"]
    path = tmp_path / "t.toml"
    path.write_text(template(names, bounds={"#": (0.0, 1.0)}), encoding="utf-8")
    schema = Schema.from_toml(path)
    assert list(schema.names) == names and schema.columns[3].bounds == (0, 1)
