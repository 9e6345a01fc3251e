"""What-if tells from calls that ended their turns with `adaptive` what `soft` makes of their turn latency."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Final

import pytest

from voicepipe.bench.counterfactual.changes import Changes
from voicepipe.bench.counterfactual.recorded_session import read_session
from voicepipe.bench.counterfactual.report import what_if
from voicepipe.testing.core_driver import CoreDriver
from voicepipe.testing.journal_check import JournalCheck
from voicepipe.turn import commands as c
from voicepipe.turn import events as e
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.settings import CoreSettings, TurnSettings

AGREED_MS: Final = 30
NOTICED_MS: Final = 100
ANSWER: Final = "Of course. That will take a few minutes."
ANSWER_MS: Final = 2_400
N_CALLS: Final = 5

SAID: Final = (
    ("Two coffees, please.",),
    ("What time?",),
    ("Okay.",),
    ("Can you tell me", "when the next bus leaves for the station?"),
    ("I need a table for", "four people tonight."),
    ("Thank you very much.", "Then make it seven o'clock."),
    ("Yes.",),
    ("That's fine.",),
    ("My name is Miller", "and I live in Rome."),
    ("Thank you so much.",),
)
"""The words of each turn, up to each of its pauses."""

PAUSE_MS: Final = 600
"""An inner pause: shorter than the wait of `adaptive` after any of these words, longer than that of `soft`."""


@dataclass(frozen=True, slots=True)
class Delays:
    """How long the stages take in one turn, in ms."""

    stt_ms: int
    llm_ms: int
    tts_ms: int


class Call:
    """A call in virtual time: the user speaks at fixed times, and providers answer what the core asks of them."""

    def __init__(self, strategy: str, seed: int) -> None:
        self.driver = CoreDriver(
            TurnSettings(transcribe=True, silence_ms=720, end_of_turn=strategy), CoreSettings(speculate=True)
        )
        chance = random.Random(seed)
        self._delays = [
            Delays(chance.randint(50, 120), chance.randint(100, 200), chance.randint(50, 100)) for _ in SAID
        ]
        self._queue: list[tuple[int, int, Callable[[int], None]]] = []
        self._number = count()
        self._turn = 0
        self._words: list[str] = []
        """The words of the current utterance."""

        self._paused_ms: int | None = None
        self._arrived_ms: dict[tuple[int, int], int] = {}
        """A reply that was not stopped -> its audio that was not sent."""

        self._open: set[tuple[int, int]] = set()

    def run(self) -> list[TurnRecord]:
        """Hold the call; return the records of its turns."""
        at_ms = 1_000
        for turn, texts in enumerate(SAID):
            for n, text in enumerate(texts):
                at_ms = self._say(turn, text, at_ms, for_ms=900) + (PAUSE_MS if n + 1 < len(texts) else 6_000)
        self._at(at_ms, lambda now_ms: self._post(now_ms, e.UserLeft("the user left")))
        while self._queue:
            now_ms, _, do = heappop(self._queue)
            do(now_ms)
        assert self.driver.illegal_moves == []
        return list(self.driver.records.values())

    def _at(self, at_ms: int, do: Callable[[int], None]) -> None:
        heappush(self._queue, (at_ms, next(self._number), do))

    def _post(self, now_ms: int, *events: e.Event) -> None:
        for command in self.driver.at(now_ms, *events):
            self._see(command, now_ms)
        wakes_ms = self.driver.wakes_at_ms
        if wakes_ms is not None:
            self._at(max(now_ms, wakes_ms), self._wake)

    def _wake(self, now_ms: int) -> None:
        wakes_ms = self.driver.wakes_at_ms
        if wakes_ms is not None and wakes_ms <= now_ms:
            self._post(now_ms)

    # --- the user -----------------------------------------------------------------------------

    def _say(self, turn: int, text: str, from_ms: int, *, for_ms: int) -> int:
        """Speak; return when that ends."""
        ended_ms = from_ms + for_ms

        def begin(now_ms: int) -> None:
            self._turn, self._paused_ms = turn, None
            self._post(now_ms, e.SpeechStarted(from_ms, from_ms))
            self._words.append(text)

        def pause(now_ms: int) -> None:
            self._paused_ms = ended_ms
            self._post(now_ms, e.SpeechPaused(ended_ms, ended_ms, noticed_ms=NOTICED_MS))
            self._at(now_ms + 20, lambda now_ms: self._be_silent(ended_ms, now_ms))

        self._at(from_ms + 80, begin)
        for voiced_ms in range(100, for_ms, 100):
            went_on = e.SpeechWentOn(voiced_ms, nonlexical=False)
            self._at(from_ms + 80 + voiced_ms, lambda now_ms, event=went_on: self._post(now_ms, event))  # type: ignore[misc]
        self._at(ended_ms + NOTICED_MS, pause)
        return ended_ms

    def _be_silent(self, ended_ms: int, now_ms: int) -> None:
        if self._paused_ms == ended_ms and self.driver.core.user.utterance is not None:
            self._post(now_ms, e.SilenceGrew(now_ms - ended_ms))
            self._at(now_ms + 20, lambda now_ms: self._be_silent(ended_ms, now_ms))

    # --- providers and client -----------------------------------------------------------------

    def _see(self, command: c.Command, now_ms: int) -> None:
        match command:
            case c.BeginUtterance():
                self._words = []
            case c.FlushTranscript(utterance, flush):
                text = e.TranscriptFinished(utterance, flush, " ".join(self._words), provider="fake/stt")
                self._at(now_ms + self._delays[self._turn].stt_ms, lambda now_ms: self._post(now_ms, text))
            case c.StartReply(turn, revision):
                self._reply((turn, revision), now_ms)
            case c.OpenGate(turn, revision):
                self._open.add((turn, revision))
                self._send((turn, revision), now_ms)
            case c.StopReply(turn, revision) | c.SuspendReply(turn, revision):
                self._arrived_ms.pop((turn, revision), None)
            case _:
                pass

    def _reply(self, key: tuple[int, int], now_ms: int) -> None:
        delays, self._arrived_ms[key] = self._delays[self._turn], 0
        text_ms = now_ms + delays.llm_ms
        steps: tuple[tuple[int, tuple[e.Event, ...]], ...] = (
            (now_ms + 2, (e.ModelRequested(*key, "fake/llm"),)),
            (text_ms, (e.ModelTextReceived(*key, ANSWER), e.ClauseHandedOver(*key, 0, ANSWER, "fake/tts"))),
            (text_ms + 5, (e.ModelFinished(*key, "stop"),)),
            (text_ms + delays.tts_ms, (e.SoundArrived(*key, 0, ANSWER_MS, 0), e.SynthesisFinished(*key))),
        )
        for at_ms, events in steps:
            self._at(at_ms, lambda now_ms, events=events: self._go_on(key, events, now_ms))  # type: ignore[misc]

    def _go_on(self, key: tuple[int, int], events: tuple[e.Event, ...], now_ms: int) -> None:
        if key not in self._arrived_ms:
            return
        self._arrived_ms[key] += sum(event.duration_ms for event in events if isinstance(event, e.SoundArrived))
        self._post(now_ms, *events)
        self._send(key, now_ms)

    def _send(self, key: tuple[int, int], now_ms: int) -> None:
        duration_ms = self._arrived_ms.get(key, 0)
        if duration_ms and key in self._open:
            self._arrived_ms[key] = 0
            self._post(now_ms, e.OutputSent(*key, duration_ms))


def latencies_ms(records: Iterable[TurnRecord]) -> list[int]:
    """Return the turn latency of each turn that was answered."""
    return [record.total_ms for record in records if record.outcome == "completed" and record.total_ms is not None]


@pytest.mark.parametrize("seed", range(N_CALLS))
def test_the_latency_of_soft_is_predicted_from_a_journal_of_adaptive(seed: int) -> None:
    """Within 30 ms of the same call with `soft` at the median, which is far less than before."""
    sessions = JournalCheck()
    with sessions.watching():
        before = latencies_ms(Call("adaptive", seed).run())
    known = read_session(next(sessions.journals()))
    soft = Call("soft", seed).run()
    would_be = [row.would_be for row in what_if(known, Changes({"end_of_turn": "soft"})).rows if row.would_be]
    after, predicted = latencies_ms(soft), latencies_ms(would_be)
    assert len(before) == len(after) == len(predicted) == len(SAID)
    assert abs(statistics.median(predicted) - statistics.median(after)) <= AGREED_MS
    assert statistics.median(before) - statistics.median(after) > 3 * AGREED_MS
    assert sum(record.resumed for record in soft) >= 1, "a user goes on over the answer"
    assert sum(record.resumed for record in would_be) >= 1


def test_nothing_changes_without_a_change() -> None:
    """The journal's own latencies, to the ms."""
    sessions = JournalCheck()
    with sessions.watching():
        before = latencies_ms(Call("adaptive", 0).run())
    answer = what_if(read_session(next(sessions.journals())), Changes())
    assert answer.off_by_ms == 0
    assert latencies_ms(row.would_be for row in answer.rows if row.would_be) == before
