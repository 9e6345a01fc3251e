"""An answer that begins before the end of the turn is certain: taken back, or going on where a sound stopped it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from voicepipe.testing.scenario import Scenario
from voicepipe.turn import commands as c
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.conversation import FunctionCall, InputAudio, Message
from voicepipe.turn.endpointing.probability import STT_END
from voicepipe.turn.settings import Deadlines, ReplySettings
from voicepipe.turn.states import AgentState, UserState

QUESTION = "What is the weather like?"
ANSWER = "It will be sunny and warm all day long in town."
ANSWER_MS = 4_000
SURE = 0.999


def soft(**settings: Any) -> Scenario:
    """A session whose answers begin softly."""
    return Scenario(**{"silence_ms": 720, "end_of_turn": "soft", "speculate": True, **settings})


class Talk:
    """A user who asks, and an answer of 4 s that is ready and audible 350 ms after the last word."""

    def __init__(self, **settings: Any) -> None:
        self.scene = soft(**settings)
        self.utterance = 0
        self.ended_ms = 0

    def at(self, now_ms: int, *events: e.Event) -> list[c.Command]:
        got = self.scene.driver.at(now_ms, *events)
        for command in got:
            if isinstance(command, c.BeginUtterance):
                self.utterance = command.utterance
        return self.scene._see(got)

    def says(self, words: str | None, *, from_ms: int, for_ms: int = 1_000) -> list[c.Command]:
        """The user speaks; the text is known 120 ms after the last word."""
        got = self.at(from_ms + 60, e.SpeechStarted(from_ms, from_ms))
        for voiced_ms in range(100, for_ms + 1, 100):
            got += self.at(from_ms + voiced_ms, e.SpeechWentOn(voiced_ms, nonlexical=False))
        self.ended_ms = from_ms + for_ms
        got += self.at(self.ended_ms + 80, e.SpeechPaused(self.ended_ms, self.ended_ms))
        return got if words is None else got + self.gets(words, self.ended_ms + 120)

    def gets(self, words: str, at_ms: int, flush: int = 1) -> list[c.Command]:
        """The STT returns the words, and is sure of the end of a whole sentence."""
        events: list[e.Event] = [e.TranscriptFinished(self.utterance, flush, words, provider="fake/stt")]
        if words.endswith((".", "?")):
            events.append(e.EndpointScored(self.ended_ms, STT_END, SURE))
        return self.at(at_ms, *events)

    def silent_until(self, silence_ms: int) -> list[c.Command]:
        got: list[c.Command] = []
        for each_ms in range(120, silence_ms + 1, 20):
            if self.ended_ms + each_ms >= self.scene.driver.now_ms:
                got += self.at(self.ended_ms + each_ms, e.SilenceGrew(each_ms))
        return got

    def answers(self, text: str = ANSWER, duration_ms: int = ANSWER_MS, *, whole: bool = True) -> list[c.Command]:
        """The answer is ready at once: the whole of it, or the LLM may write more."""
        scene, key = self.scene, self.scene._key(-1)
        now_ms = scene.driver.now_ms
        got = self.at(now_ms, e.ModelRequested(*key, "fake/llm"), e.ModelTextReceived(*key, text))
        got += self.at(now_ms, e.ClauseHandedOver(*key, 0, text, "fake/tts"), e.SoundArrived(*key, 0, duration_ms, 0))
        return got + (self.completes() if whole else [])

    def completes(self) -> list[c.Command]:
        """The LLM and the TTS have produced all of the answer."""
        key = self.scene._key(-1)
        return self.at(self.scene.driver.now_ms, e.ModelFinished(*key, "stop"), e.SynthesisFinished(*key))

    def sends(self, duration_ms: int = ANSWER_MS) -> list[c.Command]:
        """The audio leaves for the client."""
        return self.at(self.scene.driver.now_ms, e.OutputSent(*self.scene._key(-1), duration_ms))

    def is_answered_softly(self, from_ms: int = 1_000, words: str = QUESTION, *, whole: bool = True) -> int:
        """Ask, and be answered 350 ms after the last word; return when the answer became audible."""
        self.says(words, from_ms=from_ms)
        self.silent_until(200)
        self.answers(whole=whole)
        self.silent_until(360)
        self.sends()
        assert self.agent() is AgentState.SPEAKING
        return self.scene.driver.now_ms

    def is_promised_a_look(self, *, whole: bool = True) -> None:
        """Ask; before the end is certain, the LLM says that it will see, and calls a function."""
        self.says(QUESTION, from_ms=1_000)
        self.silent_until(200)
        key, now_ms = self.scene._key(-1), self.scene.driver.now_ms
        self.at(now_ms, e.ModelRequested(*key, "fake/llm"), e.ModelTextReceived(*key, "Let me see."))
        self.at(now_ms, e.ClauseHandedOver(*key, 0, "Let me see.", "fake/tts"), e.SoundArrived(*key, 0, 800, 0))
        self.at(now_ms, e.CallGrew(*key, 0, "call_1", "weather", "{}"))
        if whole:
            self.at(now_ms, e.ModelFinished(*key, "tool_calls"), e.SynthesisFinished(*key))

    def agent(self) -> AgentState:
        return self.scene.driver.agent_state()

    def user(self) -> UserState:
        return self.scene.driver.user_state()

    def items(self) -> list[tuple[str, str, bool]]:
        """(role, words, hidden_from_llm) of each item."""
        items = self.scene.driver.core.context.conversation.items
        return [(item.role, item.text(), item.hidden_from_llm) for item in items if isinstance(item, Message)]


def kinds(commands: list[c.Command]) -> list[str]:
    """The commands that tell how a reply is taken back."""
    of_replies = (
        c.SuspendReply,
        c.ContinueReply,
        c.StopReply,
        c.OpenGate,
        c.StartReply,
        c.ReleaseCalls,
        c.FinalizeReply,
    )
    notices = (a.InputSpeechStarted, a.InputSpeechStopped, a.AudioCommitted, a.ResponseStarted, a.ResponseEnded)
    flat = [each.what if isinstance(each, c.Notify) else each for each in commands]
    return [type(each).__name__ for each in flat if isinstance(each, (*of_replies, *notices))]


def test_the_answer_is_audible_when_the_end_is_likely() -> None:
    """A whole question: after 350 ms, and not earlier."""
    talk = Talk()
    talk.says(QUESTION, from_ms=1_000)
    assert len(talk.scene.started()) == 0
    talk.silent_until(180)
    assert len(talk.scene.started()) == 1, "work begins after 180 ms"
    talk.answers()
    assert talk.silent_until(340) == []
    assert kinds(talk.silent_until(360))[:4] == ["InputSpeechStopped", "AudioCommitted", "ResponseStarted", "OpenGate"]
    assert talk.agent() is AgentState.SPEAKING
    assert talk.user() is UserState.QUIET


def test_an_open_sentence_is_waited_for() -> None:
    """ "from" wants a place: 700 ms, though the answer is ready."""
    talk = Talk()
    talk.says("I want it from", from_ms=1_000)
    talk.silent_until(300)
    talk.answers()
    talk.silent_until(680)
    assert talk.agent() is AgentState.READY
    talk.silent_until(700)
    assert talk.agent() is AgentState.SPEAKING


def test_a_voice_in_the_first_second_stops_the_answer_at_once() -> None:
    """Without a decision: the client is notified of the speech, then the response is cancelled where it was heard."""
    talk = Talk()
    audible_ms = talk.is_answered_softly(whole=False)
    talk.at(audible_ms + 500)
    got = talk.at(audible_ms + 500, e.SpeechStarted(audible_ms + 440, audible_ms + 440))
    assert kinds(got) == ["InputSpeechStarted", "SuspendReply", "ResponseEnded"]
    assert talk.scene.ended() == [("cancelled", "turn_detected")]
    assert any(isinstance(each, c.Duck) for each in got), "the voice is followed"
    assert talk.agent() is AgentState.READY
    assert talk.user() is UserState.SPEAKING


def test_what_follows_is_the_same_turn() -> None:
    """One user message, one answer, one record; the LLM reads nothing of the answer that was dropped."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    got = talk.says("And tomorrow?", from_ms=audible_ms + 500)
    assert "StopReply" in kinds(got)
    talk.silent_until(200)
    start = talk.scene.started()[-1]
    spoken = [item for item in start.items if isinstance(item, Message) and not item.hidden_from_llm]
    assert [(item.role, item.text()) for item in spoken] == [("user", QUESTION), ("user", "And tomorrow?")]
    talk.answers("Tomorrow it will rain.")
    talk.silent_until(720)
    talk.sends()
    talk.at(talk.scene.driver.now_ms + 10_000)
    records = talk.scene.driver.records
    assert len(records) == 1
    record = next(iter(records.values()))
    assert (record.outcome, record.resumed, record.user_text) == ("completed", 1, f"{QUESTION} And tomorrow?")
    assert record.taken_back_ms == 560
    assert record.played_text == "Tomorrow it will rain."
    assert record.total_ms is not None
    assert 340 <= record.total_ms <= 720
    assert talk.items() == [
        ("user", QUESTION, False),
        ("assistant", "It will", True),
        ("user", "And tomorrow?", False),
        ("assistant", "Tomorrow it will rain.", False),
    ]
    assert talk.scene.driver.illegal_moves == []


@pytest.mark.parametrize("words", ["", "Mhm.", "um"])
def test_a_sound_without_words_does_not_end_the_answer(words: str) -> None:
    """It goes on at the word where it stopped, within 700 ms of the sound, in another response."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    stop_ms = audible_ms + 700
    talk.says(None, from_ms=stop_ms, for_ms=200)
    got = talk.gets(words, talk.ended_ms + 150)
    resumed = next(each for each in got if isinstance(each, c.ContinueReply))
    assert resumed.text == "be sunny and warm all day long in town."
    assert resumed.from_ms == ANSWER.index("be") * ANSWER_MS // len(ANSWER), "where that word begins"
    assert talk.scene.driver.now_ms - talk.ended_ms <= 700
    assert kinds(got)[:2] == ["InputSpeechStopped", "AudioCommitted"], "as at the end of any speech"
    assert talk.agent() is AgentState.SPEAKING
    assert talk.user() is UserState.QUIET
    talk.sends(ANSWER_MS - resumed.from_ms)
    talk.at(talk.scene.driver.now_ms + 10_000)
    record = next(iter(talk.scene.driver.records.values()))
    assert (record.outcome, record.resumed, record.taken_back_ms) == ("completed", 0, 0)
    assert record.agent_text == record.played_text == ANSWER
    assert record.user_text == QUESTION
    assert record.total_ms == audible_ms - 2_000
    assert talk.items() == [
        ("user", QUESTION, False),
        ("assistant", "It will", False),
        ("user", words, True),
        ("assistant", "be sunny and warm all day long in town.", False),
    ]
    assert talk.scene.driver.illegal_moves == []


def test_the_answer_goes_on_when_no_text_comes() -> None:
    """600 ms after the sound; words that come later are an interruption like any other."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    talk.says(None, from_ms=audible_ms + 300, for_ms=200)
    talk.at(talk.ended_ms + 590)
    assert talk.agent() is AgentState.READY
    got = talk.at(talk.ended_ms + 610)
    assert [type(each).__name__ for each in got if isinstance(each, c.ContinueReply)] == ["ContinueReply"]
    talk.sends(1_000)
    got = talk.gets("No, tomorrow.", talk.ended_ms + 900)
    assert talk.user() is UserState.HOLDING
    assert "StopReply" in kinds(got)
    assert "InputSpeechStarted" in kinds(got), "so that the client flushes what it plays"
    talk.silent_until(1_000)
    assert talk.scene.driver.illegal_moves == []


def test_no_reply_waits_for_the_text_of_a_sound() -> None:
    """It never comes; what the client requests afterwards is answered."""
    talk = Talk(deadlines=Deadlines(transcript_ms=900))
    audible_ms = talk.is_answered_softly()
    talk.says(None, from_ms=audible_ms + 300, for_ms=200)
    talk.at(talk.ended_ms + 610)
    talk.sends(3_800)
    talk.at(talk.ended_ms + 12_000)
    n_started = len(talk.scene.started())
    talk.at(talk.ended_ms + 12_010, e.ReplyRequested("evt", talk.scene.driver.settings.reply))
    assert len(talk.scene.started()) == n_started + 1


def test_the_agents_own_echo_stops_it_once() -> None:
    """It goes on at the pause, without waiting for a text; the next such voice is judged before it stops anything."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    talk.at(audible_ms + 200, e.SpeechStarted(audible_ms + 140, audible_ms + 140))
    assert talk.agent() is AgentState.READY
    talk.at(audible_ms + 500, e.SpeechWentOn(360, echoes=True))
    got = talk.at(audible_ms + 600, e.SpeechPaused(audible_ms + 520, audible_ms + 520))
    assert any(isinstance(each, c.ContinueReply) for each in got)
    assert talk.agent() is AgentState.SPEAKING
    talk.sends(3_000)
    talk.at(audible_ms + 700, e.SpeechStarted(audible_ms + 660, audible_ms + 660))
    assert talk.agent() is AgentState.SPEAKING, "it is the agent's own again, as far as anybody knows"


def test_after_the_first_second_an_interruption_is_judged() -> None:
    """As for any answer."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    got = talk.at(audible_ms + 1_050)
    assert [type(each).__name__ for each in got if isinstance(each, c.FinalizeReply)] == ["FinalizeReply"]
    talk.at(audible_ms + 1_100, e.SpeechStarted(audible_ms + 1_040, audible_ms + 1_040))
    assert talk.agent() is AgentState.DUCKED


def test_a_second_sound_in_what_is_left_of_the_second() -> None:
    """The second counts what was heard, however often it was stopped; nothing of the answer is lost."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    talk.says("", from_ms=audible_ms + 300, for_ms=100)
    talk.sends(3_000)
    again_ms = talk.scene.driver.now_ms + 300
    talk.says("", from_ms=again_ms, for_ms=100)
    talk.sends(3_000)
    turn = talk.scene.driver.core.agent.turn
    assert turn is not None
    assert f"{turn.reply.earlier_text} {turn.reply.text}" == ANSWER
    assert turn.audible_played_ms(talk.scene.driver.now_ms) < 1_000
    talk.at(talk.scene.driver.now_ms + 1_100)
    talk.at(talk.scene.driver.now_ms + 10, e.SpeechStarted(talk.scene.driver.now_ms, 0))
    assert talk.agent() is AgentState.DUCKED
    assert talk.scene.driver.illegal_moves == []


# --- where nothing begins softly --------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [{"create_response": False}, {"interrupt_response": False}, {"reply": ReplySettings(audible=False)}],
    ids=["create_response", "interrupt_response", "text"],
)
def test_sessions_that_never_begin_softly(settings: dict[str, Any]) -> None:
    """Their turns end as `adaptive` ends them."""
    talk = Talk(**settings)
    talk.says(QUESTION, from_ms=1_000)
    talk.silent_until(480)
    assert talk.user() is UserState.HOLDING
    talk.silent_until(500)
    assert talk.user() is not UserState.HOLDING


def test_push_to_talk_never_begins_softly() -> None:
    """A commit is the client's: its answer is interrupted like any other."""
    scene = soft(detection="none")
    scene._see(scene.driver.at(1_000, e.SettingsChanged(scene.driver.settings)))
    scene.commits()
    scene.transcribes(QUESTION)
    scene._see(scene.driver.at(scene.driver.now_ms, e.ReplyRequested("evt", scene.driver.settings.reply)))
    scene.begins_to_answer()
    assert not any(isinstance(each, c.OpenGate) and each.reversible for each in scene.driver.commands)


# --- what else may happen meanwhile -----------------------------------------------------------


def test_an_answer_that_fails_while_it_is_stopped_is_made_again() -> None:
    """The sound had no words; the answer isn't lost."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    talk.at(audible_ms + 300, e.SpeechStarted(audible_ms + 240, audible_ms + 240))
    key = talk.scene._key(-1)
    talk.at(audible_ms + 320, e.StageFailed(*key, "tts", "fake/tts", "broke"))
    talk.ended_ms = audible_ms + 400
    talk.at(talk.ended_ms + 80, e.SpeechPaused(talk.ended_ms, talk.ended_ms))
    talk.gets("", talk.ended_ms + 120)
    talk.silent_until(1_400)
    assert len(talk.scene.started()) == 2
    assert talk.scene.started()[-1].items[0].parts == (InputAudio(QUESTION),)  # type: ignore[union-attr]


def test_a_cleared_buffer_lets_the_answer_go_on() -> None:
    """The answer goes on at once."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    talk.at(audible_ms + 300, e.SpeechStarted(audible_ms + 240, audible_ms + 240))
    got = talk.at(audible_ms + 400, e.ClearRequested("evt"))
    assert any(isinstance(each, c.ContinueReply) for each in got)
    assert talk.agent() is AgentState.SPEAKING


def test_the_clients_report_moves_the_word_at_which_it_goes_on() -> None:
    """The client truncates the answer to what was heard, as it does at every interruption."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    item_id = talk.scene.started()[-1].item_id
    talk.says(None, from_ms=audible_ms + 900, for_ms=100)
    talk.scene.truncates(item_id, 300)
    got = talk.gets("", talk.ended_ms + 150)
    resumed = next(each for each in got if isinstance(each, c.ContinueReply))
    assert resumed.text == ANSWER.partition(" ")[2]
    assert resumed.from_ms < 300


def test_who_resumed_twice_is_waited_for_a_little_longer() -> None:
    """By 100 ms, and only from the third time on."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    for words in ("And on Monday?", "And on Tuesday?"):
        talk.says(words, from_ms=audible_ms + 300)
        talk.silent_until(200)
        talk.answers()
        talk.silent_until(460)
        talk.sends()
        audible_ms = talk.scene.driver.now_ms
    ended_ms = audible_ms - talk.ended_ms
    assert 450 <= ended_ms <= 460


def test_the_answer_to_an_earlier_turn_is_not_taken_back() -> None:
    """The user has said another turn since: a voice over the answer is judged as any interruption."""
    talk = Talk(deadlines=Deadlines(utterance_ms=1_150), speculate=False)
    talk.says(QUESTION, from_ms=1_000)
    talk.at(2_300)
    assert talk.user() is UserState.ENDED, "the user has spoken for the longest time allowed"
    talk.at(2_500, e.SpeechStarted(2_440, 2_440))
    assert talk.user() is UserState.SPEAKING, "in the next turn"
    talk.at(2_700, e.SpeechPaused(2_600, 2_600), e.TranscriptFinished(talk.utterance, 1, "And tomorrow?"))
    talk.at(3_400, e.SilenceGrew(800))
    assert (talk.user(), talk.agent()) == (UserState.QUIET, AgentState.PREPARING), (
        "the second turn waits for the first answer"
    )
    talk.answers(whole=False)
    talk.sends()
    got = talk.at(3_600, e.SpeechStarted(3_540, 3_540))
    assert "SuspendReply" not in kinds(got)
    assert talk.agent() is AgentState.DUCKED


def test_a_sound_after_the_words_of_an_answer_does_not_lose_its_calls() -> None:
    """The words were played, and the calls wait: they leave in a response of their own."""
    talk = Talk()
    talk.says(QUESTION, from_ms=1_000)
    talk.silent_until(200)
    key, now_ms = talk.scene._key(-1), talk.scene.driver.now_ms
    talk.at(now_ms, e.ModelRequested(*key, "fake/llm"), e.ModelTextReceived(*key, "Yes."))
    talk.at(now_ms, e.ClauseHandedOver(*key, 0, "Yes.", "fake/tts"), e.SoundArrived(*key, 0, 100, 0))
    talk.at(now_ms, e.CallGrew(*key, 0, "call_1", "weather", "{}"))
    talk.at(now_ms, e.ModelFinished(*key, "tool_calls"), e.SynthesisFinished(*key))
    talk.silent_until(360)
    talk.sends(100)
    talk.at(2_490, e.SpeechStarted(2_470, 2_470))
    talk.at(2_600, e.SpeechPaused(2_520, 2_520))
    assert talk.agent() is AgentState.READY
    talk.gets("", 2_620)
    talk.at(4_000)
    assert talk.scene.ended() == [("cancelled", "turn_detected"), ("completed", "")]
    started = [what for what in talk.scene.notified(a.OutputStarted) if isinstance(what.item, FunctionCall)]
    responses = talk.scene.notified(a.ResponseStarted)
    assert [each.response_id for each in started] == [responses[-1].response_id]


def test_a_commit_that_is_refused_lets_the_answer_go_on() -> None:
    """Too little audio to commit: nothing is ended, neither softly nor by an interruption."""
    talk = Talk()
    started_ms = talk.is_answered_softly()
    talk.at(started_ms + 300, e.SpeechStarted(started_ms + 240, started_ms + 240))
    assert talk.agent() is AgentState.READY
    got = talk.at(started_ms + 320, e.CommitRequested("evt", 20, None))
    assert len(talk.scene.notified(a.Refused)) == 1
    assert kinds(got) == []
    assert talk.agent() is AgentState.READY


def test_a_voice_that_pauses_before_its_words_come_is_one_voice() -> None:
    """The answer does not go on while the user speaks again; then the second pause counts."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    talk.says(None, from_ms=audible_ms + 300, for_ms=200)
    first_ms = talk.ended_ms
    got = talk.at(first_ms + 300, e.SpeechStarted(first_ms + 240, first_ms + 240))
    assert [type(each) for each in got if isinstance(each, c.Duck)] == [c.Duck]
    assert kinds(talk.at(first_ms + 700)) == []
    assert (talk.agent(), talk.user()) == (AgentState.READY, UserState.SPEAKING)
    second_ms = first_ms + 800
    talk.at(second_ms, e.SpeechWentOn(200), e.SpeechPaused(second_ms, second_ms))
    assert kinds(talk.at(second_ms + 590)) == []
    assert "ContinueReply" in kinds(talk.at(second_ms + 610))
    assert talk.scene.driver.illegal_moves == []


def test_two_halves_of_a_voice_are_as_long_as_one() -> None:
    """A second of voice in all has words, unless the STT says that it has none: the answer is dropped."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    talk.says(None, from_ms=audible_ms + 100, for_ms=600)
    talk.at(talk.ended_ms + 200, e.SpeechStarted(talk.ended_ms + 140, talk.ended_ms + 140))
    assert kinds(talk.at(talk.ended_ms + 300, e.SpeechWentOn(300))) == []
    ended_ms = talk.ended_ms + 500
    talk.at(ended_ms, e.SpeechWentOn(400))
    talk.at(ended_ms + 80, e.SpeechPaused(ended_ms, ended_ms))
    got = talk.at(ended_ms + 5_000)
    assert "StopReply" in kinds(got)
    assert "ContinueReply" not in kinds(got)


@pytest.mark.parametrize("for_ms", [1_100, 3_000])
def test_a_long_sound_without_words_does_not_end_the_answer(for_ms: int) -> None:
    """Laughter, a vacuum cleaner: once the STT says that it has no words, the answer goes on where it stopped."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    talk.says(None, from_ms=audible_ms + 300, for_ms=for_ms)
    assert talk.agent() is AgentState.READY
    got = talk.gets("", talk.ended_ms + 150)
    resumed = next(each for each in got if isinstance(each, c.ContinueReply))
    talk.sends(ANSWER_MS - resumed.from_ms)
    talk.at(talk.scene.driver.now_ms + 10_000)
    (record,) = talk.scene.driver.records.values()
    assert (record.outcome, record.resumed, record.played_text) == ("completed", 0, ANSWER)
    assert len(talk.scene.started()) == 1, "the LLM is asked once"
    assert talk.scene.driver.illegal_moves == []


def test_a_long_voice_with_words_resumes_the_turn_when_they_come() -> None:
    """With the first of them, in an interim text, or with all at the pause."""
    for interim in (True, False):
        talk = Talk()
        audible_ms = talk.is_answered_softly()
        talk.says(None, from_ms=audible_ms + 300, for_ms=2_000)
        at_ms = talk.ended_ms + 100
        event: e.Event = e.TranscriptFinished(talk.utterance, 1, "And tomorrow?", provider="fake/stt")
        if interim:
            event = e.TranscriptGrew(talk.utterance, "And tom")
        assert "StopReply" in kinds(talk.at(at_ms, event))
        assert talk.scene.driver.illegal_moves == []


def test_a_long_voice_whose_text_fails_is_taken_for_words() -> None:
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    talk.says(None, from_ms=audible_ms + 300, for_ms=2_000)
    got = talk.at(talk.ended_ms + 120, e.TranscriberFailed(talk.utterance, "fake/stt", "broke"))
    assert "StopReply" in kinds(got)
    assert "ContinueReply" not in kinds(got)


def test_what_is_reported_of_a_voice_after_its_pause_counts_for_nothing() -> None:
    """Its first pause is the one whose words are awaited."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    talk.says(None, from_ms=audible_ms + 300, for_ms=200)
    late = (e.SpeechWentOn(1_200), e.SpeechPaused(talk.ended_ms + 400, talk.ended_ms + 400))
    assert kinds(talk.at(talk.ended_ms + 500, *late)) == []
    assert "ContinueReply" in kinds(talk.at(talk.ended_ms + 610))


LATE_TEXTS = {
    "interim": lambda number: e.TranscriptGrew(number, QUESTION),
    "final": lambda number: e.TranscriptFinished(number, 1, QUESTION, provider="fake/stt"),
    "failed": lambda number: e.TranscriberFailed(number, "fake/stt", "broke"),
}


@pytest.mark.parametrize("late", LATE_TEXTS.values(), ids=LATE_TEXTS)
def test_a_late_text_of_what_was_said_before_is_none_of_the_voice(late: Any) -> None:
    """Neither its words nor its failure: the voice is still judged, by its own text."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    earlier = talk.utterance
    talk.says(None, from_ms=audible_ms + 300, for_ms=200)
    assert talk.utterance != earlier
    assert kinds(talk.at(talk.ended_ms + 100, late(earlier))) == []
    assert talk.agent() is AgentState.READY
    assert "StopReply" in kinds(talk.gets("And tomorrow?", talk.ended_ms + 200))


def test_the_answer_goes_on_when_the_voices_text_fails() -> None:
    """But not while the user still speaks."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    talk.at(audible_ms + 300, e.SpeechStarted(audible_ms + 240, audible_ms + 240))
    number = talk.scene.driver.core.user.turn.question.utterances[-1].number  # type: ignore[union-attr]
    failed = e.TranscriberFailed(number, "fake/stt", "broke")
    assert kinds(talk.at(audible_ms + 320, failed)) == []
    talk.at(audible_ms + 480, e.SpeechPaused(audible_ms + 400, audible_ms + 400))
    assert "ContinueReply" in kinds(talk.at(audible_ms + 500, failed))


def test_an_answer_that_failed_after_the_voice_is_not_restored() -> None:
    """The time at which it was to go on finds none."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    talk.says(None, from_ms=audible_ms + 300, for_ms=200)
    talk.at(talk.ended_ms + 100, e.StageFailed(*talk.scene._key(-1), "tts", "fake/tts", "broke"))
    got = talk.at(talk.ended_ms + 610)
    assert not {"ContinueReply", "StopReply"} & set(kinds(got))
    assert talk.scene.driver.illegal_moves == []


def test_a_sound_after_a_short_answer_has_nothing_to_continue() -> None:
    """All of it was played, and its end was not yet certain: no response is made of nothing."""
    talk = Talk()
    talk.says(QUESTION, from_ms=1_000)
    talk.silent_until(200)
    talk.answers("Yes.", 100)
    talk.silent_until(360)
    talk.sends(100)
    talk.at(2_490, e.SpeechStarted(2_470, 2_470))
    assert (talk.agent(), talk.user()) == (AgentState.READY, UserState.SPEAKING)
    talk.at(2_700, e.SpeechPaused(2_620, 2_620))
    got = talk.gets("", 2_720)
    assert kinds(got) == ["InputSpeechStopped", "AudioCommitted"]
    got = talk.at(4_000)
    assert (talk.agent(), talk.user()) == (AgentState.IDLE, UserState.QUIET)
    record = next(iter(talk.scene.driver.records.values()))
    assert (record.outcome, record.played_text, record.taken_back_ms) == ("completed", "Yes.", 0)
    assert talk.scene.ended() == [("completed", "")]
    assert talk.scene.driver.illegal_moves == []


def test_a_short_answer_is_over_before_it_is_irrevocable() -> None:
    """The time that finds no reply makes none irrevocable, and nothing else happens then."""
    talk = Talk()
    talk.says(QUESTION, from_ms=1_000)
    talk.silent_until(200)
    talk.answers("Yes.", 200)
    talk.silent_until(360)
    talk.sends(200)
    talk.at(2_700)
    assert talk.agent() is AgentState.IDLE
    assert kinds(talk.at(5_000)) == []


def test_an_outcome_that_waits_is_recorded_when_the_user_leaves() -> None:
    """The answer was played to its end, and the end of the turn was not yet certain."""
    talk = Talk()
    talk.says(QUESTION, from_ms=1_000)
    talk.silent_until(200)
    talk.answers("Yes.", 100)
    talk.silent_until(360)
    talk.sends(100)
    talk.at(2_480)
    assert next(iter(talk.scene.driver.records.values())).outcome is None
    talk.at(2_490, e.UserLeft("client_left"))
    assert next(iter(talk.scene.driver.records.values())).outcome == "completed"


def test_a_failure_that_waits_is_recorded_when_the_user_leaves() -> None:
    """The answer broke before the end of the turn was certain."""
    talk = Talk()
    audible_ms = talk.is_answered_softly(whole=False)
    talk.at(audible_ms + 50, e.StageFailed(*talk.scene._key(-1), "llm", "fake/llm", "broke"))
    assert [record.outcome for record in talk.scene.driver.records.values()] == [None]
    talk.at(audible_ms + 100, e.UserLeft("client_left"))
    assert [record.outcome for record in talk.scene.driver.records.values()] == ["failed"]


def test_a_message_that_the_client_deleted_is_not_taken_back() -> None:
    """The user goes on: the answer's message is gone, and stays so."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    item_id = talk.scene.started()[-1].item_id
    talk.at(audible_ms + 300, e.SpeechStarted(audible_ms + 240, audible_ms + 240))
    talk.at(audible_ms + 350, e.ItemDeleteRequested("evt", item_id))
    talk.ended_ms = audible_ms + 900
    talk.at(talk.ended_ms + 80, e.SpeechWentOn(600), e.SpeechPaused(talk.ended_ms, talk.ended_ms))
    assert "StopReply" in kinds(talk.gets("And tomorrow?", talk.ended_ms + 120))
    talk.silent_until(720)
    assert [words for _, words, _ in talk.items()] == [QUESTION, "And tomorrow?"]
    assert talk.scene.driver.illegal_moves == []


def test_an_earlier_answer_that_still_plays_is_interrupted_for_good() -> None:
    """It was not interruptible when the user spoke over it; the answer behind it may go on, and this one may not."""
    talk = Talk(interrupt_response=False)
    driver = talk.scene.driver
    talk.says(QUESTION, from_ms=1_000)
    talk.silent_until(720)
    talk.answers("A long story.", 20_000)
    talk.sends(20_000)
    talk.says("And tomorrow?", from_ms=4_000)
    talk.at(driver.now_ms, e.SettingsChanged(replace(driver.settings, interrupt_response=True)))
    talk.silent_until(200)
    talk.answers()
    talk.silent_until(360)
    talk.sends()
    got = talk.at(driver.now_ms + 100, e.SpeechStarted(driver.now_ms + 60, driver.now_ms + 60))
    assert kinds(got) == ["InputSpeechStarted", "StopReply", "SuspendReply"]
    stopped = next(each for each in got if isinstance(each, c.StopReply))
    suspended = next(each for each in got if isinstance(each, c.SuspendReply))
    assert (stopped.turn, suspended.turn) == (1, 2)
    assert driver.records["turn_s_0001"].outcome == "interrupted"
    talk.at(driver.now_ms + 200, e.SpeechPaused(driver.now_ms + 100, driver.now_ms + 100))
    assert "ContinueReply" in kinds(talk.at(driver.now_ms + 700))
    assert driver.illegal_moves == []


def test_a_report_of_playback_ends_no_answer_that_is_still_written() -> None:
    """All that came was played; the LLM may write more."""
    talk = Talk()
    audible_ms = talk.is_answered_softly(whole=False)
    item_id = talk.scene.started()[-1].item_id
    talk.at(audible_ms + 1_500, e.PlaybackReported(item_id, 1_400, 0, 4_000))
    talk.at(audible_ms + 5_000, e.PlaybackReported(item_id, ANSWER_MS, 0, 7_500))
    assert talk.agent() is AgentState.SPEAKING
    talk.completes()
    talk.at(audible_ms + 6_000)
    assert talk.agent() is AgentState.IDLE
    assert [record.outcome for record in talk.scene.driver.records.values()] == ["completed"]


def test_the_playback_report_moves_the_word_at_which_it_goes_on() -> None:
    """Unless the client has truncated the answer itself."""
    for truncates in (False, True):
        talk = Talk()
        audible_ms = talk.is_answered_softly()
        item_id = talk.scene.started()[-1].item_id
        talk.says(None, from_ms=audible_ms + 900, for_ms=100)
        if truncates:
            talk.scene.truncates(item_id, 700)
        talk.at(talk.ended_ms + 100, e.PlaybackReported(item_id, 300, 0, 3_000))
        got = talk.gets("", talk.ended_ms + 150)
        resumed = next(each for each in got if isinstance(each, c.ContinueReply))
        assert (resumed.from_ms < 300) is not truncates


def test_an_answer_is_not_taken_back_once_another_is_requested() -> None:
    """A sound would open a second response of the conversation beside the requested one, which waits for words."""
    talk = Talk()
    scene = talk.scene
    scene.speaks(100)
    scene.commits()
    talk.says(QUESTION, from_ms=scene.driver.now_ms)
    talk.silent_until(300)
    talk.answers()
    talk.silent_until(380)
    assert talk.agent() is AgentState.SPEAKING
    got = scene.creates()
    assert "FinalizeReply" in kinds(got)
    requested = scene.notified(a.ResponseStarted)[-1].response_id
    at_ms = scene.driver.now_ms + 40
    assert "SuspendReply" not in kinds(talk.at(at_ms, e.SpeechStarted(at_ms - 60, at_ms - 60)))
    talk.at(at_ms + 100, e.SpeechPaused(at_ms, at_ms))
    talk.gets("", at_ms + 120)
    assert talk.agent() is AgentState.SPEAKING
    assert scene.notified(a.ResponseStarted)[-1].response_id == requested


def test_a_turn_that_waits_is_answered_with_the_one_that_goes_on() -> None:
    """The words of an overlong turn are late. An answer to it alone would be spoken while the user goes on."""
    talk = Talk(deadlines=Deadlines(utterance_ms=5_000, transcript_ms=900))
    scene = talk.scene
    talk.at(1_000, e.SpeechStarted(940, 940))
    talk.at(6_100)
    talk.says(QUESTION, from_ms=6_200, for_ms=200)
    talk.silent_until(380)
    talk.answers(whole=False)
    talk.sends(200)
    talk.says(None, from_ms=scene.driver.now_ms, for_ms=1_100)
    assert len(scene.started()) == 1
    talk.gets("And tomorrow?", talk.ended_ms + 120)
    assert talk.user() is UserState.HOLDING
    assert scene.outcomes() == [("abandoned", "answered with the next turn")]
    assert len(scene.started()) == 1
    assert scene.driver.illegal_moves == []


def test_a_watched_turn_says_nothing_of_a_voice_that_is_not_judged_yet() -> None:
    """Its marks are of two pauses then, and the new one lies behind the answer. All comes once the turn goes on."""
    talk = Talk(watched=True)
    audible_ms = talk.is_answered_softly()
    talk.says(None, from_ms=audible_ms + 300, for_ms=200)
    before = len(talk.scene.notified(a.TurnMarked))
    assert talk.at(talk.ended_ms + 100, e.SilenceGrew(100)) == []
    talk.gets("In Rome, please.", talk.ended_ms + 120)
    marked = talk.scene.notified(a.TurnMarked)[before:]
    assert {"voiced_last", "flushed", "transcribed"} <= {each.mark for each in marked}
    assert {each.revision for each in marked} == {1}
