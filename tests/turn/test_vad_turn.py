"""A user speaks, falls silent, is answered; and what else may happen on the way."""

from __future__ import annotations

from voicepipe.testing.core_driver import CoreDriver, announced, names
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.commands import StartReply
from voicepipe.turn.settings import TurnSettings
from voicepipe.turn.states import AgentState, UserState


def spoken_turn(driver: CoreDriver, start_ms: int = 1_000) -> None:
    """A second of speech, and the silence that ends it; the transcript comes meanwhile."""
    utterance = driver.core.context.counts.get("utterance", 0) + 1
    driver.at(start_ms, e.SpeechStarted(start_ms - 60, start_ms - 360))
    driver.at(start_ms + 1_080, e.SpeechPaused(start_ms + 1_000, start_ms + 1_000))
    driver.at(start_ms + 1_200, e.TranscriptFinished(utterance, 1, "What time is it?"))
    driver.at(start_ms + 1_500, e.SilenceGrew(500))


def answered(driver: CoreDriver, now_ms: int, turn: int = 1, revision: int = 0) -> None:
    """The model and the voice answer with one clause of a second."""
    driver.at(now_ms, e.ModelRequested(turn, revision, "fake/llm"))
    driver.at(now_ms + 200, e.ModelTextReceived(turn, revision, "It is noon."))
    driver.at(now_ms + 210, e.ClauseHandedOver(turn, revision, 0, "It is noon.", "fake/tts"))
    driver.at(now_ms + 290, e.SoundArrived(turn, revision, 0, 1_000, 10), e.OutputSent(turn, revision, 1_000))
    driver.at(now_ms + 300, e.ModelFinished(turn, revision, "stop"), e.SynthesisFinished(turn, revision))


def test_a_turn_goes_from_speech_to_a_reply_that_is_played() -> None:
    """The client is notified in the order of the wire; the record's parts sum to the user's latency."""
    driver = CoreDriver(TurnSettings(transcribe=True))
    spoken_turn(driver)
    answered(driver, 2_500)
    assert names(driver.commands) == [
        "BeginUtterance", "InputSpeechStarted", "FlushTranscript", "InputSpeechStopped", "EndUtterance",
        "AudioCommitted", "ItemAdded", "TranscriptDelta", "TranscriptDone", "StartReply", "ResponseStarted",
        "OutputStarted", "OpenGate", "ResponseEnded", "StoreRecord",
    ]  # fmt: skip
    assert driver.agent_state() is AgentState.SPEAKING, "the sound is still playing"
    driver.at(4_000)
    assert driver.agent_state() is AgentState.IDLE
    record = driver.records["turn_s_0001"]
    assert (record.outcome, record.total_ms, record.unattributed_ms) == ("completed", 800, 0)
    assert sum(c.duration_ms for c in record.contributions) == record.total_ms
    assert [(span.stage, span.duration_ms) for span in record.stages][:2] == [("silence", 500), ("endpoint", 0)]
    assert record.breach is None
    assert not driver.illegal_moves


def test_speech_again_before_the_turn_is_over_is_the_same_utterance() -> None:
    """A pause is not an end: one item, whose text is requested again."""
    driver = CoreDriver()
    driver.at(1_000, e.SpeechStarted(940, 640))
    driver.at(2_080, e.SpeechPaused(2_000, 2_000))
    driver.at(2_300, e.SpeechStarted(2_240, 2_240))
    driver.at(3_080, e.SpeechPaused(3_000, 3_000))
    assert names(driver.commands) == ["BeginUtterance", "InputSpeechStarted", "FlushTranscript", "FlushTranscript"]
    assert driver.core.user.state is UserState.HOLDING


def test_speech_after_the_end_and_before_sound_revises_the_turn() -> None:
    """The response ends as cancelled, a new item opens, and the model reads both as what was said."""
    driver = CoreDriver()
    spoken_turn(driver)
    got = driver.at(2_600, e.SpeechStarted(2_540, 2_240))
    assert names(got) == ["BeginUtterance", "InputSpeechStarted", "StopReply", "ResponseEnded"]
    assert announced(got)[-1] == a.ResponseEnded("resp_s_0001", "cancelled", "turn_detected")
    driver.at(3_080, e.SpeechPaused(3_000, 3_000))
    driver.at(3_200, e.TranscriptFinished(2, 1, "In Paris?"))
    got = driver.at(3_500, e.SilenceGrew(500))
    start = next(command for command in got if isinstance(command, StartReply))
    assert (start.turn, start.revision, len(start.items)) == (1, 1, 2)
    answered(driver, 3_500, revision=1)
    assert driver.at(3_600, e.ModelTextReceived(1, 0, "stale")) == []
    driver.at(9_000)
    assert driver.records["turn_s_0001"].user_text == "What time is it? In Paris?"
    assert not driver.illegal_moves


def test_user_interrupts_a_reply() -> None:
    """The reply stops, its record says so, and history holds what was played."""
    driver = CoreDriver(TurnSettings(interruption="immediate"))
    spoken_turn(driver)
    answered(driver, 2_500)
    got = driver.at(3_300, e.SpeechStarted(3_240, 2_940))
    assert names(got) == ["BeginUtterance", "InputSpeechStarted", "StopReply", "StoreRecord"]
    record = driver.records["turn_s_0001"]
    assert (record.outcome, record.reason, record.played_text) == ("interrupted", "turn_detected", "It is")
    assert driver.core.context.conversation.items[1].text() == "It is"  # type: ignore[union-attr]
    assert not driver.illegal_moves


def test_a_running_response_is_cancelled_on_the_wire_when_interrupted() -> None:
    """The client is notified that the user speaks, and then that the response is `cancelled/turn_detected`."""
    driver = CoreDriver(TurnSettings(interruption="immediate"))
    spoken_turn(driver)
    driver.at(2_500, e.ModelRequested(1, 0, "fake/llm"), e.ModelTextReceived(1, 0, "It is noon. "))
    driver.at(2_600, e.ClauseHandedOver(1, 0, 0, "It is noon.", "fake/tts"))
    driver.at(2_700, e.SoundArrived(1, 0, 0, 1_000, 0), e.OutputSent(1, 0, 1_000))
    got = driver.at(3_000, e.SpeechStarted(2_940, 2_640))
    assert announced(got) == [
        a.InputSpeechStarted("item_s_0003", 2_640),
        a.ResponseEnded("resp_s_0001", "cancelled", "turn_detected"),
    ]


def test_a_truncation_corrects_the_estimate() -> None:
    """The client knows better than the server how much was played."""
    driver = CoreDriver(TurnSettings(interruption="immediate"))
    spoken_turn(driver)
    answered(driver, 2_500)
    driver.at(3_700, e.SpeechStarted(3_640, 3_340))
    got = driver.at(3_750, e.ItemTruncateRequested("evt", "item_s_0002", 0, 300))
    assert announced(got) == [a.ItemTruncated("item_s_0002", 0, 300)]
    assert driver.records["turn_s_0001"].played_text == "It is"


def test_nothing_was_said() -> None:
    """A noise that the transcriber finds no words in is committed, and starts no reply."""
    driver = CoreDriver(TurnSettings(transcribe=True))
    driver.at(1_000, e.SpeechStarted(940, 640))
    driver.at(1_280, e.SpeechPaused(1_200, 1_200))
    driver.at(1_400, e.TranscriptFinished(1, 1, ""))
    driver.at(1_700, e.SilenceGrew(500))
    assert names(driver.commands)[-3:] == ["ItemAdded", "TranscriptDone", "StoreRecord"]
    assert driver.records["turn_s_0001"].outcome == "abandoned"
    assert driver.core.user.state is UserState.QUIET


def test_a_transcript_that_never_comes_fails_the_turn() -> None:
    """The deadline ends the turn with a reason, on the wire too, and the next turn works."""
    driver = CoreDriver(TurnSettings(transcribe=True))
    driver.at(1_000, e.SpeechStarted(940, 640))
    driver.at(2_080, e.SpeechPaused(2_000, 2_000))
    driver.at(2_500, e.SilenceGrew(500))
    got = driver.at(8_000)
    assert names(got) == ["TranscriptFailed", "ResponseStarted", "ResponseEnded", "StoreRecord"]
    assert driver.core.user.state is UserState.QUIET
    spoken_turn(driver, 9_000)
    assert driver.core.agent.state is AgentState.PREPARING
    assert not driver.illegal_moves


def test_a_model_that_never_speaks_fails_the_turn() -> None:
    """Nothing to say by the deadline: `response.done` failed, with the stage in its code."""
    driver = CoreDriver()
    spoken_turn(driver)
    driver.at(2_500, e.ModelRequested(1, 0, "fake/llm"))
    got = driver.at(20_000)
    ended = next(what for what in announced(got) if isinstance(what, a.ResponseEnded))
    assert (ended.status, ended.reason) == ("failed", "llm_failed")
    assert driver.core.user.state is UserState.QUIET
    assert driver.core.agent.state is AgentState.IDLE
