"""Stage latency: whether a stage of the turn has become slower with the number of sessions.

A provider that is always slow refuses nobody: without further sessions it would be as slow. One that answers later the
more sessions there are, such as a server of your own or an account with a limit, makes all of them wait for one more.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from voicepipe.errors import Overload
from voicepipe.turn.record.attribution import EARLIER_AUDIO, SILENCE, TOOL
from voicepipe.turn.record.values import TurnRecord

MIN_SESSIONS: Final = 30
"""Sessions of whose latest turns a p95 is taken, and that are admitted whatever it is: of fewer turns it is the
slowest one. Those of all processes that serve the port count, as their providers are the same."""

RECENT: Final = 15
"""Measurements within which a session's latest turn counts: 60 s."""

REMEMBERED: Final = 225
"""Measurements that are compared with: 15 min. So a provider that has become slower for good refuses sessions for no
longer than that."""

FEWER: Final = 0.75
"""Measurements with at most this share of the sessions are compared with."""

MIN_GROWTH_MS: Final = 100
"""A stage is slower if its p95 has grown by this: what the load bench allows all of them together."""

P95_GROWTH: Final = 1.5
P50_GROWTH: Final = 1.25
"""Growth of the p95 and of the median from which a stage is slower. The median has to grow too: one agent with a slow
LLM, or one client with long prompts, makes the p95 alone slower. Chance refused at one of 3000 measurements in a
simulation of 30 to 100 sessions with lognormal times (deviation of the logarithm: 0.5 between turns and 0.5 between
sessions)."""

N_SLOW: Final = 3
"""Consecutive measurements that must show it: 12 s."""

RETRY_MS: Final = 5_000
"""`Retry-After`, as without head-room."""

_NOT_COMPARED: Final = frozenset({SILENCE, EARLIER_AUDIO, TOOL})
"""Stages whose length does not depend on the number of sessions: the settings, an announcement or a function set it."""


class StageWait(Struct, frozen=True, array_like=True):
    """A stage of one turn."""

    stage: str
    waited_ms: int
    """The part that the user waited for."""

    limit_ms: int


TurnWaits = tuple[StageWait, ...]
"""The stages of one turn that are compared."""


class ProcessTurns(Struct, frozen=True):
    """The sessions of a process, and their latest turns."""

    sessions: int
    """Number of sessions that run, and of slots that are reserved."""

    turns: tuple[TurnWaits, ...] = ()
    """The latest turn of each session, of the last `RECENT` measurements."""


class SlowStage(Overload):
    """A stage of the turn is slower than with fewer sessions, and over its limit."""


class _Measured(Struct, frozen=True):
    """A stage in the sessions' latest turns."""

    number: int
    """Number of measurements until then."""

    n_sessions: int
    """Number of sessions that ran."""

    p50_ms: float
    p95_ms: float


class _Slower(Struct, frozen=True):
    """A stage that is slower than with fewer sessions."""

    n_measurements: int
    """Consecutive measurements that show it."""

    p95_ms: float
    n_fewer: int
    """Maximum of the sessions with which it is compared."""

    fewer_p95_ms: float


class _LatestTurn(Struct, frozen=True):
    number: int
    """Number of measurements before it."""

    waits: TurnWaits


class StageLatency:
    """Compares each stage's p95 with what it was when there were fewer sessions. Belongs to one event loop."""

    def __init__(self) -> None:
        self._turns: dict[str, _LatestTurn] = {}  # bounded: by the sessions of the last RECENT measurements
        self._measured: dict[str, deque[_Measured]] = {}
        """Stage -> its measurements; bounded by the stages of a turn, and full: the oldest is dropped."""

        self._slower: dict[str, _Slower] = {}
        """Stage -> by how much it is slower; those that are not are left out."""

        self._number = self._n_sessions = 0

    def count_turn(self, record: TurnRecord) -> None:
        """Count a turn whose answer was heard. Of each session the latest one counts: none can decide alone. Its first
        one does not: the caches of its providers are cold."""
        if record.turn > 1 and record.total_ms is not None:
            compared = (span for span in record.stages if span.stage not in _NOT_COMPARED)
            waits = tuple(StageWait(span.stage, span.critical_ms, span.limit_ms) for span in compared)
            self._turns[record.session] = _LatestTurn(self._number, waits)

    def latest_turns(self) -> tuple[TurnWaits, ...]:
        """Return the latest turn of each session of this process."""
        return tuple(turn.waits for turn in self._turns.values())

    def measure(self, processes: Sequence[ProcessTurns]) -> None:
        """Measure each stage in the latest turns of all processes that serve the port, this one among them."""
        self._number += 1
        oldest = self._number - RECENT
        self._turns = {session: turn for session, turn in self._turns.items() if turn.number >= oldest}
        self._n_sessions = sum(each.sessions for each in processes)
        waits: dict[str, list[StageWait]] = {}
        for wait in _waits(processes):
            waits.setdefault(wait.stage, []).append(wait)
        found = {stage: self._compared(stage, of_stage) for stage, of_stage in waits.items()}
        self._slower = {stage: slower for stage, slower in found.items() if slower is not None}

    def _compared(self, stage: str, waits: Sequence[StageWait]) -> _Slower | None:
        """Measure a stage; None: it is not slower than with fewer sessions, or within its limit, which agents set."""
        if len(waits) < MIN_SESSIONS:
            return None
        n_sessions, waited_ms = self._n_sessions, sorted(wait.waited_ms for wait in waits)
        now = _Measured(self._number, n_sessions, statistics.median(waited_ms), _p95(waited_ms))
        before = self._measured.setdefault(stage, deque(maxlen=REMEMBERED))
        oldest = self._number - REMEMBERED
        fewer = [each for each in before if each.number >= oldest and each.n_sessions <= FEWER * n_sessions]
        before.append(now)
        if not fewer or _p95(sorted(wait.waited_ms - wait.limit_ms for wait in waits)) <= 0:
            return None
        p50_ms = statistics.median(each.p50_ms for each in fewer)
        p95_ms = statistics.median(each.p95_ms for each in fewer)
        if now.p50_ms < p50_ms * P50_GROWTH or now.p95_ms < max(p95_ms * P95_GROWTH, p95_ms + MIN_GROWTH_MS):
            return None
        n_before = self._slower[stage].n_measurements if stage in self._slower else 0
        return _Slower(n_before + 1, now.p95_ms, max(each.n_sessions for each in fewer), p95_ms)

    def check(self) -> None:
        """Check that no stage is slower for the number of sessions.

        Raises:
            SlowStage: one is. These sessions would wait for one more.
        """
        if self._n_sessions < MIN_SESSIONS:
            return
        for stage, slower in self._slower.items():
            if slower.n_measurements >= N_SLOW:
                raise SlowStage(
                    f"The stage {stage} takes {slower.p95_ms:.0f} ms (p95), more than its limit; with at most "
                    f"{slower.n_fewer} sessions it took {slower.fewer_p95_ms:.0f} ms.",
                    retry_after_ms=RETRY_MS,
                )


def _waits(processes: Iterable[ProcessTurns]) -> Iterable[StageWait]:
    return (wait for process in processes for turn in process.turns for wait in turn)


def _p95(ordered: Sequence[float]) -> float:
    return ordered[math.ceil(0.95 * len(ordered)) - 1]
