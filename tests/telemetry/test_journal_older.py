"""Journals of older versions are read as if this version had written them."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicepipe.session.snapshot import ItemCodec
from voicepipe.telemetry.journal.format import read_journal
from voicepipe.telemetry.journal.plain import plain, typed
from voicepipe.telemetry.journal.replay import replay
from voicepipe.testing.journal_check import journal_of
from voicepipe.testing.transitions import illegal_moves
from voicepipe.turn import events as e
from voicepipe.turn.conversation import InputText, Message
from voicepipe.turn.journal import Entry, Opening
from voicepipe.turn.settings import CoreSettings, ReplySettings, TurnSettings

JOURNALS = Path(__file__).parents[1] / "data" / "journals"


@pytest.mark.parametrize(("written", "strategy"), [(b"true", "adaptive"), (b"false", "silence")])
def test_adaptive_was_true_or_false(written: bytes, strategy: str) -> None:
    """In the settings at the start, and in each change of them."""
    data = (JOURNALS / "reported.jsonl").read_bytes()
    assert b'"adaptive":true' in data
    journal = read_journal(data.replace(b'"adaptive":true', b'"adaptive":' + written))
    changes = [line.event.settings for line in journal.lines if isinstance(line.event, e.SettingsChanged)]
    assert [each.end_of_turn for each in (journal.opening.settings, *changes)] == [strategy] * 3


@pytest.mark.parametrize("path", sorted(JOURNALS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_an_older_journal_is_replayed(path: Path) -> None:
    """The core decides what it decided then."""
    data = path.read_bytes()
    assert b'"adaptive":' in data
    found = replay(read_journal(data))
    assert found.difference is None
    assert illegal_moves(found.moves) == []


def test_a_breach_and_a_silence_named_settings() -> None:
    """They are compared by what these settings change, and a wrong one is found."""
    data = (JOURNALS / "interruption.jsonl").read_bytes()
    assert b'"silence_setting":"agents.NAME.silence_ms"' in data
    assert b'"setting":"agents.NAME.instructions"' in data
    assert read_journal(data).opening.settings.silence_set_by == "agent_silence"
    other = data.replace(b'"setting":"agents.NAME.instructions"', b'"setting":"agents.NAME.llm"')
    found = replay(read_journal(other)).difference
    assert found is not None
    assert ("record.breach.depends_on", "llm", "instructions") in list(found.fields())


def test_a_field_keeps_its_stored_name() -> None:
    """Older journals have it, and a node of an older version reads it from a snapshot."""
    filler = Message("f1", "assistant", (InputText("One moment."),), hidden_from_llm=True)
    stored = plain(filler)
    assert (stored["aside"], "hidden_from_llm" in stored) == (True, False)
    assert typed(stored, Message) == filler
    assert b'"aside":true' in bytes(ItemCodec().encoded([filler])[0])


def test_short_words_keep_their_stored_name() -> None:
    """Whether the STT's short texts are reliable is read from a journal of any version."""
    data = (JOURNALS / "answer.jsonl").read_bytes()
    assert read_journal(data).opening.core.short_words
    other = data.replace(b'"believes_short":true', b'"believes_short":false')
    assert not read_journal(other).opening.core.short_words
    assert b'"believes_short":false' in journal_of(Opening("s", TurnSettings(), CoreSettings(short_words=False)), [])


def test_a_restored_reply_had_another_name() -> None:
    """The journal of a session that came from another process is replayed."""
    opening = Opening("sess_1", TurnSettings(), CoreSettings())
    core = opening.rebuilt()
    question = Message("q1", "user", (InputText("Hi"),))
    events = (e.ConversationRestored((question,), (("item", 7),)), e.ReplyRestored(ReplySettings(), "Hello."))
    entries = [Entry(10, event, core.handle(event, 10)) for event in events]
    written = journal_of(opening, entries)
    older = written.replace(b'"is":"ReplyRestored"', b'"is":"ReplyOwed"')
    assert older != written
    journal = read_journal(older)
    assert tuple(line.event for line in journal.lines) == events
    assert replay(journal).difference is None
