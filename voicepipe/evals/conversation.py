"""A conversation as the user's client received it: answers with their audio, transcripts, tool calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from voicepipe.audio.samples import PcmJoiner, Samples, first_audible, silence
from voicepipe.client import events as e
from voicepipe.client.microphone import RATE_HZ

_PER_MS: Final = RATE_HZ // 1_000

CHAR_MS: Final = 65
"""Length of a character of speech until an answer's audio is complete: 15 characters a second, as English is read."""


@dataclass(slots=True)
class AgentReply:
    """An answer of the agent, as far as it was received."""

    response_id: str
    turn_id: str
    apologises: bool
    pieces: list[tuple[int, Samples]] = field(default_factory=list)
    """(position at which it begins to play, samples); cut where the user interrupted."""

    words: dict[str, list[str]] = field(default_factory=dict)
    """The words of each item."""

    calls: list[e.FunctionCalled] = field(default_factory=list)
    audible_ms: int | None = None
    """Position of the first audible sample, without that of a filler; None: none was played."""

    ended: e.ReplyEnded | None = None
    joiner: PcmJoiner = field(default_factory=PcmJoiner)

    @property
    def text(self) -> str:
        """Return the text as the server sent it."""
        return e.joined_items(self.words)

    def played_until_ms(self) -> int:
        """Return the position at which its audio ends."""
        return max((start_ms + len(samples) // _PER_MS for start_ms, samples in self.pieces), default=0)

    def played_text(self) -> str:
        """Return an estimate of the played words of an interrupted reply, by the length of its audio."""
        played_ms = 0 if self.audible_ms is None else self.played_until_ms() - self.audible_ms
        if played_ms >= len(self.text) * CHAR_MS:
            return self.text
        return self.text[: played_ms // CHAR_MS].rpartition(" ")[0]

    def cut(self, position_ms: int) -> None:
        """Drop the audio that has not been played."""
        self.pieces = [
            (start_ms, samples[: (position_ms - start_ms) * _PER_MS])
            for start_ms, samples in self.pieces
            if start_ms < position_ms
        ]
        if self.audible_ms is not None and self.audible_ms >= position_ms:
            self.audible_ms = None

    def word_ms(self, word: str) -> int | None:
        """Return an estimate of the position of a word, by the share of the text before it; None: it was not
        received."""
        at = self.text.casefold().find(word.casefold())
        if at < 0 or self.audible_ms is None:
            return None
        played_ms = self.played_until_ms() - self.audible_ms
        return self.audible_ms + (at * played_ms // max(1, len(self.text)) if self.ended else at * CHAR_MS)


class ObservedConversation:
    """Handles the server's events in order. The loudspeaker is simulated: it plays audio on arrival, and stops when the
    server reports that the user speaks.
    """

    def __init__(self) -> None:
        self.replies: list[AgentReply] = []
        self.transcripts: list[str] = []
        self.errors: list[str] = []
        """The server's error events."""

        self.speaking = False
        """Whether the server detects the user's voice."""

        self.answer_due = False
        """Whether an answer is due."""

        self.turn_goes_on = False
        """Whether the newest turn's answer waits for the results of function calls."""

        self.plays_until_ms = 0
        self._goes_on_turn = ""
        self._streams: dict[str, AgentReply] = {}

    @property
    def replying(self) -> bool:
        """Return whether an answer is incomplete."""
        return any(reply.ended is None for reply in self.replies)

    def handle(self, event: e.ServerEvent, position_ms: int) -> None:
        """Handle an event that was received when the user's device had captured `position_ms`."""
        match event:
            case e.SpeechStarted():
                self.speaking = True
                self._stop_playback(position_ms)
            case e.SpeechStopped():
                self.speaking, self.answer_due = False, True
            case e.TranscriptionCompleted(text):
                self.transcripts.append(text.strip())
                self.answer_due = self.answer_due and bool(text.strip())  # an empty transcript gets no answer
            case e.TranscriptionFailed(why):
                self.errors.append(f"the transcription failed: {why}")
            case e.ReplyStarted(response_id, turn_id, apologises):
                self.turn_goes_on = self.turn_goes_on and not self.answer_due  # else the newer turn is answered
                self.answer_due = False
                reply = self._streams[response_id] = AgentReply(response_id, turn_id, apologises)
                self.replies.append(reply)
            case e.ServerError(_, message):
                self.errors.append(message)
            case _:
                self._handle_reply(event, position_ms)

    def _handle_reply(self, event: e.ServerEvent, position_ms: int) -> None:
        reply = self._streams.get(getattr(event, "response_id", ""))
        if reply is None:
            return
        match event:
            case e.ReplyAudio(_, pcm, item_id):
                self._play(reply, reply.joiner.push(pcm), position_ms, fills=item_id.startswith(e.FILLER))
            case e.ReplyText(_, text, item_id):
                reply.words.setdefault(item_id, []).append(text)
            case e.FunctionCalled():
                reply.calls.append(event)
            case e.ReplyEnded():
                reply.ended = event
                self._update_turn(reply, event)
                if event.status == "cancelled":
                    self._stop_playback(position_ms)

    def _update_turn(self, reply: AgentReply, ended: e.ReplyEnded) -> None:
        """Record whether the turn goes on after this reply. A filler alone changes nothing, nor does another turn."""
        fills = bool(reply.words) and all(item_id.startswith(e.FILLER) for item_id in reply.words)
        only_filler = fills and ended.status == "completed"  # else it is an answer of which no more came
        if ended.goes_on or (reply.calls and ended.status == "completed"):
            self.turn_goes_on, self._goes_on_turn = True, reply.turn_id
        elif reply.turn_id == self._goes_on_turn and not only_filler:
            self.turn_goes_on = False

    def _play(self, reply: AgentReply, samples: Samples, position_ms: int, *, fills: bool) -> None:
        starts_ms = max(self.plays_until_ms, position_ms)
        self.plays_until_ms = starts_ms + len(samples) // _PER_MS
        first = first_audible(samples) if reply.audible_ms is None and not fills else None
        if first is not None:
            reply.audible_ms = starts_ms + first // _PER_MS
        reply.pieces.append((starts_ms, samples))

    def _stop_playback(self, position_ms: int) -> None:
        self.plays_until_ms = min(self.plays_until_ms, position_ms)
        for reply in self.replies:
            if reply.played_until_ms() > position_ms:
                reply.cut(position_ms)


def agent_audio(replies: list[AgentReply], duration_ms: int) -> Samples:
    """Return what the loudspeaker played, int16, (n_samples,), 24 kHz."""
    track = silence(duration_ms * _PER_MS)
    for start_ms, samples in (piece for reply in replies for piece in reply.pieces):
        rest = track[start_ms * _PER_MS :]
        n_samples = min(len(rest), len(samples))
        rest[:n_samples] = samples[:n_samples]
    return track


def joined(frames: list[Samples]) -> Samples:
    """Return frames as one piece of audio, int16, (n_samples,)."""
    return np.concatenate(frames) if frames else silence(0)
