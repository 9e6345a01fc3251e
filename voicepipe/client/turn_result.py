"""Assemble the answer of a turn from the server's events, and decide when it is complete."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

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
    """The audio, int16, (n_samples,), 24 kHz; of an answer that failed, with that of the apology for it."""

    preamble: str
    """What the agent said in this turn while the answer was awaited: a filler, or words before a function call."""

    other_text: str
    """What the agent said meanwhile that is no part of this turn: a greeting, or the late answer of another turn."""

    calls: tuple[e.Called, ...]
    """The functions that it called in this turn, in order."""

    status: e.ReplyStatus
    why: str
    """Why the answer failed or was cut; otherwise empty."""

    apology: str
    """What the agent said behind an answer that failed."""

    t0_ms: int | None
    """Position of the last voiced sample as the server found it, or of the typed message; None: there was neither."""

    first_output_ms: int | None
    """How much audio had been captured when the answer's first audible sample played here. For a text answer: when its
    first text arrived. None when neither happened."""

    first_sound_ms: int | None
    """The same for what the agent said first in this turn: the answer, or what it said before."""

    earlier: int
    """Answers before this one that became void because the user went on speaking."""

    @property
    def latency_ms(self) -> int | None:
        """Return the turn latency: from the user's last voiced sample to the answer's first audible one here."""
        return self._since_t0_ms(self.first_output_ms)

    @property
    def first_audio_ms(self) -> int | None:
        """Return the time from the user's last voiced sample to the first audible one here, also that of a filler."""
        return self._since_t0_ms(self.first_sound_ms)

    def _since_t0_ms(self, position_ms: int | None) -> int | None:
        return None if self.t0_ms is None or position_ms is None else position_ms - self.t0_ms

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
    words: dict[str, list[str]] = field(default_factory=dict)
    """Item -> its pieces of text."""

    first_output_ms: int | None = None
    first_filler_ms: int | None = None
    calls: bool = False
    """Whether the reply calls functions, so that another answer follows their results. A failed or cut reply has
    none."""

    is_filler: bool = False
    """Whether the reply is only a filler while functions run: another answer follows their results."""

    ended: e.ReplyEnded | None = None

    def rest(self, turn_id: str) -> _Reply:
        """Return the reply that continues this one in a response of another node, with the received part."""
        received: dict[str, Any] = {"sound": self.sound, "words": self.words}
        return _Reply(
            turn_id, self.t0_ms, first_output_ms=self.first_output_ms, first_filler_ms=self.first_filler_ms, **received
        )

    def drop(self) -> None:
        """Drop the received part: the other node sends it again."""
        self.sound, self.words, self.first_output_ms = [], {}, None

    @property
    def only_fills(self) -> bool:
        """Return whether the reply has no words but a filler. It may call functions, or fail."""
        return bool(self.words) and all(map(_fills, self.words))

    @property
    def answers(self) -> bool:
        """Return whether the reply is an answer, also a failed one: neither a function call nor a filler."""
        return not self.calls and not self.is_filler

    def text(self, *, filler: bool) -> str:
        """Return the text of the fillers, or of the other items."""
        return e.joined_items({item_id: text for item_id, text in self.words.items() if _fills(item_id) is filler})


def _fills(item_id: str) -> bool:
    return item_id.startswith(e.FILLER)


class TurnCollector:
    """Collects the events of one turn. A user who pauses may get several answers: the last one counts."""

    def __init__(
        self,
        *,
        written: bool = False,
        tools: Collection[str] = (),
        request: str = "",
        unrequested: bool = False,
        plays_until_ms: int = 0,
        approves: bool = False,
    ) -> None:
        """
        Args:
            written: the answer is text, and its first text counts as the first output.
            tools: functions that the client runs: another answer follows their results.
            request: the name of the client's requests in this turn.
            approves: the client decides on calls that need approval: another answer follows.
            unrequested: answers without a request count, too, such as a greeting.
            plays_until_ms: the position at which the audio of earlier turns will have been played.
        """
        self._written, self._tools, self._request, self._unrequested = written, tools, request, unrequested
        self._approves = approves
        self._speaking = self._answer_due = self._awaits_results = False
        self._turns = set[str]()
        """The ids of the turns whose answers count."""

        self._t0_ms: int | None = None
        self._transcripts: list[str] = []
        self._transcription_error = ""
        self._server_error = ""
        self._replies: dict[str, _Reply] = {}
        self._cut_response = ""
        """The incomplete response of a node, when another node continues the session."""

        self._apologies: dict[str, _Reply] = {}
        self._others: dict[str, _Reply] = {}
        """The replies of other turns."""

        self._plays_until_ms = plays_until_ms

    def typed(self, position_ms: int) -> None:
        """Begin with a typed message, at this position."""
        self._t0_ms = position_ms

    def handle(self, event: e.ServerEvent, position_ms: int) -> None:
        """Handle an event that was received when the device had captured `position_ms`."""
        match event:
            case e.SpeechStarted():
                self._speaking = True
                self._stop_playback(event, position_ms)
            case e.SpeechStopped(audio_end_ms):
                self._speaking, self._answer_due, self._t0_ms = False, True, audio_end_ms
            case e.TranscriptionCompleted(text):
                self._transcripts.append(text)
                self._answer_due = self._answer_due and bool(text.strip())  # an empty transcript gets no answer
            case e.TranscriptionFailed(why):
                self._transcription_error = why
            case e.ReplyStarted(response_id, turn_id, apologises=False) if self._counts(event):
                self._answer_due = False
                self._turns.add(turn_id)
                cut, self._cut_response = self._replies.pop(self._cut_response, None), ""
                self._replies[response_id] = _Reply(turn_id, self._t0_ms) if cut is None else cut.rest(turn_id)
            case e.ItemDeleted(item_id) if self._cut_response and item_id in self._replies[self._cut_response].words:
                self._replies[self._cut_response].drop()
            case e.ReplyStarted(response_id, turn_id, apologises=True) if self._failed() is not None:
                self._apologies = {response_id: _Reply(turn_id, self._t0_ms)}
            case e.ReplyStarted(response_id, turn_id):
                self._others[response_id] = _Reply(turn_id, None)
            case e.ServerError(_, message):
                self._server_error = message
            case _:
                self._handle_reply_event(getattr(event, "response_id", ""), event, position_ms)

    def moved(self, item_id: str, received: str, *, is_done: bool) -> None:
        """Record that another node continues the session: it sends the rest of an incomplete answer in another
        response.

        Args:
            item_id: the item of the latest output.
            received: the received words of that item, as sent to the other node.
            is_done: the item is complete, so no rest follows.
        """
        self._answer_due = self._answer_due or self._awaits_results or bool(self._request and not self._replies)
        for response_id, reply in self._replies.items():
            if reply.ended is None:
                is_whole = is_done and item_id in reply.words
                reply.ended = e.ReplyEnded(response_id, "completed" if is_whole else "cancelled", "")
                if not is_whole:
                    self._answer_due, self._cut_response = True, response_id
                    reply.words = {**reply.words, item_id: [received]} if item_id in reply.words else {}

    def _handle_reply_event(self, response_id: str, event: e.ServerEvent, position_ms: int) -> None:
        if response_id in self._replies:
            self._handle_reply(self._replies[response_id], event, position_ms)
        elif other := self._apologies.get(response_id) or self._others.get(response_id):
            self._handle_other_reply(other, event, position_ms)

    def _handle_other_reply(self, other: _Reply, event: e.ServerEvent, position_ms: int) -> None:
        """Handle an event of an apology or of another turn, whose audio plays before the answer's."""
        match event:
            case e.ReplyAudio(_, pcm):
                self._add_audio(other, pcm, position_ms, fills=False)
            case e.ReplyText(_, text, item_id):
                other.words.setdefault(item_id, []).append(text)
            case e.ReplyEnded():
                other.ended = event
                self._stop_playback(event, position_ms)

    def _counts(self, started: e.ReplyStarted) -> bool:
        """Return whether a reply belongs to this turn: it is no greeting, and no late answer of another turn."""
        own = bool(self._request) and started.request == self._request
        return own or self._unrequested or self._answer_due or started.turn_id in self._turns

    def _handle_reply(self, reply: _Reply, event: e.ServerEvent, position_ms: int) -> None:
        match event:
            case e.ReplyAudio(_, pcm, item_id):
                self._add_audio(reply, pcm, position_ms, fills=_fills(item_id))
            case e.ReplyText(_, text, item_id):
                reply.words.setdefault(item_id, []).append(text)
                if self._written and reply.first_output_ms is None:
                    reply.first_output_ms = position_ms
            case e.FunctionCalled(_, _, name) if name in self._tools:
                reply.calls = True
            case e.ReplyEnded() if reply.ended is None:  # else the node of the reply has died
                reply.ended, completed = event, event.status == "completed"
                decided = event.awaits_approval and self._approves
                reply.calls = completed and (event.goes_on or reply.calls or decided)
                reply.is_filler = completed and not reply.calls and reply.only_fills and self._awaits_results
                self._awaits_results = reply.calls or reply.is_filler
                self._stop_playback(event, position_ms)

    def _stop_playback(self, event: e.SpeechStarted | e.ReplyEnded, position_ms: int) -> None:
        """Drop unplayed audio, as the loudspeaker does, when the user speaks."""
        if isinstance(event, e.SpeechStarted) or event.status == "cancelled":
            self._plays_until_ms = min(self._plays_until_ms, position_ms)

    @property
    def complete(self) -> bool:
        """Return whether the last answer is complete and no other is due. A user who goes on speaking resets this."""
        quiet = not self._speaking and not self._answer_due and not self._awaits_results and bool(self._replies)
        return quiet and all(reply.ended for reply in self._replies.values())

    @property
    def apology_due(self) -> bool:
        """Return whether the last answer failed, and no apology for it is complete. There may be none."""
        return self._failed() is not None and not any(each.ended for each in self._apologies.values())

    def _failed(self) -> _Reply | None:
        """Return the last answer, if it failed."""
        ended = [reply for reply in self._replies.values() if reply.ended is not None and reply.answers]
        return ended[-1] if ended and ended[-1].ended is not None and ended[-1].ended.status == "failed" else None

    def answer(self) -> Answer | None:
        """Return the last answer that has ended, or None."""
        ended = [(reply, reply.ended) for reply in self._replies.values() if reply.ended is not None and reply.answers]
        if not ended:
            return None
        last, end = ended[-1]
        apologies = list(self._apologies.values()) if self._failed() is last else []
        sound = [piece for reply in (last, *apologies) for piece in reply.sound]
        audible = (ms for reply in self._of_turn(last) for ms in (reply.first_filler_ms, reply.first_output_ms))
        return Answer(
            turn_id=last.turn_id,
            user_text=" ".join(text.strip() for text in self._transcripts if text.strip()),
            agent_text=last.text(filler=False),
            samples=np.concatenate(sound) if sound else silence(0),
            preamble=" ".join(self._preamble(last)),
            other_text=" ".join(self._other_texts()),
            calls=tuple(call for each in self._of_turn(last) if each.ended is not None for call in each.ended.calls),
            status=end.status,
            why=end.why,
            apology=" ".join(each.text(filler=False) for each in apologies).strip(),
            t0_ms=last.t0_ms,
            first_output_ms=last.first_output_ms,
            first_sound_ms=min((ms for ms in audible if ms is not None), default=None),
            earlier=sum(reply.t0_ms is not None for reply, _ in ended[:-1]),
        )

    def _of_turn(self, last: _Reply) -> list[_Reply]:
        """Return the last answer, and what was said while it was awaited."""
        others = [reply for reply in self._replies.values() if not reply.answers and reply.t0_ms == last.t0_ms]
        return [*others, last]

    def _preamble(self, last: _Reply) -> Iterator[str]:
        for reply in self._of_turn(last):
            for text in (reply.text(filler=True), "" if reply is last else reply.text(filler=False)):
                if text.strip():
                    yield text.strip()

    def _other_texts(self) -> Iterator[str]:
        """Yield the texts of other turns that were audible."""
        for reply in self._others.values():
            text = reply.text(filler=False).strip()
            if text and (reply.sound or self._written):
                yield text

    def progress(self) -> str:
        """Return the progress of the turn, for the error of a timeout."""
        if self._server_error:
            return self._server_error
        if self._transcription_error:
            return f"the server could not transcribe the speech: {self._transcription_error}"
        if any(not reply.ended for reply in self._replies.values()):
            return "an answer began and did not end"
        if self._awaits_results:
            return "the agent called a function, and no answer to its result came"
        if self._speaking:
            return "the server detected speech and no end of turn"
        if self._t0_ms is None:
            return "the server detected no speech"
        if self._transcripts and not "".join(self._transcripts).strip():
            return "the server detected speech and no words"
        return "the server received the turn and sent no answer"

    def _add_audio(self, reply: _Reply, pcm: bytes, position_ms: int, *, fills: bool) -> None:
        samples = reply.joiner.push(pcm)
        starts_ms = max(self._plays_until_ms, position_ms)
        self._plays_until_ms = starts_ms + len(samples) // _MS_SAMPLES
        known_ms = reply.first_filler_ms if fills else reply.first_output_ms
        first = first_audible(samples) if known_ms is None else None
        first_ms = None if first is None else starts_ms + first // _MS_SAMPLES
        if fills:
            reply.first_filler_ms = known_ms if known_ms is not None else first_ms
        else:
            reply.first_output_ms = known_ms if known_ms is not None else first_ms
            reply.sound.append(samples)
