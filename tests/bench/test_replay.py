"""Stored journals: the core does again what it did when they were recorded, and reports every difference.

After an intended change, `python tests/data/journals/record.py --renew` writes down the new behaviour.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from voicepipe.bench.replay_report import replay_lines
from voicepipe.telemetry.journal.format import JournalFile, read_journal
from voicepipe.telemetry.journal.replay import replay
from voicepipe.testing.transitions import illegal_moves
from voicepipe.turn import events as e
from voicepipe.turn.record.values import Breach
from voicepipe.values import replace

JOURNALS = sorted((Path(__file__).parents[1] / "data" / "journals").glob("*.jsonl"))


def journal(name: str) -> JournalFile:
    return read_journal(next(path for path in JOURNALS if path.stem == name).read_bytes())


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: path.stem)
def test_the_core_does_it_again(path: Path) -> None:
    """To the millisecond, order by order."""
    journal_file = read_journal(path.read_bytes())
    replayed = replay(journal_file)
    found = replayed.difference
    assert found is None, "\n".join(replay_lines(journal_file, replayed))
    assert (replayed.n_events, illegal_moves(replayed.moves), journal_file.lacks) == (len(journal_file.lines), [], "")


def test_each_plot_is_there() -> None:
    """An answer, an interruption, a revision, a tool and a failure, each as it should have gone."""
    turns = {path.stem: list(replay(read_journal(path.read_bytes())).records.values()) for path in JOURNALS}
    assert [turn.outcome for turn in turns["answer"]] == ["completed"] * 2
    assert [turn.outcome for turn in turns["interruption"]] == ["interrupted", "completed"]
    assert [(turn.revision > 0, turn.outcome) for turn in turns["revision"]] == [(True, "completed")]
    assert [(turn.cause, len(turn.tools)) for turn in turns["tool"]] == [("vad", 1)]
    assert [turn.latency_source for turn in turns["reported"]] == ["reported"] * 2
    assert [(turn.cause, turn.outcome) for turn in turns["failure"]] == [
        ("vad", "failed"),
        ("apology", "completed"),
        ("vad", "completed"),
    ]


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: path.stem)
def test_changed_event_is_reported(path: Path) -> None:
    """A voice that paused a moment later: the difference is at that event, or at one that followed from it."""
    journal_file = read_journal(path.read_bytes())
    at = next(n for n, line in enumerate(journal_file.lines) if isinstance(line.event, e.SpeechPaused))
    event = journal_file.lines[at].event
    assert isinstance(event, e.SpeechPaused)
    journal_file.lines[at] = replace(
        journal_file.lines[at], event=replace(event, last_voiced_ms=event.last_voiced_ms + 30)
    )
    found = replay(journal_file).difference
    assert found is not None
    assert found.event_number > at


def test_difference_is_reported_as_text() -> None:
    """The events before it, the command that was expected, the command that came, and in what they differ."""
    journal_file = journal("answer")
    journal_file.opening = replace(journal_file.opening, core=replace(journal_file.opening.core, speculate=False))
    replayed = replay(journal_file)
    text = "\n".join(replay_lines(journal_file, replayed))
    assert replayed.difference is not None
    number = replayed.difference.event_number
    assert f"first difference at event {number}, {replayed.difference.now_ms} ms:" in text
    assert "expected StartReply(turn=1, revision=0" in text
    assert f"{number - 1:>6} " in text
    assert "no difference" not in text


def test_turns_of_a_session_are_listed() -> None:
    """How long each user waited, and what broke its limit first."""
    journal_file = journal("answer")
    lines = list(replay_lines(journal_file, replay(journal_file)))
    assert lines[0].startswith(journal_file.opening.session)
    assert lines[-1] == "no difference"
    assert len(lines) == 2 + 2 + 1
    totals = [str(record.total_ms) for record in replay(journal_file).records.values()]
    assert [line.split()[3] for line in lines[2:4]] == totals


def test_a_long_name_leaves_the_words_apart() -> None:
    """The name of a slow provider does not run into the user's words."""
    journal_file = journal("answer")
    replayed = replay(journal_file)
    id, spoken = next((id, record) for id, record in replayed.records.items() if record.user_text)
    late = Breach("first_clause", 58, "a-vendor/a-model-whose-name-is-very-long", "llm")
    lines = replay_lines(journal_file, replace(replayed, records={id: replace(spoken, breach=late)}))
    assert any(line.endswith(f"({late.owner}) {spoken.user_text}") for line in lines)
