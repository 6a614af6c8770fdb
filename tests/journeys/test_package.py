import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import antiphon

ROOT = Path(antiphon.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
NAMES = [
    ".".join(("antiphon", *file.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for file in FILES
]


def test_public_names_are_exactly_those_listed():
    assert {name for name in dir(antiphon) if not name.startswith("_")} == set(antiphon.__all__)
    assert all(getattr(antiphon, name) for name in antiphon.__all__)


def test_an_unknown_name_is_refused():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = antiphon.nonsense


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("antiphon", ("torch", "matplotlib", "scipy", "numba")),
        ("antiphon.mechanisms", ("numba",)),
        ("antiphon.numerics", ("numba",)),
    ],
)
def test_importing_the_package_loads_no_heavy_library(module, heavy):
    code = f"import sys, {module}; print(*(m for m in {heavy} if m in sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_the_package_says_that_it_is_typed():
    assert (ROOT / "py.typed").is_file()


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_a_module_and_everything_public_in_it_is_documented(file):
    module = ast.parse(file.read_text())
    assert ast.get_docstring(module)
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            inner = isinstance(node, ast.FunctionDef) and not is_documented_place(module, node)
            overloads = [
                d for d in getattr(node, "decorator_list", []) if ast.unparse(d) == "overload"
            ]
            assert inner or overloads or ast.get_docstring(node), node.name


def is_documented_place(module, function):
    """Whether a function stands in a module or a class, and not within another function."""
    places = [module, *(node for node in ast.walk(module) if isinstance(node, ast.ClassDef))]
    return any(function in place.body for place in places)


@pytest.mark.parametrize("name", NAMES)
def test_a_module_lists_exactly_what_is_public_in_it(name):
    module = importlib.import_module(name)
    listed = module.__all__
    assert len(set(listed)) == len(listed)
    assert all(hasattr(module, public) for public in listed)
    made_here = {
        public
        for public, value in vars(module).items()
        if not public.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == name
    }
    assert made_here <= set(listed)
