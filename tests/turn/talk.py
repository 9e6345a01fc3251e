"""A scene for tests of `soft`: a user who asks, and an answer that may begin before the end of the turn is certain."""

from __future__ import annotations

from typing import Any

from voicepipe.testing.scenario import Scenario
from voicepipe.turn import commands as c
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.conversation import Message
from voicepipe.turn.endpointing.probability import STT_END
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

    def is_answered_softly(self, text: str = ANSWER, duration_ms: int = ANSWER_MS, *, whole: bool = True) -> int:
        """Ask, and be answered 350 ms after the last word; return when the answer became audible."""
        self.says(QUESTION, from_ms=1_000)
        self.silent_until(200)
        self.answers(text, duration_ms, whole=whole)
        self.silent_until(360)
        self.sends(duration_ms)
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
