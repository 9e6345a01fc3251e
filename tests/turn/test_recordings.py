"""An item with a recording: its words are awaited, written down and paid as those of a commit."""

from __future__ import annotations

import pytest

from voicepipe.testing.scenario import Scenario
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.commands import TranscribeRecording
from voicepipe.turn.conversation import InputAudio, InputText, Message
from voicepipe.turn.cost import PriceList
from voicepipe.turn.user import REMEMBERED_UTTERANCES

MINUTE_MS = 60_000


def adds(scenario: Scenario, *more: InputText, item_id: str = "mine") -> int:
    """The client adds a recording of a minute; return its utterance."""
    item = Message(item_id, "user", (InputAudio(None), *more))
    commands = scenario._post(e.ItemCreateRequested(None, item, None, MINUTE_MS))
    (ordered,) = [each for each in commands if isinstance(each, TranscribeRecording)]
    return ordered.utterance


def transcribes(scenario: Scenario, utterance: int, words: str = "What time is it?") -> None:
    """The recording is transcribed."""
    scenario._post(e.TranscriptFinished(utterance, 1, words, provider="fake/stt", audio_ms=MINUTE_MS))


def test_a_reply_waits_for_the_words() -> None:
    """The LLM reads them, with the item's other parts in their places."""
    scenario = Scenario()
    utterance = adds(scenario, InputText("Well?"))
    scenario.creates()
    assert scenario.started() == []
    transcribes(scenario, utterance)
    (started,) = scenario.started()
    assert started.items[0].parts == (InputAudio("What time is it?"), InputText("Well?"))  # type: ignore[union-attr]
    (done,) = scenario.notified(a.TranscriptDone)
    assert (done.item_id, done.transcript, done.speech_ms) == ("mine", "What time is it?", MINUTE_MS)


def test_the_reply_pays_for_the_words() -> None:
    """At the transcriber's price, once."""
    scenario = Scenario(prices=PriceList(transcribers={"fake/stt": 0.6}))
    transcribes(scenario, adds(scenario))
    for _ in range(2):
        scenario.creates()
        scenario.answers()
        scenario.passes(5_000)
    costs = [record.cost for record in scenario.driver.records.values() if record.cost is not None]
    assert [cost.stt_usd for cost in costs] == pytest.approx([0.6, 0.0])


def test_words_that_do_not_come_are_given_up() -> None:
    """After the recording's length and the transcriber's usual deadline; the reply is made without them."""
    scenario = Scenario()
    adds(scenario)
    scenario.creates()
    scenario.passes(MINUTE_MS + 5_000)
    assert len(scenario.notified(a.TranscriptFailed)) == 1
    assert len(scenario.started()) == 1


def test_an_item_that_was_deleted_stays_deleted() -> None:
    """Late words are written nowhere."""
    scenario = Scenario()
    utterance = adds(scenario)
    scenario.deletes_item("mine")
    transcribes(scenario, utterance)
    assert scenario.notified(a.TranscriptDone) == []
    assert len(scenario.driver.core.context.conversation) == 0


def test_finished_recordings_are_deleted() -> None:
    """Many of them do not grow the session."""
    scenario = Scenario()
    for n in range(3 * REMEMBERED_UTTERANCES):
        transcribes(scenario, adds(scenario, item_id=f"mine-{n}"))
    assert len(scenario.driver.core.user.utterances._recent) <= REMEMBERED_UTTERANCES
