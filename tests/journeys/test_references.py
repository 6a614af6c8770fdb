"""Every citation in the source resolves in docs/references.bib, and every entry there is cited."""

import re
from pathlib import Path

import antiphon

ROOT = Path(antiphon.__file__).parent
BIBLIOGRAPHY = ROOT.parents[1] / "docs" / "references.bib"
# [Name24], [Name24, Thm. 2], [Name, Alg. 1; Other23]: a year of two digits, or a place after the name.
BRACKET = re.compile(
    r"\[([A-Z][A-Za-z]+(?:\d\d\b|, (?:Alg|App|Cor|Fig|Lem|Prop|Sec|Tab|Thm|ch|eq|sec)\b)[^\[\]]*)\]"
)
KEY = re.compile(r"(?:^|; )([A-Z][A-Za-z]+(?:\d\d)?)(?=$|[,;])")


def cited(text):
    """The keys in all brackets, also where a line break falls within one."""
    flat = re.sub(r"\s*\n\s*#?\s*", " ", text)
    return {key for bracket in BRACKET.findall(flat) for key in KEY.findall(bracket)}


def test_citations_are_found_in_all_their_forms():
    text = """[One24] [Two23, Thm. 2] [KANOnly, Alg. 1] [Three10; Four11, sec. 3] [Five12,
        # Prop. 6]. But not list[Tensor], tuple[Tensor, Tensor], [T, d] or x[Other]."""
    assert cited(text) == {"One24", "Two23", "KANOnly", "Three10", "Four11", "Five12"}


def test_citations_and_bibliography_agree():
    sources = ROOT.parent.rglob("*.py")  # of both packages
    keys = set().union(*(cited(file.read_text()) for file in sources))
    entries = re.findall(r"^@\w+\{([^,\s]+),", BIBLIOGRAPHY.read_text(), flags=re.MULTILINE)
    assert len(set(entries)) == len(entries)
    assert keys - set(entries) == set(), "cited, but not in references.bib"
    assert set(entries) - keys == set(), "in references.bib, but never cited"
