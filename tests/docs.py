"""The documentation as tests read it: all pages as one text, found by heading, never by file.

`python -m tests.docs` renews every generated block of every page.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from voicepipe.providers import catalog

ROOT: Final = Path(__file__).parents[1]
README: Final = ROOT / "README.md"
PAGES: Final = {path: path.read_text(encoding="utf-8") for path in (README, *sorted((ROOT / "web/docs").glob("*.md")))}
"""Path -> text of each page."""

DOCS: Final = "\n".join(PAGES.values())

GENERATORS: Final = ("tests.test_docs", "tests.test_operating", "tests.test_security", "tests.realtime.test_rows")
"""Modules with a `GENERATED`: name of a block -> function that returns its text."""

Generated = Mapping[str, Callable[[], str]]


def section(title: str) -> str:
    """Return the text below a heading of any rank, up to the next one of its rank or above on that page.

    Raises:
        AssertionError: no page has that heading, or several have.
    """
    found = [text[start:end] for text in PAGES.values() for start, end in _spans(title, text)]
    assert len(found) == 1, f"{len(found)} sections are named {title!r}"
    return found[0]


def _spans(title: str, text: str) -> list[tuple[int, int]]:
    # A comment in an example is no heading.
    outside = re.sub(r"^```.*?^```", lambda fenced: fenced[0].replace("#", " "), text, flags=re.DOTALL | re.MULTILINE)
    spans = []
    for head in re.finditer(rf"^(#+) {re.escape(title)}\n", outside, re.MULTILINE):
        after = re.compile(rf"^#{{1,{len(head[1])}}} ", re.MULTILINE).search(outside, head.end())
        spans.append((head.end(), after.start() if after else len(text)))
    return spans


def rows(text: str) -> list[list[str]]:
    """Return the cells of all tables' lines below their heads."""
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line] for line in lines if "---" not in line[0]]


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table as Markdown."""
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ["---"] * len(head), *lines))


def code(kind: str, text: str = DOCS) -> list[str]:
    """Return all fenced blocks of that kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def named(cell: str) -> set[str]:
    """Return everything between backticks."""
    return set(re.findall(r"`([^`]+)`", cell))


def block(name: str, text: str = DOCS) -> str:
    """Return what stands between the two marks of a generated block.

    Raises:
        AssertionError: it stands nowhere, or more than once.
    """
    found = re.findall(rf"<!-- begin {name} -->\n(.*?)<!-- end {name} -->", text, re.DOTALL)
    assert len(found) == 1, f"{len(found)} generated blocks are named {name!r}"
    return str(found[0])


def generated() -> dict[str, str]:
    """Return each generated block's name and the text that the code has for it now."""
    blocks: dict[str, Callable[[], str]] = {}
    for module in GENERATORS:
        blocks |= importlib.import_module(module).GENERATED
    return {name: make() for name, make in blocks.items()}


def counts() -> dict[str, int]:
    """Return what the pages count by number, such as "26 LLM vendors" -> how many there are now."""
    return {"LLM vendors": len(catalog.load().providers)}


def renew() -> None:
    """Write every page's generated blocks and counts as the code has them now."""
    blocks = generated()
    for path, text in PAGES.items():
        now = text
        for noun, n in counts().items():
            now = re.sub(rf"\b\d+ {noun}\b", f"{n} {noun}", now)
        for name in re.findall(r"<!-- begin ([\w -]+) -->", text):
            now = now.replace(f"begin {name} -->\n{block(name, text)}<!--", f"begin {name} -->\n{blocks[name]}<!--")
        if now != text:
            path.write_text(now, encoding="utf-8")


if __name__ == "__main__":
    renew()
