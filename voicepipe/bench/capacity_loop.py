"""Simulate one event loop with many sessions in virtual time: what they cost together, and how long users wait.

The event loop is the bottleneck of a server: one thread that handles all that is ready, one after the other, and waits.
So a message waits for those before it, and the cost of waking up is shared by more messages the more sessions there
are."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Final

import numpy as np
from numpy.typing import NDArray

from voicepipe.values import replace

FRAME_US: Final = 20_000
"""Interval of a microphone's frames."""

CHUNK_MS: Final = 200
"""Audio in a message of the TTS."""

COLD_US: Final = 2_000.0
"""After a sleep of this length a wake-up costs the most: a longer sleep costs no more. Of 1, 2 and 4 ms, 2 fitted the
measurements of two hours best, with 10 to 120 sessions.
"""

TTS_SPEED: Final = 20
"""The TTS sends audio as a multiple of real time."""

CLAUSE_TOKENS: Final = 7
"""Tokens up to the end of the first clause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """CPU time of the event loop's thread, in microseconds. `fitted` adapts them to a machine.

    Defaults: fitted to the load bench's 1.06 % of a core for each of 10 sessions, 0.68 % for each of 40 and 0.58 % for
    each of 100, see web/docs/capacity.md; the ratios of all but the first two and the last are those of a profile with
    60 sessions.
    """

    wake_us: float = 0.0
    """To wake up and look for what is ready. The fit leaves nothing for it beside `cold_us`."""

    cold_us: float = 173.7
    """More to wake up after a sleep of `COLD_US` or longer, and in proportion after a shorter one: the processor's
    caches hold other things by then, and its clock is slower."""

    voiced_us: float = 94.7
    """A frame while the user speaks: read, resampled, judged, sent to the STT."""

    silent_us: float = 43.6
    """A frame while the user is silent."""

    chunk_us: float = 509.3
    """A message of the TTS, 200 ms of audio, received and sent on."""

    token_us: float = 43.6
    turn_us: float = 5_818.0
    """The rest of a turn: its requests, events and record."""

    wait_share: float = 0.08
    """Time in which the thread has work and does not run, as a share of its CPU time: the kernel's network code, other
    threads that hold the interpreter's lock, other processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """The turns of users and agents, and the times of providers, in ms; drawn times vary around these."""

    speech_ms: int = 2_500
    answer_ms: int = 4_900
    pause_ms: int = 400
    """From the end of an answer to the user's next word."""

    silence_ms: int = 200
    """The silence that ends a turn."""

    stt_ms: int = 50
    llm_ms: int = 200
    token_ms: int = 10
    tts_ms: int = 80
    tokens: int = 30
    spread: float = 0.0
    """Standard deviation of the logarithm of the providers' times; 0: none varies."""

    failures: float = 0.0
    """Share of LLM requests that fail, after their time; a second one follows."""

    @property
    def minimum_ms(self) -> int:
        """Return the shortest possible turn latency, without spread or failures."""
        clause_ms = self.stt_ms + self.llm_ms + (CLAUSE_TOKENS - 1) * self.token_ms
        return max(self.silence_ms, clause_ms + self.tts_ms)

    @property
    def turn_ms(self) -> int:
        """Return about the length of a turn."""
        return self.speech_ms + self.minimum_ms + self.answer_ms + self.pause_ms


@dataclass(frozen=True, slots=True)
class LoopLoad:
    """The result for one number of sessions."""

    n_sessions: int
    cpu_share: float
    """Share of a core that the loop's thread used."""

    wakes_per_s: float
    """How often the loop woke up."""

    cold_wakes_per_s: float
    """The same, each one counted with the share of `COLD_US` that the loop had slept, up to 1."""

    latencies_ms: tuple[float, ...]
    """Turn latency of each turn, from the last voiced sample to the first audible sample leaving the server."""

    def latency_ms(self, share: float) -> float:
        """Return a quantile of the turn latency."""
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def simulate_loop(n_sessions: int, talk: Talk, costs: Costs, *, duration_s: float = 40.0, seed: int = 7) -> LoopLoad:
    """Simulate `n_sessions` that all talk for `duration_s`; the first turn's length is not counted."""
    return _EventLoop(n_sessions, talk, costs, Random(seed)).run(duration_s)


@dataclass(slots=True)
class _Session:
    number: int
    speaks_until_us: float = 0.0
    """When the last voiced frame is sent; 0 while the agent has the turn."""

    t0_us: float = 0.0
    gate_us: float = 0.0
    """When the turn was over; 0 before."""

    ready_us: float = 0.0
    """When the first audio had come; 0 before."""


class _EventLoop:
    def __init__(self, n_sessions: int, talk: Talk, costs: Costs, random: Random) -> None:
        self._talk, self._costs, self._random = talk, costs, random
        self._n_sessions = n_sessions
        self._due: list[tuple[float, int, str, _Session]] = []
        self._n_due = 0
        self._now_us = self._busy_us = 0.0
        self._latencies_ms: list[float] = []
        self._counted_from_us = talk.turn_ms * 1_000.0
        for number in range(n_sessions):
            session = _Session(number)
            first_us = random.random() * FRAME_US
            self._at(first_us, "frame", session)
            session.speaks_until_us = first_us + talk.turn_ms * 1_000 * number / n_sessions + talk.speech_ms * 1_000

    def run(self, duration_s: float) -> LoopLoad:
        end_us = self._counted_from_us + duration_s * 1e6
        began_us = busy_before_us = n_wakes = n_cold = 0.0
        while self._due and self._now_us < end_us:
            cold = min(1.0, max(0.0, self._due[0][0] - self._now_us) / COLD_US)
            self._now_us = max(self._now_us, self._due[0][0])
            if not began_us and self._now_us >= self._counted_from_us:
                began_us, busy_before_us, n_wakes, n_cold = self._now_us, self._busy_us, 0.0, 0.0
            self._iterate(cold)
            n_wakes, n_cold = n_wakes + 1, n_cold + cold
        measured_us = max(1.0, self._now_us - began_us)
        share = min(1.0, (self._busy_us - busy_before_us) / measured_us)
        wakes_per_s, cold_wakes_per_s = 1e6 * n_wakes / measured_us, 1e6 * n_cold / measured_us
        return LoopLoad(self._n_sessions, share, wakes_per_s, cold_wakes_per_s, tuple(self._latencies_ms))

    def _iterate(self, cold: float) -> None:
        """Take all that is ready now; each message waits for those before it. `cold`: the share of `COLD_US` that the
        loop has slept, up to 1."""
        ready = []
        while self._due and self._due[0][0] <= self._now_us:
            ready.append(heapq.heappop(self._due))
        began_us = self._now_us
        wait_factor = 1.0 + self._costs.wait_share
        self._now_us += (self._costs.wake_us + cold * self._costs.cold_us) * wait_factor
        for due_us, _, kind, session in ready:
            self._now_us += self._cost_us(kind, due_us, session) * wait_factor
            getattr(self, f"_on_{kind}")(due_us, session)
        self._busy_us += (self._now_us - began_us) / wait_factor

    def _cost_us(self, kind: str, due_us: float, session: _Session) -> float:
        costs = self._costs
        match kind:
            case "frame":
                return costs.voiced_us if self._speaks(session, due_us) else costs.silent_us
            case "transcript":
                return costs.turn_us
            case "token" | "clause":
                return costs.token_us
            case "audio" | "chunk":
                return costs.chunk_us
            case _:
                return 0.0

    def _speaks(self, session: _Session, due_us: float) -> bool:
        begins_us = session.speaks_until_us - self._talk.speech_ms * 1_000
        return begins_us <= due_us <= session.speaks_until_us

    # --- what happens -------------------------------------------------------------------------

    def _on_frame(self, due_us: float, session: _Session) -> None:
        self._at(due_us + FRAME_US, "frame", session)
        if not session.speaks_until_us:
            return
        if not session.t0_us and due_us + FRAME_US > session.speaks_until_us:
            session.t0_us = due_us
            self._at(self._now_us + self._drawn_us(self._talk.stt_ms), "transcript", session)
        if session.t0_us and not session.gate_us and due_us >= session.t0_us + self._talk.silence_ms * 1_000:
            session.gate_us = self._now_us
            self._answer(session)

    def _on_transcript(self, due_us: float, session: _Session) -> None:
        llm_us = self._drawn_us(self._talk.llm_ms)
        while self._random.random() < self._talk.failures:
            llm_us += self._drawn_us(self._talk.llm_ms)
        for n in range(self._talk.tokens):
            kind = "clause" if n == CLAUSE_TOKENS - 1 else "token"
            self._at(self._now_us + llm_us + n * self._talk.token_ms * 1_000, kind, session)

    def _on_token(self, due_us: float, session: _Session) -> None:
        pass

    def _on_clause(self, due_us: float, session: _Session) -> None:
        first_us = self._now_us + self._drawn_us(self._talk.tts_ms)
        self._at(first_us, "audio", session)
        for n in range(1, max(1, self._talk.answer_ms // CHUNK_MS)):
            self._at(first_us + n * CHUNK_MS * 1_000 / TTS_SPEED, "chunk", session)

    def _on_audio(self, due_us: float, session: _Session) -> None:
        session.ready_us = self._now_us
        self._answer(session)

    def _on_chunk(self, due_us: float, session: _Session) -> None:
        pass

    def _answer(self, session: _Session) -> None:
        """Begin the answer once its audio is there and the turn is over; the user's next words follow it."""
        if not (session.gate_us and session.ready_us):
            return
        audible_us = max(session.gate_us, session.ready_us)
        if session.t0_us >= self._counted_from_us:
            self._latencies_ms.append((audible_us - session.t0_us) / 1_000)
        talk = self._talk
        session.speaks_until_us = audible_us + (talk.answer_ms + talk.pause_ms + talk.speech_ms) * 1_000
        session.t0_us = session.gate_us = session.ready_us = 0.0

    def _drawn_us(self, median_ms: float) -> float:
        return 1_000 * median_ms * self._random.lognormvariate(0.0, self._talk.spread)

    def _at(self, due_us: float, kind: str, session: _Session) -> None:
        self._n_due += 1
        heapq.heappush(self._due, (due_us, self._n_due, kind, session))


# --- fitting to a machine -------------------------------------------------------------------------


def fitted(measured: Sequence[tuple[int, float]], talk: Talk) -> Costs:
    """Return the costs whose simulated CPU shares are nearest to those measured, (sessions, share of a core), of three
    runs or more: with the least sum of squares of the relative deviations.

    Three unknowns are found, all at least 0: the cost of waking up, what more it costs after a sleep, and a factor for
    all other costs.

    Raises:
        ValueError: the shares can't be met, such as one beyond a core.
    """
    runs = sorted(measured)
    shares = np.array([share for _, share in runs])
    if len(runs) < N_FITTED or shares[0] <= 0 or (np.diff(shares) <= 0).any() or shares[-1] > MAX_FITTED_SHARE:
        given = ", ".join(f"{share:.3f} with {n}" for n, share in runs)
        raise ValueError(
            f"expected CPU shares that grow with the sessions, of {N_FITTED} runs or more, up to {MAX_FITTED_SHARE}, "
            f"got {given}"
        )
    costs = Costs()
    for _ in range(FIT_ROUNDS):
        loads = [simulate_loop(n, talk, costs, duration_s=FIT_S) for n, _ in runs]
        wakes = np.array([load.wakes_per_s / 1e6 for load in loads])
        cold = np.array([load.cold_wakes_per_s / 1e6 for load in loads])
        work = np.array([load.cpu_share for load in loads]) - costs.wake_us * wakes - costs.cold_us * cold
        wake_us, cold_us, factor = _at_least_zero(np.stack([wakes, cold, work], axis=1) / shares[:, None])
        if not factor:
            raise ValueError("expected CPU shares that grow with the work, got those of wake-ups alone")
        costs = scaled(replace(costs, wake_us=wake_us, cold_us=cold_us), factor)
    return costs


def _at_least_zero(columns: NDArray[np.float64]) -> list[float]:
    """Return x >= 0 with the least squares of `columns @ x - 1`: of all choices of unknowns above 0, the best one
    without a negative one. Source: Lawson and Hanson, *Solving Least Squares Problems* (1974), chapter 23."""
    n_unknowns, target = columns.shape[1], np.ones(len(columns))
    best, least = np.zeros(n_unknowns), float(len(columns))
    for chosen in product((False, True), repeat=n_unknowns):
        x = np.zeros(n_unknowns)
        if any(chosen):
            x[list(chosen)] = np.linalg.lstsq(columns[:, chosen], target, rcond=None)[0]
        squares = float(np.square(columns @ x - target).sum())
        if x.min() >= 0 and squares < least:
            best, least = x, squares
    found: list[float] = best.tolist()
    return found


N_FITTED: Final = 3
"""The fewest runs: as many as unknowns."""

FIT_ROUNDS: Final = 5
"""Each round's loads have the costs of the one before; the fourth changes them by less than a percent."""

FIT_S: Final = 15.0
MAX_FITTED_SHARE: Final = 0.9
"""Beyond it a loop's share is a poor measure of its costs: it works all the time."""


def scaled(costs: Costs, factor: float) -> Costs:
    """Return the costs times a factor, but for the cost of waking up."""
    return replace(
        costs,
        voiced_us=costs.voiced_us * factor,
        silent_us=costs.silent_us * factor,
        chunk_us=costs.chunk_us * factor,
        token_us=costs.token_us * factor,
        turn_us=costs.turn_us * factor,
    )
