"""Results on disk: found again, never trusted when damaged, never in the way."""

import os

import pytest

from antiphon import cache

KEY = {"plan": "abc", "delta": 1e-5}


def once(values):
    """A function that gives the next value at each call."""
    return iter(values).__next__


def test_a_result_is_computed_once():
    compute = once([{"noise": 0.1 + 0.2}])
    assert cache.remembered("noise", KEY, compute) == {"noise": 0.1 + 0.2}
    assert cache.remembered("noise", KEY, compute) == {"noise": 0.1 + 0.2}


def test_keys_and_kinds_are_told_apart():
    cache.store("noise", KEY, 1)
    assert cache.load("noise", {**KEY, "delta": 1e-6}) is None
    assert cache.load("epsilon", KEY) is None


@pytest.mark.parametrize("cut", [0, 1, 20, -1])
def test_an_entry_cut_short_is_computed_again(cut):
    cache.store("noise", KEY, {"noise": 2.5})
    path = next(cache.folder().rglob("*.json"))
    path.write_text(path.read_text()[:cut])
    assert cache.load("noise", KEY) is None
    assert cache.remembered("noise", KEY, lambda: {"noise": 3.0}) == {"noise": 3.0}


def test_an_entry_that_was_changed_is_not_believed():
    cache.store("noise", KEY, {"noise": 2.5})
    path = next(cache.folder().rglob("*.json"))
    path.write_text(path.read_text().replace("2.5", "0.5"))
    assert cache.load("noise", KEY) is None


def test_another_version_computes_again(monkeypatch):
    cache.store("noise", KEY, 1)
    monkeypatch.setattr(cache, "__version__", "9.9")
    assert cache.load("noise", KEY) is None


def test_an_empty_name_keeps_nothing(monkeypatch):
    monkeypatch.setenv("ANTIPHON_CACHE", "")
    cache.store("noise", KEY, 1)
    assert cache.folder() is None
    assert cache.load("noise", KEY) is None


def test_the_users_cache_folder_is_the_default(monkeypatch, tmp_path):
    monkeypatch.delenv("ANTIPHON_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "antiphon"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.folder() == tmp_path / ".cache" / "antiphon"


def test_a_folder_that_cannot_be_made_is_no_error(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ANTIPHON_CACHE", str(tmp_path / "file" / "cache"))
    cache.store("noise", KEY, 1)
    assert cache.load("noise", KEY) is None


def test_no_half_written_file_is_left(monkeypatch):
    cache.store("noise", KEY, 1)
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    cache.store("noise", {**KEY, "delta": 0.1}, 2)
    assert cache.load("noise", {**KEY, "delta": 0.1}) is None
    assert len(list(cache.folder().rglob("*.json"))) == 1
