"""Rooms have doors: what lies in a room is imported from outside by its packages, never by its modules."""

import ast
from pathlib import Path

import pytest

import antiphon

SOURCE = Path(antiphon.__file__).parents[1]
OPEN = {  # they load a compiler, so the door of their room leaves them out
    "antiphon.models.spline_kernels",
    "antiphon.numerics.compiled",
    "antiphon.numerics.normals",
    "antiphon.numerics.rounding",
}
FILES = {
    ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): file
    for package in ("antiphon", "antiphon_papers")
    for file in (SOURCE / package).rglob("*.py")
}
PACKAGES = {name for name, file in FILES.items() if file.name == "__init__.py"}


def room(name):
    """The room of a module: the first folder, and the first two where a room has rooms."""
    parts = name.split(".")
    if parts[0] == "antiphon" and parts[1:2] in (["training"], ["tables"], ["integrations"]):
        inner = ".".join(parts[:3])
        return inner if inner in PACKAGES else ".".join(parts[:2])
    return ".".join(parts[:2])


def is_allowed(name, importer):
    """Whether a module may be imported by another one."""
    if room(name) == room(importer) or name in PACKAGES or name in OPEN or name.count(".") == 1:
        return True
    # A sub-room may use its room's own modules; papers share what lies in their common folder.
    return room(importer).startswith(f"{room(name)}.") or (
        name.startswith("antiphon_papers.common.") and importer.startswith("antiphon_papers.")
    )


def _names_of(file):
    """Names that a module imports, which hide modules of the same name."""
    body = ast.parse(file.read_text()).body
    return {a.asname or a.name for n in body if isinstance(n, ast.ImportFrom) for a in n.names}


def imported(file):
    """Every module of ours that a file imports from."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module in FILES:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                own = _names_of(FILES[node.module])
                yield inner if inner in FILES and alias.name not in own else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in FILES)


@pytest.mark.parametrize("package", ["antiphon", "antiphon_papers"])
def test_nobody_imports_past_a_door(package):
    past = [
        f"{name} imports {found}"
        for name, file in FILES.items()
        if name.split(".")[0] == package
        for found in imported(file)
        if not is_allowed(found, name)
    ]
    assert past == []


def test_a_door_says_in_a_page_what_its_room_is_for():
    for name in PACKAGES:
        text = ast.get_docstring(ast.parse(FILES[name].read_text()))
        assert text and len(text.splitlines()) <= 60, name


def test_no_two_modules_of_the_product_share_a_file_name():
    own = [name for name in FILES if name.startswith("antiphon.") and name not in PACKAGES]
    names = [name.rpartition(".")[2] for name in own]
    assert sorted({name for name in names if names.count(name) > 1}) == []
