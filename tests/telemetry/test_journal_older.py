"""Journals of older versions are read as if this version had written them."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicepipe.telemetry.journal_lines import read_journal
from voicepipe.telemetry.journal_replay import replay
from voicepipe.turn import events as e

JOURNALS = Path(__file__).parents[1] / "data" / "journals"


@pytest.mark.parametrize(("written", "strategy"), [(b"true", "adaptive"), (b"false", "silence")])
def test_adaptive_was_true_or_false(written: bytes, strategy: str) -> None:
    """In the settings at the start, and in each change of them."""
    data = (JOURNALS / "reported.jsonl").read_bytes()
    assert b'"adaptive":true' in data
    journal = read_journal(data.replace(b'"adaptive":true', b'"adaptive":' + written))
    changes = [line.fact.settings for line in journal.lines if isinstance(line.fact, e.SettingsChanged)]
    assert [each.end_of_turn for each in (journal.opening.settings, *changes)] == [strategy] * 3


@pytest.mark.parametrize("path", sorted(JOURNALS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_an_older_journal_is_replayed(path: Path) -> None:
    """The core decides what it decided then."""
    data = path.read_bytes()
    assert b'"adaptive":' in data
    found = replay(read_journal(data))
    assert found.difference is None
    assert found.unlawful == []
