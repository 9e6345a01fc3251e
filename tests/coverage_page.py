"""The page of what is covered, as a test reads it: the evidence of each row, and how many tests it names.

`python -m tests.coverage_page` writes the numbers of tests as they are now.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.docs import ROOT, rows

PAGE: Final = ROOT / "web/docs/coverage.md"

_TESTS: Final = re.compile(r"`(?P<command>tests/[^`]+)`: (?P<n>\d+) passed")
_SHELL: Final = re.compile(r"`(?P<command>(?:voicepipe|\.venv/bin/python) [^`]+)`")


@dataclass(frozen=True, slots=True)
class NamedTests:
    """NamedTests that a row names, and the number that it says pass."""

    text: str
    """`PATHS: N passed` as it stands on the page."""

    paths: tuple[str, ...]
    word: str
    """Only tests whose names have this word, as after `-k`; empty: all."""

    n: int


def evidence() -> Iterator[tuple[str, str]]:
    """Yield (what is covered, evidence) of each row that works or works partly."""
    for cells in rows(PAGE.read_text(encoding="utf-8")):
        if cells[1] in ("works", "partly"):
            yield cells[0], cells[2]


def named_tests(text: str) -> Iterator[NamedTests]:
    """Yield the tests that a cell, or the whole page, names with their number."""
    for found in _TESTS.finditer(text):
        paths, _, word = found["command"].partition(" -k ")
        yield NamedTests(found[0], tuple(paths.split()), word, int(found["n"]))


def commands_in(text: str) -> list[str]:
    """Return the commands for a terminal that a cell names."""
    return [found["command"] for found in _SHELL.finditer(text)]


def collected(named: Iterator[NamedTests]) -> list[str]:
    """Return the ids of all tests below the named paths, as pytest collects them.

    Raises:
        AssertionError: pytest could not collect one.
    """
    paths = sorted({path for each in named for path in each.paths})
    assert all((ROOT / path).exists() for path in paths), paths
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", *paths],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-2_000:]
    return [line for line in ended.stdout.splitlines() if line.startswith("tests/")]


def count(named: NamedTests, ids: list[str]) -> int:
    """Return how many of these ids the row names."""
    paths = tuple(path if path.endswith(".py") else f"{path}/" for path in named.paths)
    return sum(each.startswith(paths) and named.word in each.partition("::")[2] for each in ids)


def main(page: Path = PAGE) -> None:
    """Write the numbers as they are now."""
    text = page.read_text(encoding="utf-8")
    ids = collected(named_tests(text))
    for named in named_tests(text):
        text = text.replace(named.text, f"{named.text.partition(': ')[0]}: {count(named, ids)} passed")
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
