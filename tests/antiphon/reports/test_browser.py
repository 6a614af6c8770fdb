"""The pages in a real browser."""

import json

import pytest
from oracles.browser import visit
from oracles.pages import (
    assert_every_text_stands_out_from_what_is_behind_it,
    assert_headings_are_in_order_and_pictures_have_names,
    assert_it_loads_nothing_complains_of_nothing_and_fits,
)

from antiphon import reports

SECTIONS = ["promise", "meaning", "quality", "learning", "noise", "learned", "columns", "machines"]
PAGES = ("full", "plain")


@pytest.fixture(scope="module")
def places(report, plain_report, tmp_path_factory):
    """Addresses of the pages, by name."""
    home = tmp_path_factory.mktemp("pages")
    for name, content in {"full": report, "plain": plain_report}.items():
        reports.write(content, home / name)
    return {name: (home / name / "report.html").as_uri() for name in PAGES}


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [360, 1280])
def test_a_page_loads_nothing_complains_of_nothing_and_fits(chromium, places, name, width):
    assert_it_loads_nothing_complains_of_nothing_and_fits(chromium, places[name], width)


def test_all_figures_are_there_and_have_a_size(chromium, places):
    with visit(chromium, places["full"]) as seen:
        ids = seen.page.eval_on_selector_all("main > section", "all => all.map(s => s.id)")
        assert ids == SECTIONS
        boxes = seen.page.eval_on_selector_all(
            "svg",
            "all => all.map(s => [s.querySelector('title').textContent, s.getBoundingClientRect().width,"
            " s.getBoundingClientRect().height])",
        )
        names = " ".join(name for name, *_ in boxes)
        for part in ("Trade-off", "Calibration", "Learning", "Correlation", "Standard", "Learned"):
            assert part in names
        assert all(width > 100 and height > 60 for _, width, height in boxes)
        tables = "all => all.every(f => f.querySelector('details table td'))"
        assert seen.page.eval_on_selector_all("figure", tables)


def test_the_curve_on_the_page_is_that_of_the_report(chromium, places, report):
    with visit(chromium, places["full"]) as seen:
        path = seen.page.locator("svg:has(#trade-off-title) path.line.s1")
        drawn = path.get_attribute("d").removeprefix("M").split("L")
        assert len(drawn) == len(report["trade_off"])
        left, right = (float(drawn[place].split()[0]) for place in (0, -1))
        guide = seen.page.locator("svg:has(#trade-off-title) path.guide").get_attribute("d")
        bottom = float(guide[1:].partition("L")[0].split()[1])
        top = float(drawn[-1].split()[1])
        for text, (rate, found) in zip(drawn, report["trade_off"], strict=True):
            x, y = map(float, text.split())
            assert (x - left) / (right - left) == pytest.approx(rate, abs=1e-3)
            assert (bottom - y) / (bottom - top) == pytest.approx(found, abs=1e-3)


def test_numbers_on_the_page_are_those_of_the_json(chromium, places, report):
    with visit(chromium, places["full"]) as seen:
        found = seen.page.eval_on_selector_all(
            "data", "all => all.map(d => [d.dataset.path, d.value, d.textContent])"
        )
    assert len(found) >= 20
    paths = {tuple(json.loads(path)) for path, _, _ in found}
    assert {("certificate", "epsilon"), ("certificate", "delta"), ("trained", "units")} <= paths
    assert ("evaluation", "metrics", "log.loss") in paths
    for path, value, shown in found:
        wanted = report
        for key in json.loads(path):
            wanted = wanted[key]
        assert float(value) == wanted
        read = float(shown.removesuffix(" %").replace(",", "")) / (100 if "%" in shown else 1)
        assert read == pytest.approx(wanted, rel=1e-3)
        if json.loads(path)[0] == "certificate":
            assert read >= wanted * (1 - 1e-14)


@pytest.mark.parametrize("name", PAGES)
def test_headings_are_in_order_and_pictures_have_names(chromium, places, name):
    assert_headings_are_in_order_and_pictures_have_names(chromium, places[name])


def test_the_keyboard_reaches_the_download_and_shows_where_it_is(chromium, places):
    with visit(chromium, places["full"]) as seen:
        seen.page.keyboard.press("Tab")
        assert seen.page.evaluate("document.activeElement.className") == "skip"
        assert seen.page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
        for _ in range(60):
            seen.page.keyboard.press("Tab")
            if seen.page.evaluate("document.activeElement.download") == "report.json":
                break
        else:
            raise AssertionError("the download is out of reach")
        style = seen.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert style == "solid"


def test_the_download_is_the_file_that_was_written(chromium, places, report):
    with visit(chromium, places["full"], accept_downloads=True) as seen:
        with seen.page.expect_download() as waiting:
            seen.page.get_by_role("link", name="Download report.json").click()
        assert waiting.value.suggested_filename == "report.json"
        with open(waiting.value.path(), encoding="utf-8") as file:
            assert json.load(file) == report


@pytest.mark.parametrize("name", PAGES)
def test_every_text_stands_out_from_what_is_behind_it(chromium, places, name):
    assert_every_text_stands_out_from_what_is_behind_it(chromium, places[name])
