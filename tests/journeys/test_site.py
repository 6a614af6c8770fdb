"""The site is built with warnings as errors, asks nobody else for anything, and has every public name."""

import os
import re
import subprocess
import sys
from importlib import import_module
from inspect import isclass, isfunction
from pathlib import Path

import pytest

import antiphon

ROOT = Path(__file__).parents[2]


def build(config, place):
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
    ]  # --quiet would hide warnings from it
    command += ["--config-file", str(config), "--site-dir", str(place)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=quiet, timeout=300)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    place = tmp_path_factory.mktemp("site")
    run = build(ROOT / "mkdocs.yml", place)
    assert run.returncode == 0, run.stdout + run.stderr
    return place


def pages(site):
    return {file.relative_to(site).as_posix(): file.read_text() for file in site.rglob("*.html")}


def test_every_page_of_the_documentation_is_in_the_site(site):
    for file in (ROOT / "docs").rglob("*.md"):
        assert (site / file.relative_to(ROOT / "docs").with_suffix(".html")).exists(), file
    assert not list(site.rglob("*.py"))


def test_a_page_that_leads_nowhere_fails_the_build(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# One\n\n[lost](nowhere.md)\n")
    text = (ROOT / "mkdocs.yml").read_text()
    kept = re.sub(r"^(nav|hooks|plugins|extra_css):.*?(?=^\S|\Z)", "", text, flags=re.M | re.S)
    (tmp_path / "mkdocs.yml").write_text(kept)
    run = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert run.returncode != 0 and "nowhere.md" in run.stderr


def test_nothing_is_fetched_from_elsewhere(site):
    outside = r"<(?:script|link|img|iframe|source|object|embed)\b[^>]*(?:src|href|srcset)=\"?(?:https?:)?//"
    for name, text in pages(site).items():
        assert re.findall(outside, text) == [], name
        assert not re.search(r"fonts\.g(oogleapis|static)|google-analytics|gtag", text), name
    for sheet in (site / "assets").rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", sheet.read_text()), sheet.name


def test_every_public_name_is_in_the_reference(site):
    index = (site / "api" / "index.html").read_text()
    links = re.findall(r'href="(\w+\.html)#([\w.]+)"><code>([\w.]+)</code>', index)
    assert set(antiphon.__all__) - {name for _, _, name in links} == set(), (
        "not in docs/api/index.md"
    )
    for page, anchor, _ in links:
        assert f'id="{anchor}"' in (site / "api" / page).read_text(), anchor


@pytest.mark.parametrize(
    ("page", "package"),
    [
        ("accounting", "accounting"),
        ("audits", "audits"),
        ("certificates", "certificates"),
        ("mechanisms", "mechanisms"),
        ("plans", "participation"),
        ("plans", "plans"),
        ("releases", "releases"),
        ("tables", "tables.estimators"),
        ("training", "training"),
    ],
)
def test_what_a_package_lists_is_described(site, page, package):
    text = (site / "api" / f"{page}.html").read_text()
    module = import_module(f"antiphon.{package}")
    made = [n for n in module.__all__ if isclass(v := getattr(module, n)) or isfunction(v)]
    found = set(re.findall(rf'id="antiphon\.{re.escape(package)}\.([\w.]+)"', text))
    # A function that is named as its module hides behind it and is asked for by itself.
    assert [n for n in made if not {n, f"{n}.{n}"} & found] == []


def test_guarantees_stand_in_boxes_and_doctests_are_code(site):
    text = (site / "api" / "training.html").read_text()
    assert re.search(r'<details class="guarantee" open>\s*<summary>Guarantee</summary>', text)
    assert "<blockquote>" not in text and "doctest" not in text
    assert '<span class="gp">&gt;&gt;&gt; </span>' in text
    assert "_check" not in text  # what is private stays out


def test_references_are_listed_and_cited(site):
    keys = re.findall(r"^@\w+\{([^,\s]+),", (ROOT / "docs/references.bib").read_text(), flags=re.M)
    listed = re.findall(
        r'<span id="(\w+)"><strong>\1</strong></span>', (site / "references.html").read_text()
    )
    assert sorted(listed) == sorted(keys)
    assert "references.html#KANCorrelated26" in (site / "errata.html").read_text()
    assert "../references.html#Andrew21" in (site / "api" / "training.html").read_text()
