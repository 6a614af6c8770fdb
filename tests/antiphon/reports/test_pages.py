import copy
import math
import re

import pytest
from oracles.pages import Reader

from antiphon import reports
from antiphon.certificates import round_up
from antiphon.errors import DataError


@pytest.fixture(scope="module")
def read_page(report):
    return Reader(reports.page(report))


def test_every_element_is_closed_and_there_is_no_script(read_page):
    assert read_page.open == []
    assert "script" not in {tag for tag, _ in read_page.tags}
    assert not [name for _, attrs in read_page.tags for name in attrs if name.startswith("on")]


def test_names_from_a_table_are_text_and_nothing_else(read_page):
    assert "<script>alert(1)</script>" in read_page.text
    assert "clinic <2>.csv" in read_page.text
    assert "<b>well</b>" in read_page.text


def test_ids_are_unique_and_links_within_the_page_lead_somewhere(read_page):
    ids = [attrs["id"] for _, attrs in read_page.tags if "id" in attrs]
    assert len(set(ids)) == len(ids)
    links = [attrs["href"] for tag, attrs in read_page.tags if tag == "a"]
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)
    assert all(link.startswith(("#", "data:application/json;base64,")) for link in links)


def test_a_picture_names_what_it_shows(read_page):
    ids = {attrs["id"] for _, attrs in read_page.tags if "id" in attrs}
    pictures = [attrs for tag, attrs in read_page.tags if tag == "svg"]
    assert len(pictures) >= 7
    for attrs in pictures:
        assert attrs["role"] == "img"
        assert set(attrs["aria-labelledby"].split()) <= ids


def test_no_printed_bound_is_below_the_proved_one(report):
    tried = copy.deepcopy(report)
    tried["certificate"] |= {"epsilon": 1.00001, "delta": 1.00001e-5}
    tried["certificate"]["attacks"]["accuracy"] = 0.600001
    tried["certificate"]["attacks"]["true_positive_at_1_percent"] = 0.0300001
    text = Reader(reports.page(tried)).text
    assert "ε = 1.001 and δ = 1.001 × 10⁻⁵" in text
    assert "right in at most 60.01 %" in text
    assert "finds at most 3.001 %" in text
    assert f"{round_up(math.exp(1.00001))} times as likely, plus δ (at most 1 in 99,999)" in text


def test_the_table_of_the_curve_is_rounded_up(report):
    text = reports.page(report)
    rows = re.findall(r'<th scope="row">([\d.]+) %</th><td class="num">([\d.]+) %</td>', text)
    known = {rate: found for rate, found in report["trade_off"]}
    assert len(rows) >= 10
    for rate, found in rows[:10]:
        below = max(
            value for known_rate, value in known.items() if 100 * known_rate <= float(rate) + 1e-9
        )
        assert float(found) >= 100 * below


def test_a_seed_is_warned_of_before_everything_else(report, plain_report):
    text = reports.page(report)
    assert text.index("Reproducible, not for release.") < text.index("<h2")
    assert "Reproducible, not for release." not in reports.page(plain_report)


def test_every_assumption_is_listed(plain_report):
    text = Reader(reports.page(plain_report)).text
    for line in plain_report["certificate"]["assumptions"]:
        assert line[1:] in text


def test_a_release_beside_training_is_told_in_words(report):
    text = Reader(reports.page(report)).text
    assert "GaussianRelease" not in text
    assert "Released with noise of its own: bounds of the columns (μ = " in text


def test_a_simulated_bound_says_so(report):
    assert "simulation" not in reports.page(report)
    sampled = copy.deepcopy(report)
    sampled["certificate"]["confidence"] = 1 - 1e-6
    assert "wrong with probability at most 1 × 10⁻⁶" in Reader(reports.page(sampled)).text


@pytest.mark.parametrize(
    ("relation", "question"),
    [
        ("add-remove", "was this record in the data?"),
        ("zero-out", "did this record count?"),
        ("replace-one", "was it this record or that one?"),
    ],
)
def test_each_relation_has_its_question(report, relation, question):
    other = copy.deepcopy(report)
    other["certificate"]["relation"] = relation
    assert question in Reader(reports.page(other)).text


def test_users_are_people(report):
    other = copy.deepcopy(report)
    other["certificate"]["unit"] = "user"
    text = Reader(reports.page(other)).text
    assert "one person" in text
    assert "was this person in the data?" in text
    assert "--user COLUMN" not in text


def test_without_score_and_curve_the_page_says_why_and_how(plain_report):
    text = Reader(reports.page(plain_report)).text
    assert "No score is shown." in text
    assert "--evaluate SHARE" in text
    assert "There is no learning curve." in text


def test_a_paid_score_shows_its_interval_and_its_price(report):
    paid = copy.deepcopy(report)
    paid["evaluation"] = {
        "kind": "paid",
        "rows": 60,
        "metrics": {"accuracy": 0.81},
        "interval": {"accuracy": [0.7, 0.9], "confidence": 0.95},
        "pairs": None,
        "cost": "μ = 0.4",
    }
    text = Reader(reports.page(paid)).text
    assert "0.7 to 0.9" in text
    assert "95 % interval" in text
    assert "paid for within the ε and δ above (μ = 0.4)" in text


def test_correlation_that_does_not_pay_is_not_praised(report):
    for factor, words in [(0.5, "here the correlation does not pay"), (2.0, "2 times as much")]:
        other = copy.deepcopy(report)
        for row in other["noise"]["summed"]:
            row[2] = factor * row[1]
        assert words in Reader(reports.page(other)).text


def test_predictions_are_drawn_one_dot_each(plain_report):
    other = copy.deepcopy(plain_report)
    points = [[100.0 + i, 101.0 + i] for i in range(60)]
    other["evaluation"] = {
        "kind": "public", "rows": 60, "metrics": {"R²": None}, "interval": None, "cost": None,
        "pairs": {"points": points},
    }  # fmt: skip
    text = reports.page(other)
    assert text.count("<circle") == 60
    assert "The table has the first 50 of 60." in text


def test_what_is_written_is_read_again(report, tmp_path):
    reports.write(report, tmp_path / "new")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "report.html",
        "report.json",
    ]
    assert reports.read(tmp_path / "new" / "report.json") == report
    assert (tmp_path / "new" / "report.html").read_text(encoding="utf-8") == reports.page(report)


def test_a_report_that_cannot_be_shown_leaves_nothing(report, tmp_path):
    broken = {**report, "trained": {}}
    with pytest.raises(KeyError):
        reports.write(broken, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: "", "not JSON"),
        (lambda text: text[: len(text) // 2], "not JSON"),
        (lambda text: "[1, 2]", "is no report"),
        (lambda text: '{"plan": {}}', "is no report"),
        (lambda text: text.replace('"format": 1', '"format": 99'), "format 99"),
        (lambda text: text.replace('"noise": {', '"silence": {'), "lacks noise"),
        (lambda text: text.replace('"plan_hash": "', '"plan_hash": "0'), "is damaged"),
        (lambda text: text.replace('"items": [', '"pieces": ['), "is damaged"),
        (lambda text: text.replace('"summed": [', '"summed": [[],'), "is damaged"),
        (lambda text: text.replace('"is_sum"', '"is_product"'), "is damaged.*is_sum"),
        (lambda text: text.replace('"clinic <2>.csv"', '{"name": "x"}'), "is damaged.*no text"),
    ],
)
def test_what_is_no_report_is_refused_in_one_line(report, tmp_path, change, reason):
    reports.write(report, tmp_path)
    path = tmp_path / "report.json"
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(DataError, match=reason) as refusal:
        reports.read(path)
    assert "\n" not in str(refusal.value)


def test_a_report_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        reports.read(tmp_path / "report.json")
