"""Read how the user and the providers of a recorded session behaved: their events, and their answers to commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median_low
from typing import Any, Final

from voicepipe.errors import VoicepipeError
from voicepipe.telemetry.journal.format import JournalFile
from voicepipe.telemetry.journal.replay import records_of, replay
from voicepipe.turn import commands as c
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.conversation import FunctionOutput, Message
from voicepipe.turn.journal import Entry, Opening
from voicepipe.turn.record import attribution
from voicepipe.turn.record.values import TurnRecord
from voicepipe.values import replace

Key = tuple[int, int]
"""(turn, revision)"""

_USUAL_FINAL_MS: Final = 200
_USUAL_SENT_MS: Final = 1
"""Default where a session has no example."""

ANSWERS: Final = (e.TimePassed, e.SilenceCommitted, e.PlaybackReported, e.OutputSent, e.FillerSent)
"""Events that follow from commands, beside those of a reply and of a flush."""


class NotReplayable(VoicepipeError):
    """The current core does not reproduce the journal."""


@dataclass(slots=True)
class RecordedReply:
    """One reply as it was recorded."""

    key: Key
    item_id: str
    started_ms: int
    """The time of its command."""

    question: str
    audible: bool
    words: str
    events: list[tuple[int, e.Event]] = field(default_factory=list)
    """(ms after the command, event)"""

    sent_after_ms: int | None = None
    """Time from the first audio, with the release gate open, to the socket."""

    played_after_ms: int | None = None
    """From there to the first sound at the client, as the client reported."""

    @property
    def whole(self) -> bool:
        """Whether the reply was completed."""
        kinds = {type(event) for _, event in self.events}
        return e.StageFailed in kinds or {e.ModelFinished, e.SynthesisFinished} <= kinds

    @property
    def calls(self) -> frozenset[str]:
        """Return the IDs of its function calls."""
        return frozenset(event.call_id for _, event in self.events if isinstance(event, e.CallGrew) and event.call_id)

    def reached_ms(self, kind: type) -> int | None:
        """Return the time of the first event of that kind, after the command."""
        return next((after_ms for after_ms, event in self.events if type(event) is kind), None)


@dataclass(frozen=True, slots=True)
class RecordedText:
    """The transcriber's text of an utterance up to one of its pauses."""

    utterance: int
    began: int
    """The number of the event that began the utterance."""

    pause: int
    """The number of the event that reported the pause."""

    text: str
    language: str | None
    provider: str
    after_ms: int
    """Time from the request to the text."""


@dataclass(slots=True)
class RecordedSession:
    """The user and the providers of one journal."""

    opening: Opening
    entries: list[Entry]
    lacks: str = ""
    """Why the journal ends before its session did; empty if it does not."""

    texts: list[RecordedText] = field(default_factory=list)
    replies: list[RecordedReply] = field(default_factory=list)
    records: dict[str, TurnRecord] = field(default_factory=dict)
    tool_delays_ms: dict[str, int] = field(default_factory=dict)
    """Call ID -> time from the end of its reply to the client's output."""

    played_after_ms: int | None = None
    """Median time from the first audio at the socket to that at the client; None if the client never reported it."""

    @property
    def text_after_ms(self) -> int:
        """Return the transcriber's median latency."""
        return median_low([each.after_ms for each in self.texts] or [_USUAL_FINAL_MS])

    @property
    def sent_after_ms(self) -> int:
        """Return the median time of audio to the socket."""
        return median_low([r.sent_after_ms for r in self.replies if r.sent_after_ms is not None] or [_USUAL_SENT_MS])

    @property
    def usual_reply(self) -> RecordedReply | None:
        """Return the reply with the median time to its first audio, of the complete ones."""
        first_ms = [(r.reached_ms(e.SoundArrived), i) for i, r in enumerate(self.replies) if r.whole]
        audible = sorted((ms, i) for ms, i in first_ms if ms is not None)
        return self.replies[audible[(len(audible) - 1) // 2][1]] if audible else None


def read_session(journal: JournalFile) -> RecordedSession:
    """Read how a session went from its journal.

    Raises:
        NotReplayable: the current core decides otherwise, so causes and effects cannot be matched.
    """
    found = replay(journal).difference
    if found is not None:
        raise NotReplayable(
            f"event {found.event_number} at {found.now_ms} ms: this version does not do what the journal records; "
            "replay it without --what-if to see more"
        )
    core = journal.opening.rebuilt()
    entries = [Entry(line.now_ms, line.event, core.handle(line.event, line.now_ms)) for line in journal.lines]
    recorded = RecordedSession(journal.opening, entries, journal.lacks)
    for entry in entries:
        recorded.records |= records_of(entry.commands)
    _read_texts(recorded)
    _read_replies(recorded)
    _read_tools(recorded)
    _read_playback(recorded)
    return recorded


def of_reply(event: e.Event) -> Key | None:
    """Return the reply that an event belongs to."""
    turn, revision = getattr(event, "turn", None), getattr(event, "revision", None)
    return (turn, revision) if isinstance(turn, int) and isinstance(revision, int) else None


def question_of(command: c.StartReply) -> str:
    """Return the latest user text or item for the reply."""
    for item in reversed(command.items):
        if isinstance(item, Message) and item.role == "user":
            return item.text()
        if isinstance(item, FunctionOutput):
            return item.output
    return ""


def with_key(event: e.Event, key: Key) -> e.Event:
    """Return the same event for another reply."""
    more: dict[str, Any] = {"turn": key[0], "revision": key[1]}
    return replace(event, **more)


def _commands(entries: Sequence[Entry], kind: type) -> Iterator[tuple[int, int, Any]]:
    """Yield (number of the event, time, command) for all commands of a kind."""
    for number, entry in enumerate(entries):
        yield from ((number, entry.now_ms, command) for command in entry.commands if type(command) is kind)


def _begun_as(entries: Sequence[Entry]) -> dict[Key, Key]:
    """Return for each reply that went on after a sound as another revision, the revision as which it began."""
    found: dict[Key, Key] = {}
    for _, _, command in _commands(entries, c.ContinueReply):
        before = (command.turn, command.revision)
        found[command.turn, command.next_revision] = found.get(before, before)
    return found


def _read_texts(recorded: RecordedSession) -> None:
    began: dict[int, int] = {}
    flushed: dict[tuple[int, int], tuple[int, int]] = {}
    pause = 0
    for number, entry in enumerate(recorded.entries):
        event = entry.event
        if isinstance(event, e.SpeechPaused | e.CommitRequested):
            pause = number
        if isinstance(event, e.TranscriptFinished) and (event.utterance, event.flush) in flushed:
            started_ms, at_pause = flushed.pop((event.utterance, event.flush))
            known = (event.text, event.language, event.provider, entry.now_ms - started_ms)
            recorded.texts.append(RecordedText(event.utterance, began.get(event.utterance, 0), at_pause, *known))
        for command in entry.commands:
            if isinstance(command, c.BeginUtterance):
                began[command.utterance] = number
            elif isinstance(command, c.FlushTranscript):
                flushed[command.utterance, command.flush] = entry.now_ms, pause


def _read_replies(recorded: RecordedSession) -> None:
    running: dict[Key, RecordedReply] = {}
    opened: dict[Key, int] = {}
    begun_as = _begun_as(recorded.entries)
    for entry in recorded.entries:
        key = of_reply(entry.event)
        key = key and begun_as.get(key, key)
        if key in running:
            reply, after_ms = running[key], entry.now_ms - running[key].started_ms
            if not isinstance(entry.event, ANSWERS):
                reply.events.append((after_ms, entry.event))
            elif isinstance(entry.event, e.OutputSent) and entry.event.duration_ms and reply.sent_after_ms is None:
                ready_ms = max(reply.started_ms + (reply.reached_ms(e.SoundArrived) or 0), opened.get(key, 0))
                reply.sent_after_ms = max(0, entry.now_ms - ready_ms)
        for command in entry.commands:
            if isinstance(command, c.StartReply):
                request = (command.item_id, entry.now_ms, question_of(command), command.reply.audible, command.words)
                new = RecordedReply((command.turn, command.revision), *request)
                running[new.key] = new
                recorded.replies.append(new)
            elif isinstance(command, c.OpenGate):
                opened[command.turn, command.revision] = entry.now_ms


def _read_tools(recorded: RecordedSession) -> None:
    opened = {
        command.response_id: (command.turn, command.revision)
        for kind in (c.OpenGate, c.ContinueReply)
        for _, _, command in _commands(recorded.entries, kind)
    }
    begun_as = _begun_as(recorded.entries)
    opened = {response_id: begun_as.get(key, key) for response_id, key in opened.items()}
    calls = {reply.key: reply.calls for reply in recorded.replies}
    ended_ms: dict[str, int] = {}
    for entry in recorded.entries:
        created = entry.event.item if isinstance(entry.event, e.ItemCreateRequested) else None
        if isinstance(created, FunctionOutput) and created.call_id in ended_ms:
            recorded.tool_delays_ms[created.call_id] = entry.now_ms - ended_ms[created.call_id]
        for command in entry.commands:
            if isinstance(command, c.Notify) and isinstance(command.what, a.ResponseEnded):
                for call_id in calls.get(opened.get(command.what.response_id, (0, 0)), ()):
                    ended_ms[call_id] = entry.now_ms


def _read_playback(recorded: RecordedSession) -> None:
    replies, delays_ms = {reply.key: reply for reply in recorded.replies}, []
    begun_as = _begun_as(recorded.entries)
    for record in recorded.records.values():
        key = (record.turn, record.revision)
        marks, reply = dict(record.marks), replies.get(begun_as.get(key, key))
        if (
            reply is not None
            and record.latency_source == "reported"
            and {attribution.FIRST_SENT, attribution.FIRST_AUDIBLE} <= marks.keys()
        ):
            sent_ms = marks.get(attribution.EARLIER_AUDIO_ENDED, marks[attribution.FIRST_SENT])
            reply.played_after_ms = marks[attribution.FIRST_AUDIBLE] - sent_ms
            delays_ms.append(reply.played_after_ms)
    recorded.played_after_ms = median_low(delays_ms) if delays_ms else None
