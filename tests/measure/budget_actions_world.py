"""A user, an LLM and a TTS in virtual time, around the product's own core."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from voicepipe.testing.transitions import illegal_moves
from voicepipe.turn import commands as c
from voicepipe.turn import events as e
from voicepipe.turn.clauses import ClauseSplitter
from voicepipe.turn.core import Core
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.settings import CoreSettings, TurnSettings
from voicepipe.turn.states import AgentState, UserState

QUESTION: Final = "What time is it in the capital?"
QUESTION_MS: Final = 1_500
SILENCE_MS: Final = 500
NOTICE_MS: Final = 80
"""Time from the last voiced sample to the detection of the pause."""

FRAME_MS: Final = 20

TRANSCRIBED_MS: Final = 100
"""From the pause to its text."""

CHAR_MS: Final = 60
"""Length of speech per character of text."""

SEND_MS: Final = 3
FILLER_MS: Final = 700
BETWEEN_MS: Final = 1_500
"""From the end of an answer to the next utterance."""


@dataclass(frozen=True, slots=True)
class Draw:
    """The random values of one turn."""

    tokens: tuple[str, ...]
    first_ms: tuple[float, ...]
    """Of each model: to its first token, or to its failure; infinite: it hangs."""

    fails: tuple[bool, ...]
    gap_ms: float
    voice_ms: float
    """From a clause to its first audio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The enabled actions."""

    name: str
    core: CoreSettings
    hedge_after_ms: float | None = None
    """The second model gets the request this long after the first, if that is silent."""

    falls_back: bool = False
    """The second model gets the request when the first fails, or has been silent for `timeout_ms`."""

    timeout_ms: float = 2_000.0


@dataclass(slots=True)
class _Reply:
    draw: Draw
    words: str
    splitter: ClauseSplitter = field(default_factory=ClauseSplitter)
    n_clauses: int = 0
    sounds_ms: list[int] = field(default_factory=list)
    opened: bool = False
    voice_free_ms: int = 0
    """When the TTS will have spoken all of its text."""

    complete: bool = False


class Stage:
    """One session. `play` returns the records of its turns."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._core = Core("bench", TurnSettings(silence_ms=SILENCE_MS), setup.core)
        self._now_ms, self._n = 0, count()
        self._due: list[tuple[int, int, e.Event]] = []
        self._wake_ms: int | None = None
        self._replies: dict[tuple[int, int], _Reply] = {}
        self._utterance = self._flush = 0
        self.records: dict[str, TurnRecord] = {}
        self.illegal_moves: list[str] = []
        """The core's moves that the transition table does not name; expected empty."""

        self.n_calls = 0
        """Number of requests to models."""

    def play(self, draws: Sequence[Draw]) -> None:
        """Speak once for each draw, and wait until the answer was played."""
        budget_actions = self._setup.core.budget_actions
        self._post(e.PhrasesReady(frozenset((budget_actions.filler, budget_actions.apology))))
        for draw in draws:
            self._draw = draw
            self._speak_question()
            while self._busy() or self._due:
                self._go_on()
            self._now_ms += BETWEEN_MS

    # --- the user ---------------------------------------------------------------------------

    def _speak_question(self) -> None:
        begin_ms = self._now_ms
        self._post(e.SpeechStarted(begin_ms, begin_ms))
        last_ms = begin_ms + QUESTION_MS
        self._later(last_ms + NOTICE_MS, e.SpeechPaused(last_ms, last_ms))
        for silence_ms in range(NOTICE_MS + FRAME_MS, SILENCE_MS + 1, FRAME_MS):
            self._later(last_ms + silence_ms, e.SilenceGrew(silence_ms))

    def _busy(self) -> bool:
        return self._core.user.state is not UserState.QUIET or self._core.agent.state is not AgentState.IDLE

    # --- time ---------------------------------------------------------------------------------

    def _later(self, at_ms: float, event: e.Event) -> None:
        heapq.heappush(self._due, (round(at_ms), next(self._n), event))

    def _go_on(self) -> None:
        next_ms = self._due[0][0] if self._due else None
        if self._wake_ms is not None and (next_ms is None or self._wake_ms <= next_ms):
            self._now_ms, self._wake_ms = max(self._now_ms, self._wake_ms), None
            self._post(e.TimePassed())
        elif next_ms is not None:
            self._now_ms, _, event = heapq.heappop(self._due)
            self._happen(event)

    def _post(self, event: e.Event) -> None:
        commands = self._core.handle(event, self._now_ms)
        self.illegal_moves += illegal_moves(self._core.transitions.moves)
        for command in commands:
            self._do(command)

    def _do(self, command: c.Command) -> None:
        match command:
            case c.BeginUtterance(utterance):
                self._utterance = utterance
            case c.FlushTranscript(utterance, flush):
                text = e.TranscriptFinished(utterance, flush, QUESTION, provider="bench/stt")
                self._later(self._now_ms + TRANSCRIBED_MS, text)
            case c.WakeAt(at_ms):
                self._wake_ms = at_ms
            case c.StoreRecord(record):
                self.records[record.id] = record
            case c.StartReply():
                self._start(command)
            case c.StopReply(turn, revision):
                self._replies.pop((turn, revision), None)
            case c.OpenGate(turn, revision):
                self._open((turn, revision))
            case c.ShortenClause(turn, revision):
                self._hand_over((turn, revision), self._replies[turn, revision].splitter.close_early())
            case c.SayFiller(turn, revision):
                self._later(self._now_ms + SEND_MS, e.FillerSent(turn, revision, FILLER_MS))
            case _:
                pass

    # --- the LLM and the TTS ------------------------------------------------------------------

    def _start(self, command: c.StartReply) -> None:
        key = (command.turn, command.revision)
        self._replies[key] = reply = _Reply(self._draw, command.words)
        self._later(self._now_ms, e.ModelRequested(*key, "bench/llm"))
        if command.words:
            reply.draw = Draw((command.words,), (0.0,), (False,), 0.0, 0.0)
            self._speak_from(key, reply.draw, self._now_ms)
            return
        first_ms, joined_ms = self._first_token_ms()
        self.n_calls += 1
        if joined_ms is not None:
            self.n_calls += 1
            joined = e.ModelJoined(*key, "bench/other", "hedge" if self._setup.hedge_after_ms else "replacement")
            self._later(self._now_ms + joined_ms, joined)
        if first_ms is None:
            self._later(self._now_ms + self._draw.first_ms[0], e.StageFailed(*key, "llm", "bench/llm", "refused"))
        elif first_ms < float("inf"):
            self._speak_from(key, self._draw, self._now_ms + first_ms)

    def _first_token_ms(self) -> tuple[float | None, float | None]:
        """Return (start of the answer, None: it fails; time of the second request, None: never)."""
        first_ms, fails, setup = self._draw.first_ms[0], self._draw.fails[0], self._setup
        own_ms = None if fails else first_ms
        silent_until_ms = first_ms
        after_ms = float("inf")
        if setup.hedge_after_ms is not None:
            after_ms = setup.hedge_after_ms
        if setup.falls_back:
            after_ms = min(after_ms, silent_until_ms if fails else setup.timeout_ms)
        if (own_ms is not None and own_ms <= after_ms) or after_ms == float("inf") or self._draw.fails[1]:
            return own_ms, None
        if fails and silent_until_ms < after_ms:
            return None, None  # it failed before the second request
        other_ms = after_ms + self._draw.first_ms[1]
        return (other_ms if own_ms is None else min(own_ms, other_ms)), after_ms

    def _speak_from(self, key: tuple[int, int], draw: Draw, at_ms: float) -> None:
        for i, token in enumerate(draw.tokens):
            self._later(at_ms + i * draw.gap_ms, e.ModelTextReceived(*key, token))
        self._later(at_ms + len(draw.tokens) * draw.gap_ms, e.ModelFinished(*key, "stop"))

    def _happen(self, event: e.Event) -> None:
        """Post an event at its time; events of a stopped reply are dropped."""
        match event:
            case e.ModelTextReceived(turn, revision, text) if reply := self._replies.get((turn, revision)):
                self._post(event)
                self._hand_over((turn, revision), reply.splitter.push(text))
            case e.ModelFinished(turn, revision) if reply := self._replies.get((turn, revision)):
                self._hand_over((turn, revision), reply.splitter.flush())
                self._post(event)
                reply.complete = True
                self._later(max(self._now_ms, reply.voice_free_ms), e.SynthesisFinished(turn, revision))
            case e.SoundArrived(turn, revision) if (turn, revision) in self._replies:
                self._post(event)
                self._send((turn, revision), event.duration_ms)
            case e.ModelTextReceived() | e.ModelFinished() | e.SoundArrived():
                pass
            case _:
                self._post(event)

    def _hand_over(self, key: tuple[int, int], clauses: list[str]) -> None:
        reply = self._replies[key]
        for clause in clauses:
            cut = reply.splitter.cut_short and not reply.n_clauses
            self._post(e.ClauseHandedOver(*key, reply.n_clauses, clause, "bench/tts", cut))
            reply.voice_free_ms = round(max(self._now_ms, reply.voice_free_ms) + reply.draw.voice_ms)
            self._later(reply.voice_free_ms, e.SoundArrived(*key, reply.n_clauses, len(clause) * CHAR_MS, 20))
            reply.n_clauses += 1

    def _open(self, key: tuple[int, int]) -> None:
        reply = self._replies[key]
        reply.opened = True
        held, reply.sounds_ms = reply.sounds_ms, []
        for duration_ms in held:
            self._later(self._now_ms + SEND_MS, e.OutputSent(*key, duration_ms))

    def _send(self, key: tuple[int, int], duration_ms: int) -> None:
        reply = self._replies[key]
        if reply.opened:
            self._later(self._now_ms + SEND_MS, e.OutputSent(*key, duration_ms))
        else:
            reply.sounds_ms.append(duration_ms)
