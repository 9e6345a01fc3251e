"""What the page of the covered systems and capabilities says is what a reader can see: its commands are understood, and
its numbers of tests are those that pytest collects."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.coverage_page import PAGE, NamedTests, collected, commands_in, count, evidence, named_tests
from tests.docs import ROOT
from voicepipe.cli import command_line


@pytest.mark.slow
def test_the_numbers_of_tests_are_those_that_pytest_collects() -> None:
    """A test that is skipped is none; the suite fails at one."""
    named = list(named_tests(PAGE.read_text(encoding="utf-8")))
    assert len(named) > 40
    ids = collected(iter(named))
    assert [(claim.text, count(claim, ids)) for claim in named if count(claim, ids) != claim.n] == []


def test_a_wrong_number_is_found() -> None:
    """Of paths to files and folders, and of the tests that a word picks."""
    ids = ["tests/a/test_b.py::test_cached[x]", "tests/a/test_b.py::test_d", "tests/ab/test_c.py::test_cached"]
    assert [
        count(claim, ids) for claim in named_tests("`tests/a`: 3 passed, `tests/a/test_b.py -k cached`: 2 passed")
    ] == [
        2,
        1,
    ]
    with pytest.raises(AssertionError, match="test_not_there"):
        collected(iter([NamedTests("", ("tests/test_not_there.py",), "", 1)]))


@pytest.mark.parametrize(("what", "found"), list(evidence()), ids=[what[:40] for what, _ in evidence()])
def test_each_row_has_evidence_that_a_reader_can_run_or_read(what: str, found: str) -> None:
    """A command, an address or another page; each command is one that is understood."""
    commands = commands_in(found)
    links = re.findall(r"\]\(([\w./-]+\.md)[#)]", found)
    assert commands or links or re.search(r"`tests/|`/dashboard`", found), what
    for command in commands:
        words = shlex.split(command.replace(" ... ", " "))
        if words[0] == ".venv/bin/python":
            assert words[1] == "-m"
            assert (ROOT / words[2].replace(".", "/")).with_suffix(".py").is_file(), command
        else:
            assert command_line.parse(words[1:]) is not None, command


def test_every_named_system_and_capability_has_a_state() -> None:
    """25 LLM vendors, five speech services, flo2, and each capability in a row of its own."""
    states = re.findall(r"^\|[^|]+\| (works|partly|missing) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    heads = sum(line.startswith(("| system ", "| capability ", "| --- ")) for line in lines)
    assert len(states) == len(lines) - heads
