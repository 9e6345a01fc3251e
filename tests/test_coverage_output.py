"""The quick commands of the page of what is covered print what it says."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from itertools import islice

import pytest

from tests.docs import PAGES, ROOT, rows
from tests.measure.cascade import report
from voicepipe.cli import main

PAGE = PAGES[ROOT / "web/docs/coverage.md"]
COMMAND = re.compile(r"`((?:tests/|voicepipe |\.venv/bin/python -m )[^`]*)`")
FIGURE = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?:/\d+(?:\.\d+)?)*(?![\w-])")
QUICK = "voicepipe providers"
COUNTED = re.compile(r"\d+ LLM vendors")  # by `tests/test_docs.py`


@dataclass(frozen=True)
class Claim:
    """A command of the page, and what the page says of it."""

    command: str
    said: str


def claims(evidence: str) -> list[Claim]:
    """Return the commands of a cell, each with the text up to the next one or a semicolon."""
    found = list(COMMAND.finditer(evidence))
    ends = [*(each.start() for each in found[1:]), len(evidence)]
    return [
        Claim(match[1], evidence[match.end() : end].partition(";")[0]) for match, end in zip(found, ends, strict=False)
    ]


def unprinted(said: str, printed: str) -> list[str]:
    """Return the names in backticks and the figures of a text that an output does not have."""
    names = re.findall(r"`([^`]+)`", said)
    figures = FIGURE.findall(re.sub(r"`[^`]+`", "", COUNTED.sub("", said)))
    printed_figures = set(FIGURE.findall(printed))
    return [each for each in names if each not in printed] + [each for each in figures if each not in printed_figures]


ROWS = [row for row in rows(PAGE) if row[1] != "state"]
CLAIMS = [claim for row in ROWS for claim in claims(row[-1])]


@pytest.mark.parametrize(
    "claim", [each for each in CLAIMS if each.command.startswith(QUICK)], ids=lambda claim: claim.command
)
def test_a_quick_command_prints_what_the_page_says(claim: Claim, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split(claim.command)[1:]) == 0
    assert unprinted(claim.said, capsys.readouterr().out) == []


def test_the_cascade_prints_what_the_page_says() -> None:
    """The classes of the 200 labelled questions; the command goes on with races in virtual time."""
    (said,) = [each.said for each in CLAIMS if each.command == ".venv/bin/python -m tests.measure.cascade"]
    assert unprinted(said, "\n".join(islice(report(None), 3))) == []


@pytest.mark.parametrize("said", [": `a-model` at 0.14/0.29", ": `b-model`", ": 14 of 100", ": 0.1"])
def test_a_figure_or_name_that_is_not_printed_is_found(said: str) -> None:
    assert unprinted(said, "a-model 0.14/0.28 140 of 100") != []
