"""The pages in a real browser."""

import json
from itertools import pairwise

import pytest
from browser import visit

from antiphon import reports

SECTIONS = ["promise", "meaning", "quality", "learning", "noise", "learned", "columns", "machines"]
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="400" height="300"><rect width="9" height="9"/></svg>'


@pytest.fixture(scope="module")
def places(report, plain_report, tmp_path_factory):
    """Addresses of the pages, by name."""
    home = tmp_path_factory.mktemp("pages")
    for name, content in {"full": report, "plain": plain_report}.items():
        reports.write(content, home / name)
    wide = [{f"column {i}": 1 / (i + 1) for i in range(30)}]
    page = reports.experiment_page(
        id="kan-sgd-noise-growth",
        title="T",
        description="D",
        preset="ci",
        rows=wide,
        summary=wide,
        figure_svg=SVG,
    )
    (home / "experiment").mkdir()
    (home / "experiment" / "report.html").write_text(page, encoding="utf-8")
    return {
        name: (home / name / "report.html").as_uri() for name in ("full", "plain", "experiment")
    }


PAGES = ("full", "plain", "experiment")


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [360, 1280])
def test_a_page_loads_nothing_complains_of_nothing_and_fits(chromium, places, name, width):
    with visit(chromium, places[name], width=width) as seen:
        seen.page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
        pictures = set()
        for look in ({"color_scheme": "light"}, {"color_scheme": "dark"}, {"media": "print"}):
            seen.page.emulate_media(**look)
            needed, there = seen.page.evaluate(
                "[document.documentElement.scrollWidth, window.innerWidth]"
            )
            if look != {"media": "print"} or width > 360:  # no paper is as narrow as a telephone
                assert needed <= there == width
            pictures.add(seen.page.screenshot())
        assert len(pictures) == 3
        outside = [url for url in seen.requests if not url.startswith("data:")]
        assert outside == [places[name]]
        assert seen.complaints == []


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
    with visit(chromium, places[name]) as seen:
        levels = seen.page.eval_on_selector_all(
            "h1, h2, h3, h4", "all => all.map(h => Number(h.tagName[1]))"
        )
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))
        for landmark in ("banner", "navigation", "main", "contentinfo"):
            assert seen.page.get_by_role(landmark).count() == 1
        pictures = seen.page.get_by_role("img")
        assert pictures.count() == seen.page.locator("svg, img").count()
        named = seen.page.locator("svg, img").all()
        assert all(
            each.get_attribute("alt") or each.locator("title").text_content() for each in named
        )
        assert seen.page.locator("html[lang=en]").count() == 1


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


CONTRAST = """() => {
  const light = c => {
    const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = getComputedStyle(e).backgroundColor;
      if (c !== 'rgba(0, 0, 0, 0)') return c;
    }
    return 'rgb(255, 255, 255)';
  };
  const found = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || e.closest('title, desc') || !e.getClientRects().length) continue;
    const style = getComputedStyle(e);
    const ink = e instanceof SVGElement ? style.fill : style.color;
    const [a, b] = [light(ink), light(behind(e))].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), e.outerHTML.slice(0, 80)]);
  }
  return found.sort((x, y) => x[0] - y[0])[0];
}"""


@pytest.mark.parametrize("name", PAGES)
def test_every_text_stands_out_from_what_is_behind_it(chromium, places, name):
    with visit(chromium, places[name]) as seen:
        for scheme in ("light", "dark"):
            seen.page.emulate_media(color_scheme=scheme)
            least, where = seen.page.evaluate(CONTRAST)
            assert least >= 4.5, (scheme, where)
