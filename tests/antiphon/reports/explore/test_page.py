"""The page in a real Chromium: what a person does, sees and hears."""

import json
import math
import threading
from unittest.mock import patch
from urllib.parse import parse_qsl, urlencode, urlsplit
from urllib.request import urlopen

import pytest

from antiphon.plans import Plan
from antiphon.reports.explore import Server

QUICK = {
    "n": "600",
    "batch": "150",
    "epochs": "2",
    "epsilon": "2",
    "delta": "1e-3",
    "lam": "0.5",
    "sampling": "shuffled",
    "relation": "",
}
REFUSED = "Failed to load resource: the server responded with a status of 400 (Bad Request)"


@pytest.fixture(scope="module")
def server():
    with Server(0) as started, patch("antiphon.reports.explore.answer._FEW", (0.3, 0.8)):
        thread = threading.Thread(target=started.serve_forever, args=(0.02,))
        thread.start()
        yield started
        started.shutdown()
        thread.join()


@pytest.fixture
def page(chromium, server):
    """A page at the quick plan; in the end it has asked nobody else and complained of nothing."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened = context.new_page()
    opened.set_default_timeout(30_000)
    opened.asked, opened.complaints = [], []
    opened.on("request", lambda request: opened.asked.append(request.url))
    opened.on("console", lambda told: opened.complaints.append(told.text))
    opened.on("pageerror", lambda error: opened.complaints.append(str(error)))
    opened.goto(f"{server.url}#{urlencode(QUICK)}")
    ready(opened)
    yield opened
    context.close()
    for url in opened.asked:
        assert url.startswith((server.url, f"blob:{server.url}"))
    assert opened.complaints == []


def ready(page):
    """Wait until the last question is answered."""
    page.wait_for_timeout(180)  # longer than sliders are waited for
    page.wait_for_selector("#result[aria-busy=false]:not(.stale)")
    page.evaluate("() => new Promise(requestAnimationFrame)")


def state(page):
    return dict(parse_qsl(urlsplit(page.url).fragment, keep_blank_values=True))


def answered(server, asked):
    with urlopen(f"{server.url}api/plan?{urlencode(asked)}", timeout=30) as answer:
        return [json.loads(line) for line in answer.read().splitlines()]


def up(value):
    """Four digits, rounded up, as the page prints noise."""
    scale = 10.0 ** (3 - math.floor(math.log10(value)))
    return float(f"{math.ceil(float(f'{value * scale:.14g}')) / scale:.4g}")


def assert_shows(page, parts):
    """The page's numbers are those of the server."""
    rows = {part["key"]: part for part in parts if part["kind"] == "row"}
    best = [part for part in parts if part["kind"] == "best"][-1]
    assert page.locator("#mechanisms tbody tr").count() == len(rows)
    for key, row in rows.items():
        shown = page.locator(f"tr[data-key={key}] [data-value]")
        assert float(shown.get_attribute("data-value")) == row["noise"]
        assert float(shown.inner_text()) == up(row["noise"]) >= row["noise"] * (1 - 1e-12)
        cells = page.locator(f"tr[data-key={key}]").inner_text()
        assert row["label"] in cells
        assert parts[0]["routes"][row["route"]] in cells
    assert page.locator("tr.chosen").get_attribute("data-key") == best["key"]
    assert page.locator("#best").inner_text() == rows[best["key"]]["label"]
    assert page.locator("#why").inner_text() == best["why"]
    assert float(page.locator("#card-noise").inner_text()) == up(rows[best["key"]]["noise"])


def test_the_numbers_are_those_of_the_server(page, server):
    assert_shows(page, answered(server, QUICK))


@pytest.mark.parametrize("field", ["n", "batch", "epochs", "epsilon", "delta", "lam"])
def test_a_slider_moved_by_the_keyboard_changes_the_numbers(page, server, field):
    before = page.locator("#mechanisms tbody").inner_text()
    page.focus(f"#{field}-slider")
    page.keyboard.press("ArrowRight")
    ready(page)
    asked = state(page)
    assert {name for name in QUICK if asked[name] != QUICK[name]} == {field}
    assert page.input_value(f"#{field}") == asked[field]
    spoken = page.get_attribute(f"#{field}-slider", "aria-valuetext")
    assert spoken == page.input_value(f"#{field}")
    assert page.locator("#mechanisms tbody").inner_text() != before
    assert_shows(page, answered(server, asked))


def test_poisson_batches_are_answered_in_steps_and_marked_as_upper_bounds(page, server):
    page.select_option("#sampling", "poisson")
    ready(page)
    assert "Monte Carlo" in page.locator("#caveat").inner_text()
    assert_shows(page, answered(server, QUICK | {"sampling": "poisson"}))


def test_a_number_is_typed_exactly_and_the_address_brings_it_back(page, server):
    page.fill("#n", "1 234")
    ready(page)
    asked = state(page)
    assert asked == QUICK | {"n": "1234"}
    page.fill("#epsilon", "3")
    ready(page)
    page.goto(f"{server.url}#{urlencode(asked)}")
    ready(page)
    assert (page.input_value("#n"), page.input_value("#epsilon")) == ("1234", "2")
    page.reload()
    ready(page)
    assert page.input_value("#n") == "1234"
    assert_shows(page, answered(server, asked))


def test_an_impossible_combination_shows_the_reason_beside_its_control(page):
    page.fill("#batch", "601")
    page.wait_for_selector("#batch-problem:not([hidden])")
    reason = "batch_size=601 is larger than the 600 units of the data."
    assert page.locator("#batch-problem").inner_text() == reason
    assert page.get_attribute("#batch", "aria-invalid") == "true"
    assert page.get_attribute("#batch-problem", "role") == "alert"
    page.fill("#batch", "many")
    page.locator("#batch-problem", has_text="batch must be a number; got 'many'.").wait_for()
    page.fill("#batch", "150")
    ready(page)
    assert page.locator("#batch-problem").is_hidden()
    assert page.get_attribute("#batch", "aria-invalid") is None
    assert set(page.complaints) == {REFUSED}  # Chromium's own note of a refusal, for developers
    page.complaints.clear()


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_window_and_pictures_are_there(page, width, scheme):
    page.set_viewport_size({"width": width, "height": 780})
    page.emulate_media(color_scheme=scheme)
    page.wait_for_timeout(100)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    for figure in ("sums", "lambda", "lags"):
        chart = page.locator(f"#{figure} svg.chart")
        assert chart.get_attribute("role") == "img"
        assert chart.get_attribute("aria-label")
        box = chart.bounding_box()
        assert 250 < box["width"] <= width
        assert page.locator(f"#{figure} svg.chart .line").count() >= 1
        assert "NaN" not in chart.inner_html()
        assert page.locator(f"#{figure} details table").count() == 1
    size = page.evaluate("getComputedStyle(document.querySelector('svg.chart text')).fontSize")
    assert size == "12px"
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(22, 24, 27)") == (scheme == "dark")


def test_the_curve_ends_at_noise_times_error_over_the_batch(page, server):
    page.locator("#sums summary").click()
    last = page.locator("#sums details tbody tr").last.locator("td, th").all_inner_texts()
    rows = {p["key"]: p for p in answered(server, QUICK) if p["kind"] == "row"}
    assert last[0] == "8"
    names = page.locator("#sums details thead th").all_inner_texts()[1:]
    by_label = {row["label"]: row for row in rows.values()}
    for name, shown in zip(names, last[1:], strict=True):
        row = by_label[name]
        assert float(shown) == pytest.approx(row["noise"] * row["errors"][-1] / 150, rel=1e-3)


def test_every_control_has_a_name_and_the_result_is_announced(page):
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("input, select, button, progress")].filter((e) =>
            !e.labels?.length && !e.getAttribute("aria-label") && !e.getAttribute("aria-labelledby")
            && !e.textContent.trim()).map((e) => e.id)"""
    )
    assert unnamed == []
    assert page.get_attribute("#why", "aria-live") == "polite"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"


def test_a_preset_fills_all_controls(page):
    page.get_by_role("button", name="CIFAR-10 in shuffled batches").click()
    ready(page)
    assert state(page)["n"] == "50000"
    assert page.locator("#card-steps").inner_text() == "2000"


def test_the_snippets_are_for_the_state_and_can_be_copied(page):
    shell = page.locator("#shell").inner_text()
    assert shell == (
        "antiphon plan --n 600 --batch-size 150 --epochs 2 --epsilon 2 --delta 1e-3 --sampling shuffled"
    )
    page.locator("[data-copy=shell]").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == shell
    python = page.locator("#python").inner_text()
    compile(python, "snippet", "exec")
    assert "epsilon=2, delta=1e-3, epochs=2, batch_size=150" in python


def test_a_certification_shows_progress_and_ends_with_a_certificate_and_a_plan(page):
    page.select_option("#sampling", "poisson")
    ready(page)
    page.get_by_role("button", name="Certify λ-CGD, your λ: 0.5").click()
    page.wait_for_selector("#progress[value]")
    assert page.locator("#cancel").is_visible()
    assert page.locator("#doing").inner_text().endswith("…")
    page.wait_for_selector("#certificate:not([hidden])")
    lines = page.locator("#certificate dl").inner_text()
    assert "0.001)-differential privacy" in lines
    with page.expect_download() as found:
        page.locator("#plan-json").click()
    plan = Plan.from_json(found.value.path().read_text())
    noise = page.get_attribute("#certified-noise", "data-value")
    assert plan.noise_multiplier == float(noise)
    assert plan.mechanism.lam == 0.5


def test_a_certification_can_be_cancelled(page):
    page.fill("#delta", "1e-8")
    page.select_option("#sampling", "poisson")
    ready(page)
    page.select_option("#which", "slider")
    page.locator("#start").click()
    page.locator("#cancel").wait_for()
    page.reload()  # the job goes on: asked again, it is found
    ready(page)
    page.locator("#start").click()
    page.get_by_text("a certification is running already").wait_for()
    page.locator("#cancel").click()
    page.get_by_text("cancelled", exact=True).wait_for()
    assert set(page.complaints) <= {REFUSED.replace("400 (Bad Request)", "409 (Conflict)")}
    page.complaints.clear()
    assert page.locator("#start").is_enabled()
    assert page.locator("#certificate").is_hidden()
