"""The page of an experiment, as text and in a real browser."""

import base64
import json

import pytest
from oracles.browser import chromium as chromium
from oracles.pages import (
    Reader,
    assert_every_text_stands_out_from_what_is_behind_it,
    assert_headings_are_in_order_and_pictures_have_names,
    assert_it_loads_nothing_complains_of_nothing_and_fits,
)

from antiphon_papers.common.experiment_page import experiment_page

SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="400" height="300"><rect width="9" height="9"/></svg>'


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Address of a page with a wide table."""
    wide = [{f"column {i}": 1 / (i + 1) for i in range(30)}]
    page = experiment_page(
        id="kan-sgd-noise-growth",
        title="T",
        description="D",
        preset="ci",
        rows=wide,
        summary=wide,
        figure_svg=SVG,
    )
    path = tmp_path_factory.mktemp("experiment") / "report.html"
    path.write_text(page, encoding="utf-8")
    return path.as_uri()


def test_an_experiment_has_a_page_with_all_its_rows():
    rows = [{"λ": 0.5, "name": "<i>a</i>"}, {"λ": 0.9, "extra": None}]
    text = experiment_page(
        id="kan-sgd-noise-growth",
        title="How noise grows",
        description="How noise grows\n\nA paragraph\nof ``two`` lines.\n\n- one\n- two",
        preset="ci",
        rows=rows,
        summary=rows,
        figure_svg='<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 3"><script/></svg>',
    )
    page = Reader(text)
    assert page.open == []
    assert "script" not in {tag for tag, _ in page.tags}
    assert "A paragraph of two lines." in page.text
    assert "<i>a</i>" in page.text
    links = {a["download"]: a["href"] for tag, a in page.tags if "download" in a}
    data = {name: base64.b64decode(link.partition(",")[2]).decode() for name, link in links.items()}
    assert json.loads(data["kan-sgd-noise-growth.json"]) == rows
    assert data["kan-sgd-noise-growth.csv"] == "λ,name,extra\n0.5,<i>a</i>,\n0.9,,\n"


@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_loads_nothing_complains_of_nothing_and_fits(chromium, place, width):
    assert_it_loads_nothing_complains_of_nothing_and_fits(chromium, place, width)


def test_headings_are_in_order_and_pictures_have_names(chromium, place):
    assert_headings_are_in_order_and_pictures_have_names(chromium, place)


def test_every_text_stands_out_from_what_is_behind_it(chromium, place):
    assert_every_text_stands_out_from_what_is_behind_it(chromium, place)
