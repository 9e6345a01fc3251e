"""A journal holds all of a session, in readable or pseudonymised words, and a core can be given its events."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.telemetry.journal import format
from voicepipe.telemetry.journal.format import JournalError, is_journal, read_journal
from voicepipe.telemetry.journal.plain import plain, typed
from voicepipe.telemetry.journal.pseudonyms import Pseudonymizer
from voicepipe.telemetry.journal.replay import replay
from voicepipe.testing.journal_check import JournalCheck, journal_of
from voicepipe.testing.scenario import Scenario
from voicepipe.turn import events as e
from voicepipe.turn.conversation import FunctionCall, FunctionOutput, InputImage, InputText, Message, OutputText
from voicepipe.turn.cost import Price, PriceList
from voicepipe.turn.endpointing.completeness import unfinished
from voicepipe.turn.endpointing.probability import end_probability
from voicepipe.turn.endpointing.strategy import Evidence
from voicepipe.turn.journal import Entry, Opening
from voicepipe.turn.record.arm import Arm
from voicepipe.turn.settings import CoreSettings, ReplySettings, Tool, TurnSettings
from voicepipe.values import replace

WORDS = "Please call my neighbour Aloysius at 55501234."


def opening_and_entries() -> tuple[Opening, list[Entry]]:
    """A session of one answered question."""
    scenario = Scenario(speculate=True, reply=ReplySettings(instructions="You work for Aloysius."))
    core = Opening("s", scenario.driver.settings, scenario.driver.core_settings).rebuilt()
    entries: list[Entry] = []
    handle = scenario.driver.core.handle

    def noted(event: e.Event, now_ms: int) -> tuple[object, ...]:
        commands = handle(event, now_ms)
        assert core.handle(event, now_ms) == commands
        entries.append(Entry(now_ms, event, commands))
        return commands

    scenario.driver.core.handle = noted  # type: ignore[method-assign,assignment]
    scenario.utters(WORDS)
    scenario.answers("Calling Aloysius now.")
    scenario.passes(2_000)
    scenario.leaves()
    return Opening("s", scenario.driver.settings, scenario.driver.core_settings), entries


def test_what_was_written_is_read() -> None:
    """Every event, its instant and its commands."""
    opening, entries = opening_and_entries()
    journal = read_journal(journal_of(opening, entries))
    assert (journal.opening, journal.agent, journal.texts, journal.lacks) == (opening, "default", "plain", "")
    assert [(line.now_ms, line.event) for line in journal.lines] == [(each.now_ms, each.event) for each in entries]
    assert [line.commands for line in journal.lines] == [tuple(map(plain, each.commands)) for each in entries]


EVENTS: list[e.Event] = [
    e.SettingsChanged(TurnSettings(reply=ReplySettings(tools=(Tool("f", "does", "{}"),), metadata=(("a", "b"),)))),
    e.ItemCreateRequested("evt", Message("i", "user", (InputText("hello"),)), None),
    e.ItemCreateRequested(None, FunctionCall("i", "c", "f", "{}"), "root"),
    e.ReplyRequested("evt", ReplySettings(context=(Message("m", "assistant", (OutputText("so"),)),))),
    e.PhrasesReady(frozenset(("One moment.", "Sorry."))),
    e.ConnectionResumed(((1, 200), (2, 40))),
    e.EndpointScored(10, "p", 0.25),
    e.TranscriptFinished(1, 1, "hi", None, "fake/stt"),
    e.ModelChosen(1, 0, "groq/a", "first choice", "new", Arm("summer", "new")),
    e.ModelChosen(1, 0, "groq/a", "first choice"),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_comes_back_as_it_was(event: e.Event) -> None:
    """Through JSON too, with all that it is made of."""
    assert typed(msgspec.json.decode(msgspec.json.encode(plain(event))), e.Event) == event


def test_an_arm_is_one_text() -> None:
    """As older versions wrote it, and read it."""
    chosen = plain(e.ModelChosen(1, 0, "groq/a", "first choice", "new", Arm("summer", "new")))
    assert chosen["arm"] == "summer/new"
    assert plain(e.ModelChosen(1, 0, "groq/a", "first choice"))["arm"] == ""


def test_settings_come_back_as_they_were() -> None:
    """Prices too."""
    core = CoreSettings(prices=PriceList(models={"a/b": Price(1.0, 2.0, None)}))
    assert typed(msgspec.json.decode(msgspec.json.encode(plain(core))), CoreSettings) == core


def test_half_an_emoji_can_be_written() -> None:
    """A model that is cut leaves such a thing behind."""
    opening, _ = opening_and_entries()
    event = e.ModelTextReceived(1, 0, "so \ud83d")
    assert read_journal(journal_of(opening, [Entry(1, event, ())])).lines[0].event == event


def test_no_picture_and_no_secret_is_written() -> None:
    """A picture may show private things, and keys turn up in vendors' messages."""
    opening, _ = opening_and_entries()
    picture = e.ItemCreateRequested(None, Message("i", "user", (InputImage("data:image/png;base64,AAAA"),)), None)
    broke = e.StageFailed(1, 0, "llm", "fake/llm", "refused Authorization: Bearer sk-hush-hush")
    named = e.SettingsChanged(TurnSettings(reply=ReplySettings(instructions="The api_key=hush-hush opens it.")))
    given = e.ItemCreateRequested(None, FunctionOutput("i", "c", '{"token": "hush-hush"}'), None)
    noted = e.SettingsChanged(TurnSettings(metadata=(("note", "password=hush-hush"),)))
    data = journal_of(opening, [Entry(1, event, ()) for event in (picture, broke, named, given, noted)])
    assert b"base64" not in data
    assert b"hush" not in data


def test_secrets_that_are_struck_out_make_no_difference() -> None:
    """Token counts are estimated from the lengths of texts, and a wasted speculative reply is counted by them."""
    secret = ReplySettings(instructions="The api_key=0123456789abcdef0123456789abcdef opens the door of the house.")
    sessions = JournalCheck()
    with sessions.watching():
        scenario = Scenario(speculate=True, reply=secret)
        scenario.speaks()
        scenario.pauses()
        scenario.transcribes("what time")
        scenario.model_requested()
        scenario.token("It is noon.")
        scenario.speaks()
        scenario.leaves()
    assert any(record.speculation.wasted_input_tokens for record in scenario.driver.records.values())
    assert sessions.problems() == []


# --- without the words ----------------------------------------------------------------------------


def test_transcripts_can_not_be_read() -> None:
    """Neither the user's words nor the agent's nor its instructions; and yet the core does the same again."""
    opening, entries = opening_and_entries()
    data = journal_of(opening, entries, "pseudonymized")
    for word in (b"neighbour", b"Aloysius", b"aloysius", b"5550", b"Calling", b"work"):
        assert word not in data
    assert replay(read_journal(data)).difference is None


@given(st.text(max_size=60))
def test_pseudonyms_are_as_long(text: str) -> None:
    """Sound is placed by characters, and tokens are reckoned by them."""
    assert len(Pseudonymizer(b"k")(text)) == len(text)


@given(st.lists(st.sampled_from(("call", "my", "aunt", "wait", "mhm", "please", "Bring", "three", "four", "a", "42"))))
def test_pseudonyms_keep_sentence_final_cues(words: list[str]) -> None:
    """Function words decide whether more must come, and pseudonymisation leaves them unchanged."""
    pseudonymizer, text = Pseudonymizer(b"k"), " ".join(words)
    assert unfinished(pseudonymizer(text)) == unfinished(text)
    assert pseudonymizer(text) == " ".join(map(pseudonymizer, words)), "the same word always becomes the same"


@pytest.mark.parametrize("text", ["我想要一杯咖啡", "ภาษาไทย", "今日 coffee.", "मुझे कॉफ़ी चाहिए।"])
def test_pseudonyms_keep_the_number_of_words_of_every_script(text: str) -> None:
    pseudonym = Pseudonymizer(b"k")(text)
    assert pseudonym != text
    assert end_probability(Evidence(text=pseudonym)) == end_probability(Evidence(text=text))


def test_other_sessions_have_other_disguises() -> None:
    assert Pseudonymizer(b"one")("neighbour") != Pseudonymizer(b"two")("neighbour")


@pytest.mark.parametrize("word", ["four", "two", "Two", "7", "x", "no1", "語"])
def test_no_key_leaves_a_word_as_it_was(word: str) -> None:
    """Drawn at random, one key in ten left a digit word unchanged, and with it a card's digits."""
    assert all(Pseudonymizer(bytes([key]))(word) != word for key in range(256))


@pytest.mark.parametrize("word", ["trois", "zwo", "²", "½"])
def test_a_word_without_another_of_its_kind_stays(word: str) -> None:
    assert Pseudonymizer(b"k")(word) == word


# --- what lacks, and what is no journal -----------------------------------------------------------


def test_a_file_that_was_cut_off_is_read_to_its_last_whole_line() -> None:
    """Wherever the machine died."""
    opening, entries = opening_and_entries()
    data = journal_of(opening, entries)
    first = data.index(b"\n") + 1
    for cut in range(first, len(data), 97):
        journal = read_journal(data[:cut])
        assert len(journal.lines) == max(0, min(data[:cut].count(b"\n") - 1, len(entries)))
        assert journal.lacks
        assert replay(journal).difference is None


def test_missing_events_are_reported() -> None:
    """What comes after a gap means nothing."""
    opening, entries = opening_and_entries()
    whole = journal_of(opening, entries)
    lines = whole.splitlines(keepends=True)
    journal = read_journal(b"".join([*lines[:4], format.gap(12, "the disk was slow"), *lines[6:]]))
    assert (len(journal.lines), journal.lacks) == (3, "the disk was slow (12 events)")


def test_a_newer_version_may_add_fields() -> None:
    """To an event, which this one skips; and what an older journal lacks has its default."""
    opening, _ = opening_and_entries()
    data = journal_of(opening, [Entry(1, e.SpeechWentOn(100), ())])
    newer = data.replace(b'"hums":true', b'"hums":true,"moods":["glad"]')
    older = data.replace(b',"hums":true', b"")
    assert [read_journal(each).lines[0].event for each in (newer, older)] == [e.SpeechWentOn(100)] * 2


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "expected a journal"),
        (b'{"id": "turn_1"}\n', "expected a journal"),
        (b'{"voicepipe_journal": 99}\n', "expected a journal of format 1"),
        (b'{"voicepipe_journal": 1}\n', "the first line: KeyError"),
    ],
)
def test_what_is_no_journal_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(JournalError, match=why):
        read_journal(data)


def test_an_unknown_event_is_refused_by_its_number() -> None:
    opening, entries = opening_and_entries()
    data = journal_of(opening, entries).replace(b'"is":"SpeechPaused"', b'"is":"SpeechFaded"')
    number = 1 + next(n for n, each in enumerate(entries) if isinstance(each.event, e.SpeechPaused))
    assert is_journal(data)
    with pytest.raises(JournalError, match=rf"event {number}: .*SpeechFaded"):
        read_journal(data)


# --- a core that does something else --------------------------------------------------------------


def test_a_difference_is_reported_at_its_event() -> None:
    """Which event, which command of it, and what in that command."""
    opening, entries = opening_and_entries()
    at = next(n for n, each in enumerate(entries) if any(type(o).__name__ == "OpenGate" for o in each.commands))
    altered = journal_of(opening, entries).replace(b'"is":"OpenGate","turn":1', b'"is":"OpenGate","turn":2')
    found = replay(read_journal(altered)).difference
    assert found is not None
    assert (found.event_number, found.now_ms) == (at + 1, entries[at].now_ms)
    assert list(found.fields()) == [("turn", 2, 1)]


def test_a_command_too_many_or_too_few_is_a_difference() -> None:
    opening, entries = opening_and_entries()
    at = next(n for n, each in enumerate(entries) if len(each.commands) > 1)
    for commands in (entries[at].commands[:-1], entries[at].commands * 2):
        altered = [*entries[:at], replace(entries[at], commands=commands), *entries[at + 1 :]]
        found = replay(read_journal(journal_of(opening, altered))).difference
        assert found is not None
        assert found.event_number == at + 1
        assert (found.expected is None) != (found.got is None)


def test_another_core_differs_from_this_one() -> None:
    """With other settings it does something else, sooner or later."""
    opening, entries = opening_and_entries()
    other = replace(opening, settings=replace(opening.settings, silence_ms=2_000))
    assert replay(read_journal(journal_of(other, entries))).difference is not None
