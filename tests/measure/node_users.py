"""Callers that count for themselves what they hear, and the LLM and TTS that let them: every word of an answer has a
place, and its audio has a level of its own, so that a caller knows each word from the samples alone.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import websockets

from voicepipe import clock
from voicepipe.audio.files import read_sound
from voicepipe.audio.samples import Samples, first_audible
from voicepipe.client import RATE_HZ, Call, CallEnded, CallFailed, connect
from voicepipe.client import events as e
from voicepipe.testing.fakes.cues import LlmCue, TtsCue

WORDS: Final = (
    *("Amber", "bridge", "candle", "desert", "engine", "forest."),
    *("Garden", "harbour", "island", "jungle", "kettle", "ladder."),
    *("Marble", "needle", "orchard", "pencil", "quarry", "river."),
)
"""An answer, in three sentences."""

PLACE: Final = {word.lower().strip("."): place for place, word in enumerate(WORDS, 1)}
LEVEL: Final = 1_000
"""The samples of the word at place n are n times this."""

WORD_MS: Final = 160
BUDGET_MS: Final = 1_000
"""A turn whose first sound comes later is over budget, by the caller's clock."""

LATE_RESUME_MS: Final = 2_000
"""The goal of a resume: of one that takes longer the attempts are noted."""

PAUSE_MS: Final = 300
"""What a caller waits between the end of an answer and its next question."""

FRAME: Final = RATE_HZ // 50
QUESTION: Final = Path(__file__).parents[1] / "data" / "question.flac"

ANSWER_S: Final = 25.0
"""An answer that is not complete by then is lost. A client has 15 s to resume."""

CUT: Final = re.compile(r"cut off after these words, which the user has heard: '([^']*)'")


def answer_cue(received: Any) -> LlmCue:
    """Return the answer to a request: all words, or those behind the words that the user has heard."""
    question = received if isinstance(received, dict) else received.question
    system = " ".join(str(each["content"]) for each in question["messages"] if each["role"] == "system")
    cut = CUT.search(system)
    first = PLACE[cut.group(1).split()[-1].lower().strip(".")] if cut is not None else 0
    return LlmCue(tokens=tuple(f"{word} " for word in WORDS[first:]), ttft_ms=60, gap_ms=12)


def speech_cue(received: Any) -> TtsCue:
    """Return the audio of a clause: one level for each word. It comes five times as fast as it plays."""
    n_samples = RATE_HZ * WORD_MS // 1_000
    places = [PLACE[word.lower().strip(".,")] for word in str(received.question["input"]).split()]
    pcm = np.repeat(np.array(places, dtype="<i2") * LEVEL, n_samples).tobytes()
    return TtsCue(raw=pcm, ttfb_ms=30, chunk_bytes=2 * n_samples, gap_ms=WORD_MS // 5)


def history_faults(messages: list[dict[str, Any]]) -> list[str]:
    """Return what is wrong with the answers that an LLM reads: each but the latest must be there, each word once."""
    answers: list[list[str]] = []
    for message in messages:
        if message["role"] == "user":
            answers.append([])
        elif message["role"] == "assistant" and answers:
            answers[-1] += str(message["content"]).split()
    return [" ".join(answer) for answer in answers[:-1] if answer != list(WORDS)]


@dataclass(slots=True)
class Counts:
    """What all callers of a run have counted."""

    failures: int = 0
    """How often a node was killed or stopped."""

    questions: int = 0
    answers_lost: int = 0
    words_lost: int = 0
    words_doubled: int = 0
    words_misplaced: int = 0
    """Words that came behind a later one of their answer, or of the next answer."""

    sessions_lost: int = 0
    sessions_refused: int = 0
    """New calls that no node took; the caller tries again."""

    sessions_cut_at_start: int = 0
    """New calls whose node died before the client had a resume secret; the caller tries again."""

    history_faults: int = 0
    resumed: list[tuple[int, int]] = field(default_factory=list)
    """When a client saw its connection break, and when its session went on (monotonic ms)."""

    store_away: list[tuple[int, int]] = field(default_factory=list)
    """From when to when the store hung (monotonic ms)."""

    first_sound_ms: list[int] = field(default_factory=list)
    """From the user's last voiced sample (of one who writes: from the request) to the first sound of the answer. Of a
    question behind another one it is not known: its answer waits for the end of the first."""

    broken_turns_ms: list[int] = field(default_factory=list)
    """Those of them in which a connection broke meanwhile."""

    voice_ms: list[int] = field(default_factory=list)
    """From the break until the next sound of an answer that was not complete."""

    records: dict[str, int] = field(default_factory=dict)
    """Turns that Postgres has in the end, by outcome."""

    notes: list[str] = field(default_factory=list)
    """The first faults, for people."""

    @property
    def resumed_ms(self) -> list[int]:
        """Return the time of each resume."""
        return [end_ms - begin_ms for begin_ms, end_ms in self.resumed]

    @property
    def resumed_beyond_store_ms(self) -> list[int]:
        """Return the time of each resume without the part in which the store hung: no other node has the text then."""
        return [
            end - begin - sum(_common(begin, end, *away) for away in self.store_away) for begin, end in self.resumed
        ]

    def record(self, what: str) -> None:
        """Keep a fault to be printed."""
        if len(self.notes) < 40:
            self.notes.append(what)


def _common(begin: int, end: int, other_begin: int, other_end: int) -> int:
    """Return the length of what two spans have in common."""
    return max(0, min(end, other_end) - max(begin, other_begin))


class WordMeter:
    """The words in the audio of one answer: runs of one level."""

    def __init__(self) -> None:
        self._received: list[int] = []
        self._item = ""

    def take(self, item_id: str, samples: Samples) -> None:
        """Take more audio of an item."""
        levels = np.rint(samples / LEVEL).astype(int)
        for place in levels[np.flatnonzero(np.diff(levels, prepend=-1))]:
            is_same = bool(self._received) and self._received[-1] == int(place) and self._item == item_id
            if place > 0 and not is_same:
                self._received.append(int(place))
            self._item = item_id

    @property
    def received(self) -> list[int]:
        """Return the places of the words, as they were heard."""
        return self._received

    @property
    def n_complete(self) -> int:
        """Return how often the last word was heard."""
        return self._received.count(len(WORDS))


class User:
    """Asks question after question, in as many calls as that takes."""

    n_at_once = 1
    """Questions that it asks before it listens to an answer to its end."""

    def __init__(self, name: str, url: str, counts: Counts, stopped: asyncio.Event) -> None:
        self.name, self._url, self._counts, self._stopped = name, url, counts, stopped
        self._broke_ms: int | None = None
        self._events: asyncio.Queue[e.ServerEvent | None] = asyncio.Queue()  # bounded: the events of a few answers
        self._plays_until_ms = 0
        self._why = ""
        self._requested_ms: int | None = None
        """When the last voiced sample of the question was sent; None: not yet, or its answer has begun."""

        self._broke_since_request = False

    async def run(self) -> None:
        """Call until stopped."""
        while not self._stopped.is_set():
            has_begun = False
            try:
                async with connect(self._url) as call:
                    has_begun = True
                    await self._talk(call)
            except* CallEnded as ended:
                self._counts.sessions_lost += has_begun
                self._counts.sessions_cut_at_start += not has_begun
                what = "the session is lost" if has_begun else "the node died before the client had a resume secret"
                self._counts.record(f"{self.name}: {what}: {ended.exceptions}: {self._why}")
            except* (CallFailed, websockets.ConnectionClosed) as refused:
                self._counts.sessions_refused += 1
                self._counts.record(f"{self.name}: refused: {refused.exceptions}")
                await asyncio.sleep(PAUSE_MS / 1_000)

    async def _talk(self, call: Call) -> None:
        self._time_resumptions(call)
        self._events = asyncio.Queue()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work, name=self.name) for work in (self._read(call), self._microphone(call))]
            try:
                while not self._stopped.is_set() and await self._question(call):
                    await self._listen_on(PAUSE_MS)
            finally:
                for task in tasks:
                    task.cancel()

    async def _microphone(self, call: Call) -> None:
        """Send audio until cancelled: none, since this user writes."""

    async def _send_question(self, call: Call) -> None:
        """Ask the next question."""
        self._note_request()
        await call.write("What is there?")
        await call.respond()

    def _note_request(self) -> None:
        self._requested_ms, self._broke_since_request = clock.monotonic_ms(), False

    async def _read(self, call: Call) -> None:
        try:
            while True:
                self._events.put_nowait(await call.next_event())
        except CallEnded as ended:
            self._why = f"{ended!r} caused by {ended.__cause__!r} in {ended.__context__!r}"
        self._events.put_nowait(None)

    async def _question(self, call: Call) -> bool:
        """Ask, and count the answers; False: the session is lost."""
        counts, meter = self._counts, WordMeter()
        counts.questions += self.n_at_once
        trace: list[str] = []
        behind = self._sends_behind()
        try:
            async with asyncio.timeout(ANSWER_S * self.n_at_once):
                while meter.n_complete < self.n_at_once:
                    if behind and len(meter.received) >= behind[0]:
                        del behind[0]
                        await self._send_question(call)
                        self._requested_ms = self._requested_ms if len(behind) == self.n_at_once - 1 else None
                        continue
                    event = await self._events.get()
                    if event is None:
                        raise CallEnded(1006, "while an answer was due")
                    trace.append(_brief(event))
                    if isinstance(event, e.ReplyAudio):
                        self._take(meter, event)
        except TimeoutError:
            counts.answers_lost += self.n_at_once - meter.n_complete
            counts.record(f"{self.name}: no answer after {meter.received}: {_joined(trace)}")
        except CallEnded:
            counts.answers_lost += self.n_at_once - meter.n_complete
            raise
        else:
            await self._listen_on(self._plays_until_ms - clock.monotonic_ms(), meter)
            self._judge(meter.received, trace)
        return True

    def _sends_behind(self) -> list[int]:
        """Return for each question behind how many words of the answers it is asked."""
        return [0]

    def _take(self, meter: WordMeter, event: e.ReplyAudio) -> None:
        now_ms = clock.monotonic_ms()
        if self._broke_ms is not None:
            self._counts.voice_ms.append(now_ms - self._broke_ms)
            self._broke_ms = None
        if self._requested_ms is not None:
            self._counts.first_sound_ms.append(now_ms - self._requested_ms)
            if self._broke_since_request:
                self._counts.broken_turns_ms.append(now_ms - self._requested_ms)
            self._requested_ms = None
        samples = np.frombuffer(event.pcm, dtype="<i2")
        meter.take(event.item_id, samples)
        self._plays_until_ms = max(self._plays_until_ms, now_ms) + len(samples) * 1_000 // RATE_HZ

    async def _listen_on(self, for_ms: int, meter: WordMeter | None = None) -> None:
        """Listen on while the answer plays: nothing more may come."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0, for_ms) / 1_000):
                while True:
                    event = await self._events.get()
                    if event is None:
                        raise CallEnded(1006, "between two questions")
                    if isinstance(event, e.ReplyAudio):
                        if meter is not None:
                            self._take(meter, event)
                        else:
                            self._counts.words_doubled += 1
                            self._counts.record(f"{self.name}: a sound behind the answer")
        self._broke_ms = None

    def _judge(self, received: list[int], trace: list[str]) -> None:
        times, places = Counter(received), range(1, len(WORDS) + 1)
        lost = sum(max(0, self.n_at_once - times[place]) for place in places)
        doubled = sum(max(0, times[place] - self.n_at_once) for place in places)
        is_whole = not (lost or doubled)
        misplaced = sum(a != b for a, b in zip(received, [*places] * self.n_at_once, strict=True)) if is_whole else 0
        self._counts.words_lost += lost
        self._counts.words_doubled += doubled
        self._counts.words_misplaced += misplaced
        if lost or doubled or misplaced:
            what = f"lost {lost}, doubled {doubled}, misplaced {misplaced}"
            self._counts.record(f"{self.name}: {what} of {received}: {_joined(trace)}")

    def _time_resumptions(self, call: Call) -> None:
        connection = call._connection
        reconnect: Callable[..., Awaitable[None]] = connection._reconnect
        resume: Callable[[], Awaitable[None]] = connection._resume
        attempts: list[str] = []

        async def noted() -> None:
            begin_ms, why = clock.monotonic_ms(), "resumed"
            try:
                await resume()
            except BaseException as refused:
                why = repr(refused)
                raise
            finally:
                attempts.append(f"from {begin_ms % 100_000} ms {clock.monotonic_ms() - begin_ms} ms: {why}")

        async def timed(websocket: Any, closed: Any) -> None:
            begin_ms, before = clock.monotonic_ms(), connection._websocket
            self._broke_ms = begin_ms if before is websocket else self._broke_ms
            self._broke_since_request = True
            attempts.clear()
            await reconnect(websocket, closed)
            if before is websocket:
                end_ms = clock.monotonic_ms()
                self._counts.resumed.append((begin_ms, end_ms))
                if end_ms - begin_ms > LATE_RESUME_MS:
                    self._counts.record(f"{self.name}: resumed after {end_ms - begin_ms} ms: {'; '.join(attempts)}")

        connection._resume = noted  # type: ignore[method-assign]
        connection._reconnect = timed  # type: ignore[method-assign]


class HastyUser(User):
    """Asks its next question before the answer to the first one has ended: while it is made, or while it plays."""

    n_at_once = 2

    def __init__(self, name: str, url: str, counts: Counts, stopped: asyncio.Event) -> None:
        super().__init__(name, url, counts, stopped)
        self._chance = random.Random(name)

    def _sends_behind(self) -> list[int]:
        return [0, self._chance.randint(0, len(WORDS))]


class SpeakingUser(User):
    """Speaks its questions into a microphone that is always on. The nodes find their ends."""

    def __init__(self, name: str, url: str, counts: Counts, stopped: asyncio.Event) -> None:
        super().__init__(name, url, counts, stopped)
        self._unsent = np.zeros(0, dtype=np.int16)
        self._unvoiced = 0
        """Samples of the question behind its last voiced one."""

    async def _send_question(self, call: Call) -> None:
        self._unsent = read_sound(QUESTION, RATE_HZ)
        self._unvoiced = len(self._unsent) - last_audible(self._unsent)

    async def _microphone(self, call: Call) -> None:
        """Send 20 ms at a time, in real time; after a break what was recorded meanwhile, at once."""
        started_ms, n_sent = clock.monotonic_ms(), 0
        while True:
            is_voiced = len(self._unsent) > self._unvoiced
            frame, self._unsent = self._unsent[:FRAME], self._unsent[FRAME:]
            await call.send(np.concatenate((frame, np.zeros(FRAME - len(frame), dtype=np.int16))))
            if is_voiced and len(self._unsent) <= self._unvoiced:
                self._note_request()
            n_sent += FRAME
            await asyncio.sleep(max(0, started_ms + n_sent * 1_000 // RATE_HZ - clock.monotonic_ms()) / 1_000)


def last_audible(samples: Samples) -> int:
    """Return the index behind the last audible sample."""
    silent = first_audible(samples[::-1])
    return 0 if silent is None else len(samples) - silent


def _brief(event: e.ServerEvent) -> str:
    match event:
        case e.ReplyAudio(_, _, item_id):
            return f"sound {item_id}"
        case e.ReplyStarted(response_id):
            return f"+{response_id}"
        case e.ReplyEnded(response_id, status, why):
            return f"-{response_id} {status} {why}".rstrip()
        case e.OtherEvent(kind):
            return kind
        case _:
            return str(event)[:90]


def _joined(trace: list[str]) -> str:
    once = [each for place, each in enumerate(trace) if not place or each != trace[place - 1]]
    return " | ".join(once)[-1500:]
