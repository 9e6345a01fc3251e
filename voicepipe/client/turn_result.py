"""One turn as the client sees it: assemble an answer from the server's events, and decide when it is complete."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from voicepipe.audio.samples import PcmJoiner, Samples, first_audible, silence
from voicepipe.client import events as e
from voicepipe.client.microphone import RATE_HZ

_MS_SAMPLES: Final = RATE_HZ // 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of one turn. All positions count the client's captured audio, in ms, so only the client's clock is
    involved.
    """

    turn_id: str
    """Id of the turn's record at the server; empty when the server keeps none."""

    user_text: str
    """The user's transcript from the server."""

    agent_text: str
    samples: Samples
    """The audio, int16, (n_samples,), 24 kHz."""

    status: e.ReplyStatus
    why: str
    """Why the answer failed or was cut; otherwise empty."""

    t0_ms: int | None
    """Position of the last voiced sample as the server found it; None when the user did not speak."""

    first_output_ms: int | None
    """How much audio had been captured when the first audible sample played here. For a text answer: when its first
    text arrived. None when neither happened."""

    earlier: int
    """Answers before this one that became void because the user went on speaking."""

    @property
    def latency_ms(self) -> int | None:
        """Return the voice-to-voice latency: from the user's last voiced sample to the first audible one here."""
        return None if self.t0_ms is None or self.first_output_ms is None else self.first_output_ms - self.t0_ms

    @property
    def duration_ms(self) -> int:
        """Return the duration of the audio in ms."""
        return len(self.samples) // _MS_SAMPLES


@dataclass(slots=True)
class _Reply:
    turn_id: str
    t0_ms: int | None
    joiner: PcmJoiner = field(default_factory=PcmJoiner)
    sound: list[Samples] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    first_output_ms: int | None = None
    ended: e.ReplyEnded | None = None


class TurnCollector:
    """Collects the events of one turn. A user who pauses may get several answers: the last one counts."""

    def __init__(self, *, written: bool = False, tools: Collection[str] = ()) -> None:
        """`written`: the answer is text, and its first text counts as the first output. `tools`: functions that run
        here, so that their results get another answer."""
        self._written, self._tools = written, tools
        self._speaking = self._owed = False
        self._t0_ms: int | None = None
        self._understood: list[str] = []
        self._lost = ""
        self._complaint = ""
        self._replies: dict[str, _Reply] = {}
        self._plays_until_ms = 0

    def take(self, event: e.ServerEvent, position_ms: int) -> None:
        """Apply an event that arrived when the client's device had captured `position_ms`."""
        match event:
            case e.SpeechStarted():
                self._speaking = True
            case e.SpeechStopped(audio_end_ms):
                self._speaking, self._owed, self._t0_ms = False, True, audio_end_ms
            case e.TranscriptionCompleted(text):
                self._understood.append(text)
                self._owed = self._owed and bool(text.strip())  # an empty transcript gets no answer
            case e.TranscriptionFailed(why):
                self._lost = why
            case e.ReplyStarted(response_id, turn_id, apologises=False):
                self._owed = False
                self._replies[response_id] = _Reply(turn_id, self._t0_ms)
            case e.ReplyAudio(response_id, pcm):
                self._add_audio(self._replies.get(response_id), pcm, position_ms)
            case e.ReplyText(response_id, text) if response_id in self._replies:
                self._add_text(self._replies[response_id], text, position_ms)
            case e.FunctionCalled(response_id, _, name) if name in self._tools:
                self._owed = True
                self._replies.pop(response_id, None)  # words before the call are not the answer
            case e.ReplyEnded(response_id, status) if response_id in self._replies:
                self._replies[response_id].ended = event
                if status == "cancelled":  # the user spoke: audio that has not been played is dropped
                    self._plays_until_ms = min(self._plays_until_ms, position_ms)
            case e.ServerError(_, message):
                self._complaint = message

    @property
    def complete(self) -> bool:
        """Return whether the last answer is complete and no other is due. A user who goes on speaking resets this."""
        quiet = not self._speaking and not self._owed and bool(self._replies)
        return quiet and all(reply.ended for reply in self._replies.values())

    def answer(self) -> Answer | None:
        """Return the last answer that has ended, or None."""
        ended = [(reply, reply.ended) for reply in self._replies.values() if reply.ended is not None]
        if not ended:
            return None
        last, end = ended[-1]
        return Answer(
            turn_id=last.turn_id,
            user_text=" ".join(text.strip() for text in self._understood if text.strip()),
            agent_text="".join(last.words),
            samples=np.concatenate(last.sound) if last.sound else silence(0),
            status=end.status,
            why=end.why,
            t0_ms=last.t0_ms,
            first_output_ms=last.first_output_ms,
            earlier=len(ended) - 1,
        )

    def progress(self) -> str:
        """Return the progress of the turn, for the error of a timeout."""
        if self._complaint:
            return self._complaint
        if self._lost:
            return f"the server could not transcribe the speech: {self._lost}"
        if any(not reply.ended for reply in self._replies.values()):
            return "an answer began and did not end"
        if self._speaking:
            return "the server detected speech and no end of turn"
        if self._t0_ms is None:
            return "the server detected no speech"
        if self._understood and not "".join(self._understood).strip():
            return "the server detected speech and no words"
        return "the server received the turn and sent no answer"

    def _add_audio(self, reply: _Reply | None, pcm: bytes, position_ms: int) -> None:
        if reply is None:
            return
        samples = reply.joiner.push(pcm)
        starts_ms = max(self._plays_until_ms, position_ms)
        self._plays_until_ms = starts_ms + len(samples) // _MS_SAMPLES
        first = first_audible(samples) if reply.first_output_ms is None else None
        if first is not None:
            reply.first_output_ms = starts_ms + first // _MS_SAMPLES
        reply.sound.append(samples)

    def _add_text(self, reply: _Reply, text: str, position_ms: int) -> None:
        reply.words.append(text)
        if self._written and reply.first_output_ms is None:
            reply.first_output_ms = position_ms
