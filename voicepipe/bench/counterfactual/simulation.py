"""Simulate a recorded session again: the user acts as recorded, and providers answer with the recorded delays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final

from voicepipe.bench.counterfactual.changes import NO_CHANGES, Changes
from voicepipe.bench.counterfactual.recorded_session import (
    ANSWERS,
    Key,
    RecordedReply,
    RecordedSession,
    of_reply,
    question_of,
    with_key,
)
from voicepipe.telemetry.journal.replay import records_of
from voicepipe.turn import commands as c
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.conversation import FunctionOutput
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.states import Move
from voicepipe.values import replace

SILENCE_STEP_MS: Final = 20
REPORT_MS: Final = 100
"""Interval of the VAD's reports of a silence, or of speech over the agent's."""

MAX_SILENCE_MS: Final = 20_000
FILLER_CHAR_MS: Final = 60
"""Assumed speech rate, about 15 characters a second, for phrases without a recorded length."""

_STAGES: Final = (e.ModelRequested, e.ModelTextReceived, e.ClauseHandedOver, e.SoundArrived)


@dataclass(slots=True)
class Simulated:
    """The result of a simulation."""

    records: dict[str, TurnRecord] = field(default_factory=dict)
    estimated: set[Key] = field(default_factory=set)
    """Replies that use the times of another one, at least in part."""

    moves: list[Move] = field(default_factory=list)
    """The moves of both state machines, in order."""


def simulate(recorded: RecordedSession, changes: Changes = NO_CHANGES) -> Simulated:
    """Simulate the session again with other settings."""
    return _Simulation(recorded, changes).run()


@dataclass(slots=True)
class _Running:
    """One reply in progress in the simulation."""

    command: c.StartReply
    source: RecordedReply
    open_ms: int | None = None
    unsent_ms: int = 0
    audible_at_ms: int | None = None
    arrived_ms: int = 0
    first_sent_ms: int | None = None
    n_suspended: int = 0
    """How often it was suspended: audio that was queued before that is never sent."""


class _Simulation:
    """A discrete-event simulation. Events with a cause wait for their cause."""

    def __init__(self, recorded: RecordedSession, changes: Changes) -> None:
        self._recorded, self._changes = recorded, changes
        self._core = changes.of_opening(recorded.opening).rebuilt()
        self._done = Simulated()
        self._queue: list[tuple[int, int, Callable[[int], None]]] = []
        self._number = count()
        self._now_ms = 0
        self._running: dict[Key, _Running] = {}
        self._continued: dict[Key, Key] = {}
        """A reply -> the revision as which it went on after a sound."""

        self._sources: dict[str, _Running] = {}
        """By response ID."""

        self._utterance = self._recorded_utterance = 0
        self._utterances: dict[int, int] = {}
        """Recorded ID -> simulated ID."""

        self._began: dict[int, int] = {}
        """Simulated utterance -> the number of the event that began it."""

        self._place = self._pause = 0
        self._in_utterance = self._silent = False
        self._wake = 0
        self._items: dict[str, str] = {}
        self._responses: dict[str, str] = {}
        self._scale_ms = 0
        """Lag of the user's audio behind the session's clock."""

        self._waiting: dict[str, list[tuple[int, e.Event]]] = {}
        """Call ID -> (ms after it, event): the client's events after a function call."""

    def run(self) -> Simulated:
        """Simulate to the end of the recording, and until every turn is over."""
        if filler := self._core.context.core.budget_actions.filler:
            self._at(0, lambda now_ms: self._post(e.PhrasesReady(frozenset((filler,))), now_ms))
        waits, waits_from_ms = "", 0
        for number, entry in enumerate(self._recorded.entries):
            event = entry.event
            if isinstance(event, ANSWERS) or of_reply(event) is not None or _answers_flush(event):
                continue
            call_id = _call_of(event)
            if call_id in self._recorded.tool_delays_ms:
                waits, waits_from_ms = call_id, entry.now_ms
            elif not isinstance(event, e.ReplyRequested):
                waits = ""
            if waits:
                delay_ms = self._recorded.tool_delays_ms[waits] + entry.now_ms - waits_from_ms
                self._waiting.setdefault(waits, []).append((delay_ms, event))
                waits = "" if isinstance(event, e.ReplyRequested) else waits
            else:
                self._at(entry.now_ms, lambda now_ms, n=number: self._post_recorded(n, now_ms))  # type: ignore[misc]
        while self._queue:
            at_ms, _, do = heappop(self._queue)
            self._now_ms = max(self._now_ms, at_ms)
            do(self._now_ms)
        return self._done

    def _at(self, at_ms: int, do: Callable[[int], None]) -> None:
        heappush(self._queue, (at_ms, next(self._number), do))

    def _post(self, event: e.Event, now_ms: int) -> None:
        commands = self._core.handle(event, now_ms)
        self._done.records |= records_of(commands)
        self._done.moves += self._core.transitions.moves
        for command in commands:
            self._execute(command, now_ms)

    # --- events without a cause ---------------------------------------------------------------

    def _post_recorded(self, number: int, now_ms: int) -> None:
        """Post the event of that number at its recorded time."""
        entry = self._recorded.entries[number]
        event, self._place = entry.event, number
        for command in entry.commands:
            if isinstance(command, c.BeginUtterance):
                self._recorded_utterance = command.utterance
        match event:
            case e.SpeechStarted():
                self._silent = False
            case e.SpeechPaused():
                self._pause, self._silent = number, True
                self._scale_ms = event.last_voiced_ms - event.audio_end_ms
                self._watch_silence(number, event.last_voiced_ms, now_ms)
            case e.CommitRequested():
                self._pause = number
            case e.SilenceGrew() if not self._silent:
                return
            case _:
                pass
        self._post(self._translated(event), now_ms)
        self._utterances[self._recorded_utterance] = self._utterance

    def _translated(self, event: e.Event) -> e.Event:
        """Return the event with simulated IDs."""
        match event:
            case e.SettingsChanged(settings):
                return e.SettingsChanged(self._changes.of_turns(settings))
            case e.ItemTruncateRequested() | e.ItemDeleteRequested() | e.ItemRetrieveRequested():
                return replace(event, item_id=self._items.get(event.item_id, event.item_id))
            case e.ItemCreateRequested(_, _, str(after)):
                return replace(event, after=self._items.get(after, after))
            case e.CancelRequested(_, str(response_id)):
                return replace(event, response_id=self._responses.get(response_id, response_id))
            case e.PhrasesReady(texts):
                filler = self._core.context.core.budget_actions.filler
                return e.PhrasesReady(texts | {filler} if filler else texts)
        utterance = getattr(event, "utterance", None)
        if isinstance(utterance, int):
            more: dict[str, Any] = {"utterance": self._utterances.get(utterance, utterance)}
            return replace(event, **more)
        return event

    def _watch_silence(self, number: int, from_ms: int, now_ms: int) -> None:
        """Report a pause beyond the recording, whose VAD stopped at the end of the turn."""

        def grow(at_ms: int) -> None:
            if self._pause == number and self._silent and self._in_utterance:
                self._post(e.SilenceGrew(at_ms - from_ms), at_ms)
                if at_ms - from_ms < MAX_SILENCE_MS:
                    self._at(at_ms + SILENCE_STEP_MS, grow)

        self._at(max(now_ms, self._last_reported_ms(number)) + SILENCE_STEP_MS, grow)

    def _last_reported_ms(self, number: int) -> int:
        """Return the time of the last recorded report of that pause."""
        last_ms = self._recorded.entries[number].now_ms
        for entry in self._recorded.entries[number + 1 :]:
            if isinstance(entry.event, e.SpeechStarted | e.SpeechPaused):
                break
            if isinstance(entry.event, e.SilenceGrew):
                last_ms = entry.now_ms
        return last_ms

    # --- effects of commands ------------------------------------------------------------------

    def _execute(self, command: c.Command, now_ms: int) -> None:
        match command:
            case c.BeginUtterance(utterance):
                self._utterance, self._in_utterance = utterance, True
                self._began[utterance] = self._place
            case c.EndUtterance() | c.DropUtterance() | c.DropAudio():
                self._in_utterance = False
            case c.FlushTranscript(utterance, flush):
                self._transcribe(utterance, flush, now_ms)
            case c.CommitSilence():
                self._at(now_ms, lambda at_ms: self._post(e.SilenceCommitted(at_ms - self._scale_ms), at_ms))
            case c.Duck():
                self._follow_voice(now_ms)
            case c.StartReply():
                self._reply(command, now_ms)
            case c.StopReply(turn, revision):
                self._running.pop((turn, revision), None)
            case c.OpenGate(turn, revision, response_id):
                self._open((turn, revision), response_id, now_ms)
            case c.SuspendReply(turn, revision):
                self._suspend((turn, revision))
            case c.ContinueReply():
                self._resume(command, now_ms)
            case c.SayFiller():
                self._fill(command, now_ms)
            case c.WakeAt(at_ms):
                self._wake = wake = self._wake + 1
                self._at(at_ms, lambda at_ms: self._post(e.TimePassed(), at_ms) if self._wake == wake else None)
            case c.Notify(a.ResponseEnded(response_id)):
                self._call(response_id, now_ms)
            case _:
                pass

    def _follow_voice(self, now_ms: int) -> None:
        """Report the length of speech that the recorded VAD was not watching."""
        pause_ms = None
        for entry in self._recorded.entries[self._place + 1 :]:
            if isinstance(entry.event, e.SpeechWentOn):
                return
            if isinstance(entry.event, e.SpeechPaused):
                pause_ms = entry.now_ms
                break
        for voiced_ms in range(REPORT_MS, (pause_ms or now_ms) - now_ms, REPORT_MS):
            went_on = e.SpeechWentOn(voiced_ms)
            self._at(now_ms + voiced_ms, lambda at_ms, went_on=went_on: self._post(went_on, at_ms))  # type: ignore[misc]

    def _transcribe(self, utterance: int, flush: int, now_ms: int) -> None:
        began, pause = self._began[utterance], self._pause
        known = [text for text in self._recorded.texts if text.pause <= pause]
        pieces: list[str] = []
        for recorded_id in dict.fromkeys(text.utterance for text in known):
            texts = [text for text in known if text.utterance == recorded_id]
            if texts[-1].pause >= began:
                pieces.append(_rest(texts[-1].text, [text.text for text in texts if text.pause < began]))
        at_pause = [text for text in self._recorded.texts if text.pause == pause]
        if not at_pause and not pieces:
            return  # no recorded text, so none here
        after_ms = at_pause[0].after_ms if at_pause else self._recorded.text_after_ms
        source = (at_pause or known)[-1]
        text = " ".join(piece for piece in pieces if piece)
        event = e.TranscriptFinished(utterance, flush, text, source.language, source.provider)
        self._at(now_ms + after_ms, lambda at_ms: self._post(event, at_ms))

    # --- replies ------------------------------------------------------------------------------

    def _reply(self, command: c.StartReply, now_ms: int) -> None:
        key = (command.turn, command.revision)
        source = self._source(command, now_ms)
        if source is None:
            return  # no recorded answer: the core's deadlines apply
        self._running[key] = running = _Running(command, source)
        self._items[source.item_id] = command.item_id
        for after_ms, event in self._timeline(running):
            self._at(now_ms + after_ms, lambda at_ms, event=event: self._go_on(key, event, at_ms))  # type: ignore[misc]

    def _source(self, command: c.StartReply, now_ms: int) -> RecordedReply | None:
        """Return the recorded reply to the same request: the most complete one, then the nearest."""
        question, audible = question_of(command), command.reply.audible
        same = [
            each
            for each in self._recorded.replies
            if (each.question, each.audible, each.words) == (question, audible, command.words)
        ]
        if same:
            return min(same, key=lambda each: (not each.whole, abs(each.started_ms - now_ms)))
        self._done.estimated.add((command.turn, command.revision))
        return self._recorded.usual_reply

    def _timeline(self, running: _Running) -> list[tuple[int, e.Event]]:
        """Return the reply's events; one that was cut off in the recording continues as the session's usual one."""
        source, usual = running.source, self._recorded.usual_reply
        if source.whole or usual is None or not source.audible:
            return source.events
        self._done.estimated.add((running.command.turn, running.command.revision))
        stages = [kind for kind in _STAGES if source.reached_ms(kind) is not None]
        reached_ms = source.reached_ms(stages[-1]) if stages else 0
        usual_ms = usual.reached_ms(stages[-1]) if stages else -1
        if reached_ms is None or usual_ms is None:
            return source.events
        later = [(ms - max(usual_ms, 0) + reached_ms, event) for ms, event in usual.events if ms > usual_ms]
        own = [(ms, event) for ms, event in source.events if ms <= reached_ms]
        return own + later

    def _suspend(self, key: Key) -> None:
        running = self._running.get(key)
        if running is not None:
            running.open_ms, running.n_suspended = None, running.n_suspended + 1

    def _resume(self, command: c.ContinueReply, now_ms: int) -> None:
        """Send a reply from the word at which it was suspended."""
        key, next_key = (command.turn, command.revision), (command.turn, command.next_revision)
        running = self._running.pop(key, None)
        if running is None:
            return
        self._running[next_key], self._continued[key] = running, next_key
        running.arrived_ms -= command.from_ms
        running.unsent_ms, running.open_ms, running.audible_at_ms = running.arrived_ms, now_ms, 0
        self._sources[command.response_id] = running
        self._send(next_key, running, now_ms, text=True)

    def _go_on(self, key: Key, event: e.Event, now_ms: int) -> None:
        while key in self._continued:
            key = self._continued[key]
        running = self._running.get(key)
        if running is None:
            return
        self._post(with_key(event, key), now_ms)
        if isinstance(event, e.SoundArrived):
            if event.audible_after_ms is not None and running.audible_at_ms is None:
                running.audible_at_ms = running.arrived_ms + event.audible_after_ms
            running.arrived_ms += event.duration_ms
            running.unsent_ms += event.duration_ms
        if running.open_ms is not None:
            self._send(key, running, now_ms, text=isinstance(event, e.ModelTextReceived))

    def _open(self, key: Key, response_id: str, now_ms: int) -> None:
        running = self._running.get(key)
        if running is None:
            return
        running.open_ms = now_ms
        self._sources[response_id] = running
        for entry in self._recorded.entries:
            for command in entry.commands:
                if isinstance(command, c.OpenGate) and (command.turn, command.revision) == running.source.key:
                    self._responses[command.response_id] = response_id
        self._send(key, running, now_ms, text=True)

    def _send(self, key: Key, running: _Running, now_ms: int, *, text: bool) -> None:
        """Send the available output to the client; its first audio is played as late as the client reported."""
        if not running.unsent_ms:
            if text and not running.command.reply.audible:
                self._at(now_ms, lambda at_ms: self._post(e.OutputSent(*key, 0), at_ms))
            return
        own_ms, running.unsent_ms = running.unsent_ms, 0
        first = running.first_sent_ms is None
        if running.first_sent_ms is None:
            usual_ms = running.source.sent_after_ms
            running.first_sent_ms = now_ms + (self._recorded.sent_after_ms if usual_ms is None else usual_ms)
        at_ms = max(now_ms, running.first_sent_ms)  # the outbox keeps the order
        n_suspended = running.n_suspended
        self._at(
            at_ms,
            lambda at_ms: (
                self._sent(key, running, own_ms, first, at_ms) if n_suspended == running.n_suspended else None
            ),
        )

    def _sent(self, key: Key, running: _Running, own_ms: int, first: bool, now_ms: int) -> None:
        if key not in self._running:
            return
        self._post(e.OutputSent(*key, own_ms), now_ms)
        own = running.source.played_after_ms
        played_ms = self._recorded.played_after_ms if own is None else own
        if first and played_ms is not None and running.audible_at_ms is not None:
            lasts_ms = min(REPORT_MS, max(0, own_ms - running.audible_at_ms))
            played = running.audible_at_ms + lasts_ms
            report = (running.command.item_id, played, 0, now_ms + played_ms + lasts_ms - self._scale_ms)
            at_ms = now_ms + played_ms + lasts_ms
            self._at(at_ms, lambda at_ms: self._post(e.PlaybackReported(*report), at_ms))

    def _fill(self, command: c.SayFiller, now_ms: int) -> None:
        key = (command.turn, command.revision)
        lasts_ms = len(command.words) * FILLER_CHAR_MS
        self._at(now_ms, lambda at_ms: self._post(e.FillerSent(*key, lasts_ms), at_ms))

    def _call(self, response_id: str, now_ms: int) -> None:
        """Send the client its calls, and schedule its answers."""
        running = self._sources.get(response_id)
        for call_id in running.source.calls if running is not None else ():
            for after_ms, event in self._waiting.pop(call_id, ()):
                translated = self._translated(event)
                self._at(now_ms + after_ms, lambda at_ms, translated=translated: self._post(translated, at_ms))  # type: ignore[misc]


def _answers_flush(event: e.Event) -> bool:
    return isinstance(event, e.TranscriptFinished) and event.flush > 0


def _call_of(event: e.Event) -> str:
    is_output = isinstance(event, e.ItemCreateRequested) and isinstance(event.item, FunctionOutput)
    return event.item.call_id if is_output else ""  # type: ignore[union-attr]


def _rest(text: str, before: list[str]) -> str:
    """Return the part of a text that was not known before."""
    known = before[-1] if before else ""
    return text[len(known) :].strip() if known and text.startswith(known) else text
