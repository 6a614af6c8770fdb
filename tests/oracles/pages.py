"""What every page that a person reads must be, read as text and in a real browser."""

import re
from html.parser import HTMLParser
from itertools import pairwise

from oracles.browser import visit


class Reader(HTMLParser):
    """Tags and texts, and whether every element is closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", "".join(self.words))


def assert_it_loads_nothing_complains_of_nothing_and_fits(chromium, place, width):
    with visit(chromium, place, width=width) as seen:
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
        assert outside == [place]
        assert seen.complaints == []


def assert_headings_are_in_order_and_pictures_have_names(chromium, place):
    with visit(chromium, place) as seen:
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


def assert_every_text_stands_out_from_what_is_behind_it(chromium, place):
    with visit(chromium, place) as seen:
        for scheme in ("light", "dark"):
            seen.page.emulate_media(color_scheme=scheme)
            least, where = seen.page.evaluate(_CONTRAST)
            assert least >= 4.5, (scheme, where)


_CONTRAST = """() => {
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
