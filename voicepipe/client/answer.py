"""One turn as the caller lives it: from the server's events to an answer, and when it is complete."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from voicepipe.audio.samples import PcmJoiner, Samples, first_audible, silence
from voicepipe.client import events as e
from voicepipe.client.microphone import RATE_HZ

_MS_SAMPLES: Final = RATE_HZ // 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back. All positions count the caller's captured audio, in ms, so no clock but theirs is involved."""

    turn_id: str
    """Names the turn's record at the server; empty when it keeps none."""

    caller_text: str
    """What the server understood."""

    agent_text: str
    samples: Samples
    """The sound, int16, (n_samples,), 24 kHz."""

    status: e.ReplyStatus
    why: str
    """Empty unless it failed or was cut."""

    t0_ms: int | None
    """Where the server found the last voiced sample; None when nothing was spoken."""

    heard_ms: int | None
    """How much had been captured when the first audible sample played here; of a written answer, when its first
    text came. None when neither did."""

    earlier: int
    """Answers before this one that the caller's going on made void."""

    @property
    def latency_ms(self) -> int | None:
        """Voice to voice: from the caller's last voiced sample to the first audible one here."""
        return None if self.t0_ms is None or self.heard_ms is None else self.heard_ms - self.t0_ms

    @property
    def duration_ms(self) -> int:
        """How long the sound is."""
        return len(self.samples) // _MS_SAMPLES


@dataclass(slots=True)
class _Reply:
    turn_id: str
    t0_ms: int | None
    joiner: PcmJoiner = field(default_factory=PcmJoiner)
    sound: list[Samples] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    heard_ms: int | None = None
    ended: e.ReplyEnded | None = None


class Gathering:
    """Takes the events of one turn. A caller who pauses may get several answers: the last one counts."""

    def __init__(self, *, written: bool = False) -> None:
        """`written`: the answer is text, and its first text is what the caller waits for."""
        self._written = written
        self._speaking = self._owed = False
        self._t0_ms: int | None = None
        self._understood: list[str] = []
        self._lost = ""
        self._complaint = ""
        self._replies: dict[str, _Reply] = {}
        self._plays_until_ms = 0

    def take(self, event: e.ServerEvent, position_ms: int) -> None:
        """Note an event that came when the caller's device had captured `position_ms`."""
        match event:
            case e.CallerStarted():
                self._speaking = True
            case e.CallerStopped(audio_end_ms):
                self._speaking, self._owed, self._t0_ms = False, True, audio_end_ms
            case e.CallerUnderstood(text):
                self._understood.append(text)
                self._owed = self._owed and bool(text.strip())  # nothing was said: nothing will be answered
            case e.CallerLost(why):
                self._lost = why
            case e.ReplyStarted(response_id, turn_id, apologises=False):
                self._owed = False
                self._replies[response_id] = _Reply(turn_id, self._t0_ms)
            case e.ReplySound(response_id, pcm):
                self._hear(self._replies.get(response_id), pcm, position_ms)
            case e.ReplyWords(response_id, text) if response_id in self._replies:
                self._read(self._replies[response_id], text, position_ms)
            case e.ReplyEnded(response_id, status) if response_id in self._replies:
                self._replies[response_id].ended = event
                if status == "cancelled":  # the caller spoke: what has not been played is thrown away
                    self._plays_until_ms = min(self._plays_until_ms, position_ms)
            case e.ServerComplained(_, message):
                self._complaint = message

    @property
    def complete(self) -> bool:
        """Whether the last answer is all there and no other is due. A caller who goes on speaking undoes that."""
        quiet = not self._speaking and not self._owed and bool(self._replies)
        return quiet and all(reply.ended for reply in self._replies.values())

    def answer(self) -> Answer | None:
        """The last answer that has ended, or None."""
        ended = [(reply, reply.ended) for reply in self._replies.values() if reply.ended is not None]
        if not ended:
            return None
        last, end = ended[-1]
        return Answer(
            turn_id=last.turn_id,
            caller_text=" ".join(text.strip() for text in self._understood if text.strip()),
            agent_text="".join(last.words),
            samples=np.concatenate(last.sound) if last.sound else silence(0),
            status=end.status,
            why=end.why,
            t0_ms=last.t0_ms,
            heard_ms=last.heard_ms,
            earlier=len(ended) - 1,
        )

    def how_far(self) -> str:
        """Say how far it came, for whoever waited in vain."""
        if self._complaint:
            return self._complaint
        if self._lost:
            return f"the server could not tell what was said: {self._lost}"
        if any(not reply.ended for reply in self._replies.values()):
            return "an answer began and did not end"
        if self._speaking:
            return "the server hears the caller speak and no end of it"
        if self._t0_ms is None:
            return "the server heard no speech in it"
        if self._understood and not "".join(self._understood).strip():
            return "the server heard speech and no words"
        return "the server heard the caller and did not answer"

    def _hear(self, reply: _Reply | None, pcm: bytes, position_ms: int) -> None:
        if reply is None:
            return
        samples = reply.joiner.push(pcm)
        starts_ms = max(self._plays_until_ms, position_ms)
        self._plays_until_ms = starts_ms + len(samples) // _MS_SAMPLES
        first = first_audible(samples) if reply.heard_ms is None else None
        if first is not None:
            reply.heard_ms = starts_ms + first // _MS_SAMPLES
        reply.sound.append(samples)

    def _read(self, reply: _Reply, text: str, position_ms: int) -> None:
        reply.words.append(text)
        if self._written and reply.heard_ms is None:
            reply.heard_ms = position_ms
