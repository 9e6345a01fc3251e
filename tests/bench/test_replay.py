"""Kept journals: the core does again what it did when they were recorded, and says where it does not.

When it is meant to do something else: `python tests/data/journals/record.py --renew` writes down what it does now.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from voicepipe.bench.replay_report import told
from voicepipe.telemetry.advice import depends_on_for
from voicepipe.telemetry.journal_lines import JournalFile, read_journal
from voicepipe.telemetry.journal_replay import replay
from voicepipe.turn import events as e
from voicepipe.turn.record import Breach

JOURNALS = sorted((Path(__file__).parents[1] / "data" / "journals").glob("*.jsonl"))


def journal(name: str) -> JournalFile:
    return read_journal(next(path for path in JOURNALS if path.stem == name).read_bytes())


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: path.stem)
def test_the_core_does_it_again(path: Path) -> None:
    """To the millisecond, order by order."""
    kept = read_journal(path.read_bytes())
    replayed = replay(kept)
    found = replayed.difference
    assert found is None, "\n".join(told(kept, replayed))
    assert (replayed.n_facts, replayed.unlawful, kept.lacks) == (len(kept.lines), [], "")


def test_each_plot_is_there() -> None:
    """An answer, an interruption, a revision, a tool and a failure, each as it should have gone."""
    turns = {path.stem: list(replay(read_journal(path.read_bytes())).records.values()) for path in JOURNALS}
    assert [turn.outcome for turn in turns["answer"]] == ["completed"] * 2
    assert [turn.outcome for turn in turns["interruption"]] == ["interrupted", "completed"]
    assert [(turn.revision > 0, turn.outcome) for turn in turns["revision"]] == [(True, "completed")]
    assert [turn.cause for turn in turns["tool"]] == ["vad", "tool"]
    assert [turn.heard_by for turn in turns["reported"]] == ["reported"] * 2
    assert [(turn.cause, turn.outcome) for turn in turns["failure"]] == [
        ("vad", "failed"),
        ("apology", "completed"),
        ("vad", "completed"),
    ]


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: path.stem)
def test_a_fact_that_was_changed_is_told(path: Path) -> None:
    """A voice that paused a moment later: the difference is at that fact, or at one that followed from it."""
    kept = read_journal(path.read_bytes())
    at = next(n for n, line in enumerate(kept.lines) if isinstance(line.fact, e.SpeechPaused))
    fact = kept.lines[at].fact
    assert isinstance(fact, e.SpeechPaused)
    kept.lines[at] = replace(kept.lines[at], fact=replace(fact, last_voiced_ms=fact.last_voiced_ms + 30))
    found = replay(kept).difference
    assert found is not None
    assert found.fact_number > at


def test_a_difference_is_told_in_words() -> None:
    """The facts before it, the order that was expected and the one that came, and in what they differ."""
    kept = journal("answer")
    kept.opening = replace(kept.opening, core=replace(kept.opening.core, speculate=False))
    replayed = replay(kept)
    text = "\n".join(told(kept, replayed))
    assert replayed.difference is not None
    number = replayed.difference.fact_number
    assert f"first difference at fact {number}, {replayed.difference.now_ms} ms:" in text
    assert "expected StartReply(turn=1, revision=0" in text
    assert f"{number - 1:>6} " in text
    assert "no difference" not in text


def test_the_turns_of_a_session_are_shown() -> None:
    """How long each caller waited, and what broke its limit first."""
    kept = journal("answer")
    lines = list(told(kept, replay(kept)))
    assert lines[0].startswith(kept.opening.session)
    assert lines[-1] == "no difference"
    assert len(lines) == 2 + 2 + 1
    totals = [str(record.total_ms) for record in replay(kept).records.values()]
    assert [line.split()[3] for line in lines[2:4]] == totals


def test_a_long_name_leaves_the_words_apart() -> None:
    """Whoever was late: their name does not run into what the caller said."""
    kept = journal("answer")
    replayed = replay(kept)
    id, spoken = next((id, record) for id, record in replayed.records.items() if record.caller_text)
    late = Breach("first_clause", 58, "a-vendor/a-model-whose-name-is-very-long", depends_on_for("agents.NAME.llm"))
    lines = told(kept, replace(replayed, records={id: replace(spoken, breach=late)}))
    assert any(line.endswith(f"({late.owner}) {spoken.caller_text}") for line in lines)
