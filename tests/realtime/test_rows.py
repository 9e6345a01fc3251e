"""The table of the contract's rows is true: every MUST and SHOULD that it calls there is proved by tests that exist."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import docs

TESTS = Path(__file__).parents[1]
TOPICS = ("handshake", "client_events", "server_events", "behaviour", "session_object", "rest")
SECTION_FILES = frozenset(f"realtime/test_{topic}.py" for topic in TOPICS)
SECTIONS = {
    1: "Addresses and keys",
    2: "The older dialect",
    3: "From the client",
    4: "From the server",
    5: "Behaviour",
    6: "The session object",
    7: "REST",
}


@dataclass(frozen=True)
class Row:
    """One row of the contract."""

    section: int
    what: str
    mark: str
    tests: tuple[str, ...]

    @property
    def there(self) -> str:
        """Yes, or later."""
        return "yes" if self.tests else "later"


def rows() -> list[Row]:
    """All rows, in the order of the contract."""
    table = tomllib.loads((Path(__file__).parent / "rows.toml").read_text(encoding="utf-8"))
    return [
        Row(int(number), what, mark, tuple(tests))
        for number, section in table.items()
        for what, (mark, *tests) in section.items()
    ]


def markdown() -> str:
    """The table in the docs."""
    lines = ["| | row | mark | there |", "| --- | --- | --- | --- |"]
    for number, title in SECTIONS.items():
        for n, row in enumerate(row for row in rows() if row.section == number):
            lines.append(f"| {title if n == 0 else ''} | {row.what} | {row.mark} | {row.there} |")
    return "\n".join(lines) + "\n"


GENERATED: docs.Generated = {"rows": markdown}


@pytest.fixture(scope="module")
def collected() -> frozenset[str]:
    """The tests of all files that the rows name, and of this folder, as pytest names them, below tests/."""
    files = {test.partition("::")[0] for row in rows() for test in row.tests} | SECTION_FILES
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    completed = subprocess.run(
        [*command, *(str(TESTS / file) for file in sorted(files))],
        cwd=TESTS.parent,
        env={name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"},
        capture_output=True,
        text=True,
        check=True,
    )
    return frozenset(line.removeprefix("tests/") for line in completed.stdout.splitlines() if "::" in line)


@pytest.mark.slow
def test_every_test_that_a_row_names_is_there(collected: frozenset[str]) -> None:
    """A whole test, or one of its cases."""
    named = {test for row in rows() for test in row.tests}
    whole = {test.partition("[")[0] for test in collected}
    assert named - collected - whole == set()


@pytest.mark.slow
def test_every_test_of_a_section_belongs_to_a_row(collected: frozenset[str]) -> None:
    """A test that no row names proves something that no document promises."""
    named = {test.partition("[")[0] for row in rows() for test in row.tests}
    here = {test.partition("[")[0] for test in collected if test.partition("::")[0] in SECTION_FILES}
    assert here - named == set()


@pytest.mark.parametrize("mark", ["MUST", "SHOULD"])
def test_every_row_that_counts_is_there(mark: str) -> None:
    """Nothing of the contract but its LATER rows is left for later."""
    assert [row.what for row in rows() if row.mark == mark and not row.tests] == []


def test_marks_and_sections_are_those_of_the_contract() -> None:
    assert {row.mark for row in rows()} == {"MUST", "SHOULD", "LATER"}
    assert {row.section for row in rows()} == set(SECTIONS)
