"""Whatever the core announces, in whatever order replies interleave: the wire makes sense."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from voicepipe.audio.encoding import FormatName
from voicepipe.protocol.outbound import EventRenderer, Frames
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.protocol.session_types import AudioFormat
from voicepipe.testing.strict_events import problems as shape_problems
from voicepipe.testing.wire_checker import WireChecker
from voicepipe.turn.commands import call_item_id
from voicepipe.turn.conversation import FunctionCall, InputAudio, Message
from voicepipe.turn.notifications import (
    AudioCommitted,
    InputSpeechStarted,
    InputSpeechStopped,
    ItemAdded,
    Notification,
    OutputStarted,
    ResponseEnded,
    ResponseStarted,
    TranscriptDelta,
    TranscriptDone,
)
from voicepipe.turn.settings import ReplySettings

FORMATS: tuple[FormatName, ...] = ("audio/pcm", "audio/pcmu", "audio/pcma")
ENDINGS = (
    ("completed", ""),
    ("cancelled", "turn_detected"),
    ("incomplete", "max_output_tokens"),
    ("failed", "llm_failed"),
)


class Talk(RuleBasedStateMachine):
    """A session in which turns, replies, out-of-band replies and late output come in any order."""

    @initialize(form=st.sampled_from(FORMATS))
    def begin(self, form: FormatName) -> None:
        config = SessionConfig.start(
            session_id="sess_p",
            model="m",
            voice="v",
            instructions="",
            expires_at=1,
            output_format=AudioFormat(form),
        )
        self.wire, self.checker, self.n = EventRenderer(config), WireChecker(), 0
        self.problems: list[str] = []
        self.open: dict[str, tuple[str, bool, list[int]]] = {}
        self.take(self.wire.hello())

    def take(self, frames: Frames) -> None:
        for frame in frames:
            event = json.loads(frame)
            assert len(frame) < 1 << 20
            self.checker.see(event)
            self.problems += shape_problems(event)

    def last(self) -> str | None:
        return self.checker.order[-1] if self.checker.order else None

    @rule(words=st.lists(st.text(max_size=5), max_size=3))
    def user_turn(self, words: list[str]) -> None:
        self.n += 1
        item, previous = f"item_{self.n}", self.last()
        announced: tuple[Notification, ...] = (
            InputSpeechStarted(item, 0),
            InputSpeechStopped(item, 10),
            AudioCommitted(item, previous),
            ItemAdded(Message(item, "user", (InputAudio(),)), previous),
            *(TranscriptDelta(item, word) for word in words),
            TranscriptDone(item, "".join(words), 10),
        )
        for what in announced:
            self.take(self.wire.render(what))

    @rule(audible=st.booleans(), joined=st.booleans())
    def reply_starts(self, audible: bool, joined: bool) -> None:
        self.n += 1
        response, item = f"resp_{self.n}", f"item_{self.n}"
        self.open[response] = (item, joined, [])
        reply = ReplySettings(audible=audible, in_conversation=joined)
        self.take(self.wire.render(ResponseStarted(response, reply, f"turn_{self.n}")))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def message_starts(self, data: st.DataObject) -> None:
        response = data.draw(st.sampled_from(sorted(self.open)))
        item, joined, calls = self.open[response]
        if -1 not in calls:
            calls.append(-1)
            begun = Message(item, "assistant", (), "in_progress")
            self.take(self.wire.render(OutputStarted(response, begun, self.last() if joined else None)))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), index=st.integers(0, 12))
    def call_starts(self, data: st.DataObject, index: int) -> None:
        response = data.draw(st.sampled_from(sorted(self.open)))
        item, joined, calls = self.open[response]
        if index not in calls:
            calls.append(index)
            begun = FunctionCall(call_item_id(item, index), f"call_{index}", "f", "", "in_progress")
            self.take(self.wire.render(OutputStarted(response, begun, self.last() if joined else None)))

    @rule(number=st.integers(1, 12), text=st.text(max_size=8), n_samples=st.integers(0, 6_000))
    def output_comes(self, number: int, text: str, n_samples: int) -> None:
        """For a response that is open, has ended, or never was."""
        self.take(self.wire.text_delta(f"resp_{number}", text))
        self.take(self.wire.audio(f"resp_{number}", np.ones(n_samples, dtype=np.int16)))

    @rule(number=st.integers(1, 12), index=st.integers(0, 12), arguments=st.sampled_from(['{"a":1}', "{", ""]))
    def arguments_come(self, number: int, index: int, arguments: str) -> None:
        self.take(self.wire.call_delta(f"resp_{number}", call_item_id(f"item_{number}", index), arguments))

    @rule(number=st.integers(1, 12), ending=st.sampled_from(ENDINGS))
    def reply_ends(self, number: int, ending: tuple[str, str]) -> None:
        self.open.pop(f"resp_{number}", None)
        status, reason = ending
        self.take(self.wire.render(ResponseEnded(f"resp_{number}", status, reason)))  # type: ignore[arg-type]

    @invariant()
    def makes_sense(self) -> None:
        assert self.problems == []
        assert self.checker.problems == []

    def teardown(self) -> None:
        for response in self.open:
            self.take(self.wire.render(ResponseEnded(response, "cancelled", "client_cancelled")))
        self.makes_sense()
        assert self.checker.unfinished == []


TestTalk = Talk.TestCase
TestTalk.pytestmark = [pytest.mark.slow]  # type: ignore[attr-defined]
TestTalk.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
