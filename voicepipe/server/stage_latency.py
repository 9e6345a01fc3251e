"""Stage latency: whether a stage of the turn has become slower with the number of sessions.

A provider that is always slow refuses no session: without further ones it would be as slow. One that answers later the
more sessions there are, such as a server of your own or an account with a limit, makes all of them wait for one more.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from voicepipe.errors import Overload
from voicepipe.turn.record.attribution import EARLIER_AUDIO, PLAYBACK, SILENCE, TOOL
from voicepipe.turn.record.values import TurnRecord
from voicepipe.values import replace

MIN_SESSIONS: Final = 30
"""Sessions of whose latest turns a p95 is taken: of fewer turns it is the slowest one. Those of all processes that
serve the port count, as their providers are the same."""

RECENT: Final = 15
"""Measurements within which a session's latest turn counts: 60 s."""

REMEMBERED: Final = 225
"""Measurements that are compared with: 15 min."""

FEWER: Final = 0.75
"""Measurements with at most this share of the sessions are compared with."""

MIN_GROWTH_MS: Final = 100
"""A stage is slower if its p95 has grown by this: what the load bench allows all of them together."""

P95_GROWTH: Final = 1.5
P50_GROWTH: Final = 1.25
"""Growth of the p95 and of the median from which a stage is slower. The median has to grow too: one client with long
prompts makes the p95 alone slower. Chance refused at one of 3000 measurements in a simulation of 30 to 100 sessions
with lognormal times (deviation of the logarithm: 0.5 between turns and 0.5 between sessions)."""

N_SLOW: Final = 3
"""Consecutive measurements that must show it: 12 s."""

RETRY_MS: Final = 5_000
"""`Retry-After`, as without head-room."""

_NOT_COMPARED: Final = frozenset({SILENCE, EARLIER_AUDIO, TOOL, PLAYBACK})
"""Stages that the number of sessions does not make slower: the settings, an announcement, a function or the client's
network set their length."""


class StageWait(Struct, frozen=True, array_like=True):
    """A stage of one turn."""

    stage: str
    owner: str
    """The provider that took the time, or `server`."""

    waited_ms: int
    """The part that the user waited for."""

    limit_ms: int


class LatestTurn(Struct, frozen=True, array_like=True):
    """The latest turn of a session: its agent, and the stages that are compared."""

    agent: str
    waits: tuple[StageWait, ...]


class ProcessTurns(Struct, frozen=True):
    """The sessions of a process, and their latest turns."""

    sessions: int
    """Number of sessions that run."""

    turns: tuple[LatestTurn, ...] = ()
    """Those of the last `RECENT` measurements."""


class SlowerStage(Struct, frozen=True):
    """A stage of one provider that is slower than with fewer sessions."""

    stage: str
    owner: str
    agents: frozenset[str]
    """The agents whose turns were measured: their next session would wait."""

    n_measurements: int
    """Consecutive measurements that show it."""

    p95_ms: float
    n_fewer: int
    """The most sessions with which it is compared."""

    fewer_p95_ms: float


class StageVerdict(Struct, frozen=True):
    """A measurement of all processes that serve the port."""

    sessions: int = 0
    """Number of sessions that run."""

    slower: tuple[SlowerStage, ...] = ()


class SlowStage(Overload):
    """A stage of the turn is slower than with fewer sessions, and over its limit."""


class _Measured(Struct, frozen=True):
    """A stage of one provider in the sessions' latest turns."""

    number: int
    """Number of measurements until then."""

    n_sessions: int
    """Number of sessions whose turns count."""

    p50_ms: float
    p95_ms: float


class _Usual(Struct, frozen=True):
    """What a slower stage is compared with."""

    measured: _Measured
    number: int
    """Number of the latest measurement that was slower."""

    n_few: int = 0
    """Consecutive measurements with no more sessions than that one."""


class _OwnTurn(Struct, frozen=True):
    number: int
    """Number of measurements before it."""

    turn: int
    latest: LatestTurn


_Key = tuple[str, str]
"""Stage and owner."""


class StageLatency:
    """Compares each stage's p95 with what it was when there were fewer sessions. Belongs to one event loop."""

    def __init__(self) -> None:
        self.verdict = StageVerdict()
        """The latest measurement, by this process or by another one."""

        self._own: dict[str, _OwnTurn] = {}  # bounded: by the sessions of the last RECENT measurements
        self._measured: dict[_Key, deque[_Measured]] = {}
        """Measurements; bounded by the providers of the last `REMEMBERED` ones, and full: the oldest is dropped."""

        self._usual: dict[_Key, _Usual] = {}
        """Bounded likewise. A provider that stays at its limit is compared with the time before, however long that
        lasts: otherwise ever more sessions would get in, each time when the slow ones have become usual."""

        self._number = 0

    def count_turn(self, record: TurnRecord, agent: str) -> None:
        """Count a turn whose answer was heard, of a session with this agent. Of each session the latest one counts:
        none can decide alone. Its first one does not: the caches of its providers are cold."""
        if record.turn <= 1 or record.total_ms is None:
            return
        before = self._own.get(record.session)
        if before is not None and record.turn < before.turn:  # a late change of an earlier one
            return
        number = before.number if before is not None and record.turn == before.turn else self._number
        compared = (span for span in record.stages if span.stage not in _NOT_COMPARED)
        waits = tuple(StageWait(span.stage, span.owner, span.critical_ms, span.limit_ms) for span in compared)
        self._own[record.session] = _OwnTurn(number, record.turn, LatestTurn(agent, waits))

    def drop_session(self, session: str) -> None:
        """Count the turns of a session no more: it has ended."""
        self._own.pop(session, None)

    def latest_turns(self) -> tuple[LatestTurn, ...]:
        """Return the latest turns of the sessions of this process, and drop old ones. Call it once for each
        measurement."""
        self._number += 1
        oldest = self._number - RECENT
        self._own = {session: own for session, own in self._own.items() if own.number >= oldest}
        return tuple(own.latest for own in self._own.values())

    def measure(self, processes: Sequence[ProcessTurns]) -> None:
        """Measure each stage in the latest turns of all processes that serve the port, this one among them."""
        waits: dict[_Key, list[StageWait]] = {}
        agents: dict[_Key, set[str]] = {}
        for turn in (turn for process in processes for turn in process.turns):
            for wait in turn.waits:
                key = (wait.stage, wait.owner)
                waits.setdefault(key, []).append(wait)
                agents.setdefault(key, set()).add(turn.agent)
        before = {(slower.stage, slower.owner): slower.n_measurements for slower in self.verdict.slower}
        slower = []
        for key, found in waits.items():
            compared = self._compared(key, found)
            if compared is not None:
                now, usual = compared
                n_slow = before.get(key, 0) + 1
                slower.append(
                    SlowerStage(*key, frozenset(agents[key]), n_slow, now.p95_ms, usual.n_sessions, usual.p95_ms)
                )
        self.verdict = StageVerdict(sum(each.sessions for each in processes), tuple(slower))
        self._drop_old()

    def _compared(self, key: _Key, waits: Sequence[StageWait]) -> tuple[_Measured, _Measured] | None:
        """Measure a stage; return that, and what was usual with fewer sessions. None: it is not slower, or within its
        limit, which agents set."""
        n_sessions = len(waits)
        if n_sessions < MIN_SESSIONS:
            return None
        waited_ms = sorted(wait.waited_ms for wait in waits)
        now = _Measured(self._number, n_sessions, statistics.median(waited_ms), _p95(waited_ms))
        measured = self._measured.setdefault(key, deque(maxlen=REMEMBERED))
        self._delete_usual(key, n_sessions)
        usual = self._usual_with(key, FEWER * n_sessions)
        measured.append(now)
        if usual is None or _p95(sorted(wait.waited_ms - wait.limit_ms for wait in waits)) <= 0:
            return None
        if now.p50_ms < usual.p50_ms * P50_GROWTH:
            return None
        if now.p95_ms < max(usual.p95_ms * P95_GROWTH, usual.p95_ms + MIN_GROWTH_MS):
            return None
        self._usual[key] = _Usual(usual, self._number)
        return now, usual

    def _delete_usual(self, key: _Key, n_sessions: int) -> None:
        """Delete what was usual once there have been no more sessions for as long as their turns count: the stage is
        measured anew with as few."""
        usual = self._usual.get(key)
        if usual is None:
            return
        n_few = usual.n_few + 1 if n_sessions <= usual.measured.n_sessions else 0
        if n_few > RECENT:
            del self._usual[key]
        else:
            self._usual[key] = replace(usual, n_few=n_few)

    def _usual_with(self, key: _Key, n_sessions: float) -> _Measured | None:
        """Return what is usual with at most `n_sessions` sessions; None: it is not known."""
        oldest = self._number - REMEMBERED
        fewer = [each for each in self._measured[key] if each.number >= oldest and each.n_sessions <= n_sessions]
        found = [self._usual[key].measured] if key in self._usual else []
        if fewer:
            p50_ms = statistics.median(each.p50_ms for each in fewer)
            p95_ms = statistics.median(each.p95_ms for each in fewer)
            found.append(_Measured(self._number, max(each.n_sessions for each in fewer), p50_ms, p95_ms))
        known = (each for each in found if each.n_sessions <= n_sessions)
        return min(known, key=lambda each: each.p95_ms, default=None)

    def _drop_old(self) -> None:
        oldest = self._number - REMEMBERED
        self._measured = {key: found for key, found in self._measured.items() if found[-1].number >= oldest}
        self._usual = {key: found for key, found in self._usual.items() if found.number >= oldest}

    def check(self, agent: str) -> None:
        """Check that no stage of an agent's sessions is slower for their number.

        Raises:
            SlowStage: one is. These sessions would wait for one more.
        """
        for slower in self.verdict.slower:
            if slower.n_measurements >= N_SLOW and agent in slower.agents:
                raise SlowStage(
                    f"The stage {slower.stage} takes {slower.p95_ms:.0f} ms (p95), more than its limit; with at most "
                    f"{slower.n_fewer} sessions it took {slower.fewer_p95_ms:.0f} ms.",
                    retry_after_ms=RETRY_MS,
                )


def _p95(ordered: Sequence[float]) -> float:
    return ordered[math.ceil(0.95 * len(ordered)) - 1]
