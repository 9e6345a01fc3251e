"""Where a stage of the turn has become slower with the number of sessions, one more is refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest

from voicepipe.server import stage_latency
from voicepipe.server.head_room import HeadRoom
from voicepipe.server.stage_latency import (
    FEWER,
    MIN_SESSIONS,
    N_SLOW,
    RECENT,
    REMEMBERED,
    ProcessTurns,
    SlowStage,
    StageLatency,
)
from voicepipe.testing.records import turn_record
from voicepipe.turn.record.values import StageSpan, TurnRecord
from voicepipe.turn.settings import BudgetLimits

FAST_MS, SLOW_MS = 400, 900
"""Within and beyond the limit of 600 ms."""

FEW, MANY = 60, 80
"""Numbers of sessions of which the first is few enough to compare with."""


def record(session: str, llm_ms: int, *, stage: str = "llm_ttft", **changes: Any) -> TurnRecord:
    """Return the record of a turn in which a stage took so long."""
    span = StageSpan(stage, llm_ms, BudgetLimits().llm_ttft_ms, "within", llm_ms, 0, "fake-llm")
    return turn_record(session=session, stages=(span,), **{"turn": 2, **changes})


class Sessions:
    """Sessions that all take a turn before each measurement."""

    def __init__(self) -> None:
        self.latency = StageLatency()

    def talk(self, n_sessions: int, llm_ms: Callable[[int], int], *, times: int = 1, **changes: Any) -> None:
        """Let so many sessions take turns. `llm_ms` returns how long the LLM of each session takes."""
        for _ in range(times):
            for number in range(n_sessions):
                self.latency.count_turn(record(f"s{number}", llm_ms(number), **changes))
            self.measure(n_sessions)

    def measure(self, n_sessions: int) -> None:
        """Measure, in a process that serves alone."""
        self.latency.measure([ProcessTurns(n_sessions, self.latency.latest_turns())])

    @property
    def refuses(self) -> bool:
        """Return whether one more is refused."""
        try:
            self.latency.check()
        except SlowStage:
            return True
        return False


def all_take(llm_ms: int) -> Callable[[int], int]:
    return lambda number: llm_ms


@pytest.fixture
def sessions() -> Sessions:
    """Few sessions have talked, and their LLM was fast."""
    found = Sessions()
    found.talk(FEW, all_take(FAST_MS), times=5)
    return found


def test_a_stage_that_is_slower_with_more_sessions_refuses_the_next_one(sessions: Sessions) -> None:
    sessions.talk(MANY, all_take(SLOW_MS), times=N_SLOW - 1)
    assert not sessions.refuses, "it may pass"
    sessions.talk(MANY, all_take(SLOW_MS))
    with pytest.raises(SlowStage) as refused:
        sessions.latency.check()
    assert str(refused.value) == (
        "The stage llm_ttft takes 900 ms (p95), more than its limit; with at most 60 sessions it took 400 ms."
    )
    assert refused.value.retry_after_ms == 5_000
    sessions.measure(MIN_SESSIONS - 1)
    assert not sessions.refuses, "as many are always admitted"
    sessions.talk(MANY, all_take(FAST_MS))
    assert not sessions.refuses


@pytest.mark.parametrize(
    ("n_sessions", "llm_ms"),
    [
        (MANY, all_take(590)),  # within its limit
        (MANY, all_take(FAST_MS)),
        (int(FEW / FEWER) - 1, all_take(SLOW_MS)),  # hardly more sessions than before
        (MANY, lambda number: 3_000 if number < 20 else FAST_MS),  # one agent, or one client
    ],
    ids=["within the limit", "as fast", "as many", "some"],
)
def test_what_does_not_come_from_the_number_of_sessions_refuses_none(
    n_sessions: int, llm_ms: Callable[[int], int], sessions: Sessions
) -> None:
    sessions.talk(n_sessions, llm_ms, times=2 * N_SLOW)
    assert not sessions.refuses


def test_a_provider_that_is_always_slow_refuses_none() -> None:
    sessions = Sessions()
    sessions.talk(FEW, all_take(SLOW_MS), times=5)
    sessions.talk(MANY, all_take(SLOW_MS + 99), times=2 * N_SLOW)
    assert not sessions.refuses


def test_a_provider_that_has_become_slower_for_good_refuses_none_after_a_time(sessions: Sessions) -> None:
    sessions.talk(MANY, all_take(SLOW_MS), times=REMEMBERED)
    assert sessions.refuses
    sessions.talk(MANY, all_take(SLOW_MS))
    assert not sessions.refuses


def test_once_sessions_have_left_those_that_stay_are_compared_with(sessions: Sessions) -> None:
    """A provider that is slow with as many as before gets as many."""
    sessions.talk(MANY, all_take(SLOW_MS), times=N_SLOW)
    sessions.talk(FEW, all_take(SLOW_MS), times=10)
    sessions.talk(MANY, all_take(SLOW_MS), times=N_SLOW)
    assert not sessions.refuses


@pytest.mark.parametrize(
    "changes",
    [{"turn": 1}, {"total_ms": None}, {"stage": "silence"}, {"stage": "tool"}, {"stage": "earlier_audio"}],
    ids=["the first of a session", "not heard", "the settings' silence", "a function", "earlier audio"],
)
def test_turns_and_stages_that_do_not_depend_on_sessions_do_not_count(changes: dict[str, Any]) -> None:
    sessions = Sessions()
    sessions.talk(FEW, all_take(FAST_MS), times=5, **changes)
    sessions.talk(MANY, all_take(SLOW_MS), times=N_SLOW, **changes)
    assert not sessions.refuses


def test_few_sessions_are_no_measurement() -> None:
    sessions = Sessions()
    sessions.talk(MIN_SESSIONS // 2, all_take(FAST_MS), times=5)
    sessions.talk(MIN_SESSIONS, all_take(SLOW_MS), times=N_SLOW)
    assert not sessions.refuses


def test_old_turns_are_dropped_and_each_session_counts_once(sessions: Sessions) -> None:
    """The sessions of a client that has many turns weigh no more than others."""
    for _ in range(1_000):
        sessions.latency.count_turn(record("s0", SLOW_MS))
    assert len(sessions.latency._turns) == FEW
    for n_left in (*[FEW] * (RECENT - 1), 1, 0):
        sessions.measure(FEW)
        assert len(sessions.latency._turns) == n_left


def test_the_sessions_of_all_processes_count() -> None:
    """Each has too few for a p95, and they use the same providers."""
    workers = [StageLatency() for _ in range(4)]
    for n_each, llm_ms in ((15, FAST_MS), (20, SLOW_MS), (20, SLOW_MS), (20, SLOW_MS)):
        for worker in workers:
            for number in range(n_each):
                worker.count_turn(record(f"s{number}", llm_ms))
        all_turns = [ProcessTurns(n_each, worker.latest_turns()) for worker in workers]
        for worker in workers:
            worker.measure(all_turns)
    for worker in workers:
        with pytest.raises(SlowStage, match="at most 60 sessions"):
            worker.check()
    workers[0].measure([])
    workers[0].check()


def simulated(seed: int, llm_ms: Callable[[int], float], *, times: int = 200) -> list[int]:
    """Return the number of sessions at each refusal, while sessions come one by one from `MIN_SESSIONS` up to 100.

    A third of them have a turn between two measurements, with lognormal times.
    """
    random, sessions, refused_at = Random(seed), Sessions(), []
    n_sessions = MIN_SESSIONS
    for time in range(times):
        for number in range(n_sessions):
            if random.random() < 1 / 3:
                took_ms = round(llm_ms(n_sessions) * random.lognormvariate(0, 0.5))
                sessions.latency.count_turn(record(f"s{number}", took_ms))
        sessions.measure(n_sessions)
        if sessions.refuses:
            refused_at.append(n_sessions)
        elif time % 2:
            n_sessions = min(100, n_sessions + 1)
    return refused_at


def test_by_chance_hardly_anyone_is_refused() -> None:
    refused = [len(simulated(seed, lambda _: 700.0)) for seed in range(5)]
    assert sum(refused) <= 5, "of 1000"


@pytest.mark.parametrize("seed", range(3))
def test_sessions_stop_coming_where_a_provider_reaches_its_limit(seed: int) -> None:
    """It answers 60 sessions at once, and further ones wait."""
    refused_at = simulated(seed, lambda n_sessions: 400.0 * max(1.0, n_sessions / 60) ** 4)
    assert 60 < min(refused_at) <= max(refused_at) < 90


async def test_the_server_refuses_sessions_and_client_secrets_for_it(
    serve: Any, gate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the reason and `Retry-After`; a metric counts it."""
    monkeypatch.setattr(stage_latency, "MIN_SESSIONS", 3)
    head_room = HeadRoom(lambda: 0.0)
    async with serve(head_room=head_room) as server, AsyncExitStack() as stack:
        server.talks.append(gate)
        key = server.new_key("shop")
        for n_sessions, llm_ms in ((3, FAST_MS), (4, SLOW_MS), (4, SLOW_MS), (4, SLOW_MS)):
            while len(server.sessions) < n_sessions:
                await stack.enter_async_context(server.connect(headers=key))
            for number, session in enumerate(server.sessions):
                session.on_record(record(f"s{number}", llm_ms))
            head_room.measure(n_sessions)
        status, error = await server.refused(headers=key)
        assert (status, error["code"]) == (503, "server_overloaded")
        assert "The stage llm_ttft takes 900 ms (p95)" in error["message"]
        status, answer = await server.mint(headers=key)
        assert (status, answer["error"]["message"]) == (503, error["message"])
        assert server.context.live_sessions.n_refused["stage_latency"] == 2
        assert not server.context.live_sessions.load().has_head_room
        gate.go.set()
