"""What the site adds to the pages in docs/: files from above, the papers, examples and references."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.utils import get_relative_url

__all__ = ["on_files", "on_page_content", "on_page_markdown", "references"]

ROOT = Path(__file__).parents[1]
ABOVE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
}
PAPERS = ("kan_sgd", "kan_gd", "relu", "cnn", "dp_ftrl")


def references() -> dict[str, dict[str, str]]:
    """The entries of references.bib, each a mapping of its fields, without braces."""
    found = {}
    text = (ROOT / "docs" / "references.bib").read_text(encoding="utf-8")
    for key, body in re.findall(r"^@\w+\{([^,\s]+),\n(.*?)^\}", text, re.M | re.S):
        fields = re.findall(r"^\s*(\w+) = \{(.*)\},?$", body, re.M)
        found[key] = {name: re.sub(r"[{}]", "", value).replace("--", "–") for name, value in fields}
    return found


def on_files(files: Files, config: Any) -> Files:
    """Add the changelog, how to contribute, the papers, the examples and the references."""
    pages = {page: (ROOT / name).read_text(encoding="utf-8") for name, page in ABOVE.items()}
    del pages["index.md"]  # the site has its own
    pages |= {"examples.md": _examples(), "references.md": _references()}
    pages |= {f"papers/{paper}.md": _paper(paper) for paper in PAPERS}
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links that leave docs/ lead to the pages that stand for them."""
    if page.file.src_uri in ("changelog.md", "contributing.md"):
        markdown = re.sub(r"\]\(docs/", "](", markdown)
    for name, target in ABOVE.items():
        markdown = markdown.replace(f"](../{name})", f"]({target})").replace(
            f"]({name})", f"]({target})"
        )
    markdown = re.sub(
        r"\]\(\.\./src/antiphon_papers/(\w+)/README\.md\)", r"](papers/\1.md)", markdown
    )
    markdown = re.sub(r"\]\((?:\.\./)?examples/(\w+)\.py\)", r"](examples.md#\1)", markdown)
    return markdown.replace("](references.bib)", "](references.md)")


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Link every citation, such as [KANCorrelated26, Thm. F.8], to its entry."""
    there = get_relative_url("references.html", page.url)
    known = r"\b(" + "|".join(references()) + r")\b"

    def cited(bracket: re.Match[str]) -> str:
        return re.sub(known, rf'<a href="{there}#\1">\1</a>', bracket[0])

    parts = re.split(r"(<pre.*?</pre>)", html, flags=re.S)  # code stays as it is
    parts[::2] = [re.sub(r"\[[A-Z][^\[\]<>]*\]", cited, part) for part in parts[::2]]
    return "".join(parts)


def _paper(paper: str) -> str:
    text = (ROOT / "src" / "antiphon_papers" / paper / "README.md").read_text(encoding="utf-8")
    return text.replace("](../../../docs/", "](../")


def _examples() -> str:
    lines = ["# Examples", "", "Scripts of `examples/`, run by the tests as they stand."]
    for file in sorted((ROOT / "examples").glob("*.py")):
        lines += ["", f"## {file.name} {{: #{file.stem} }}", "", "```python"]
        lines += [file.read_text(encoding="utf-8").rstrip(), "```"]
    return "\n".join(lines) + "\n"


def _references() -> str:
    lines = ["# References", "", "What docstrings and pages cite, from `docs/references.bib`.", ""]
    for key, fields in sorted(references().items(), key=lambda entry: entry[0].lower()):
        authors = fields["author"].replace(" and ", "; ")
        place = fields.get("booktitle") or fields.get("journal") or fields.get("publisher")
        rest = ", ".join(text for text in (place, fields.get("note"), fields["year"]) if text)
        lines.append(
            f'- <span id="{key}">**{key}**</span>: {authors}. *{fields["title"]}.* {rest}.'
        )
    return "\n".join(lines) + "\n"
