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


def record(
    session: str, llm_ms: int, *, stage: str = "llm_ttft", provider: str = "fake/llm", **changes: Any
) -> TurnRecord:
    """Return the record of a turn in which a stage took so long."""
    span = StageSpan(stage, llm_ms, BudgetLimits().llm_ttft_ms, "within", llm_ms, 0, provider)
    return turn_record(session=session, stages=(span,), **{"turn": 2, **changes})


class Sessions:
    """Sessions that all take a turn before each measurement."""

    def __init__(self) -> None:
        self.latency = StageLatency()
        self.turn = 1

    def talk(
        self, n_sessions: int, llm_ms: Callable[[int], int], *, times: int = 1, agent: str = "default", **changes: Any
    ) -> None:
        """Let so many sessions take turns. `llm_ms` returns how long the LLM of each session takes."""
        for _ in range(times):
            self.turn += 1
            for number in range(n_sessions):
                turn = {"turn": self.turn, **changes}
                self.latency.count_turn(record(f"{agent}{number}", llm_ms(number), **turn), agent)
            self.measure()

    def measure(self) -> None:
        """Measure, in a process that serves alone."""
        turns = self.latency.latest_turns()
        self.latency.measure([ProcessTurns(len(turns), turns)])

    def refuses(self, agent: str = "default") -> bool:
        """Return whether one more session of this agent is refused."""
        try:
            self.latency.check(agent)
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
    assert not sessions.refuses(), "it may pass"
    sessions.talk(MANY, all_take(SLOW_MS))
    with pytest.raises(SlowStage) as refused:
        sessions.latency.check("default")
    assert str(refused.value) == (
        "The stage llm_ttft takes 900 ms (p95), more than its limit; with at most 60 sessions it took 400 ms."
    )
    assert refused.value.retry_after_ms == 5_000
    sessions.talk(MANY, all_take(FAST_MS))
    assert not sessions.refuses()


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
    assert not sessions.refuses()


def test_a_provider_that_is_always_slow_refuses_none() -> None:
    sessions = Sessions()
    sessions.talk(FEW, all_take(SLOW_MS), times=5)
    sessions.talk(MANY, all_take(SLOW_MS + 99), times=2 * N_SLOW)
    assert not sessions.refuses()


def test_a_provider_that_stays_at_its_limit_refuses_for_as_long(sessions: Sessions) -> None:
    """It is compared with the time before, even when that is long ago, until it is measured with as few sessions."""
    sessions.talk(MANY, all_take(SLOW_MS), times=2 * REMEMBERED)
    assert sessions.refuses()
    for number in range(FEW, MANY):
        sessions.latency.drop_session(f"default{number}")
    sessions.talk(FEW, all_take(SLOW_MS), times=RECENT + 1)
    sessions.talk(MANY, all_take(SLOW_MS), times=N_SLOW)
    assert not sessions.refuses()


def test_what_was_usual_long_ago_refuses_none(sessions: Sessions) -> None:
    """A provider has become slower, while no more sessions came."""
    sessions.talk(MANY, all_take(FAST_MS), times=REMEMBERED)
    sessions.talk(MANY, all_take(SLOW_MS), times=N_SLOW)
    assert not sessions.refuses()


def test_providers_that_are_no_longer_used_take_no_memory(sessions: Sessions) -> None:
    sessions.talk(MANY, all_take(SLOW_MS), times=REMEMBERED)
    assert len(sessions.latency._measured["llm_ttft", "fake/llm"]) == REMEMBERED
    for _ in range(RECENT + REMEMBERED + 1):
        sessions.measure()
    assert sessions.latency._measured == sessions.latency._usual == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"turn": 1},
        {"total_ms": None},
        *({"stage": stage} for stage in ("silence", "tool", "earlier_audio", "playback")),
    ],
    ids=["the first of a session", "not heard", "the settings' silence", "a function", "earlier audio", "the client"],
)
def test_turns_and_stages_that_do_not_depend_on_sessions_do_not_count(changes: dict[str, Any]) -> None:
    sessions = Sessions()
    sessions.talk(FEW, all_take(FAST_MS), times=5, **changes)
    sessions.talk(MANY, all_take(SLOW_MS), times=N_SLOW, **changes)
    assert not sessions.refuses()


def test_few_sessions_are_no_measurement() -> None:
    sessions = Sessions()
    sessions.talk(MIN_SESSIONS // 2, all_take(FAST_MS), times=5)
    sessions.talk(MIN_SESSIONS, all_take(SLOW_MS), times=N_SLOW)
    assert not sessions.refuses()


def test_old_turns_are_dropped_and_each_session_counts_once(sessions: Sessions) -> None:
    """The sessions of a client that has many turns weigh no more than others."""
    for turn in range(sessions.turn, 1_000):
        sessions.latency.count_turn(record("default0", SLOW_MS, turn=turn), "default")
    n_left = [len(sessions.latency.latest_turns()) for _ in range(RECENT + 1)]
    assert n_left == [*[FEW] * (RECENT - 1), 1, 0]


def test_a_late_change_of_an_earlier_turn_does_not_replace_the_latest() -> None:
    """Nor does one of the latest turn make it younger."""
    latency = StageLatency()
    for turn, llm_ms in ((3, FAST_MS), (2, SLOW_MS)):
        latency.count_turn(record("s", llm_ms, turn=turn), "default")
    for _ in range(RECENT):
        ((_, (wait,)),) = [(each.agent, each.waits) for each in latency.latest_turns()]
        assert wait.waited_ms == FAST_MS
        latency.count_turn(record("s", FAST_MS, turn=3), "default")
    assert latency.latest_turns() == ()


def test_each_provider_is_compared_with_itself(sessions: Sessions) -> None:
    """An agent whose LLM is always slow joins one whose LLM is fast: neither is refused."""
    for _ in range(2 * N_SLOW):
        sessions.talk(65, all_take(SLOW_MS), agent="careful", provider="slow/llm")
        sessions.talk(60, all_take(FAST_MS))
    assert not sessions.refuses()
    assert not sessions.refuses("careful")


def test_agents_that_do_not_use_the_slower_provider_are_served(sessions: Sessions) -> None:
    for _ in range(N_SLOW):
        sessions.talk(MANY, all_take(FAST_MS), agent="other", provider="other/llm")
        sessions.talk(MANY, all_take(SLOW_MS))
    assert sessions.refuses()
    assert not sessions.refuses("other")


def test_the_sessions_of_all_processes_count() -> None:
    """Each has too few for a p95, and they use the same providers."""
    workers = [StageLatency() for _ in range(4)]
    for turn, (n_each, llm_ms) in enumerate(((15, FAST_MS), (20, SLOW_MS), (20, SLOW_MS), (20, SLOW_MS)), 2):
        for worker in workers:
            for number in range(n_each):
                worker.count_turn(record(f"s{number}", llm_ms, turn=turn), "default")
        workers[0].measure([ProcessTurns(n_each, worker.latest_turns()) for worker in workers])
    with pytest.raises(SlowStage, match="at most 60 sessions"):
        workers[0].check("default")
    workers[1].check("default")
    workers[1].verdict = workers[0].verdict
    with pytest.raises(SlowStage, match="at most 60 sessions"):
        workers[1].check("default")
    assert workers[0].verdict.sessions == 80


CALL_S = 180


def simulated(seed: int, llm_ms: Callable[[int], float], *, times: int) -> list[int]:
    """Return the number of sessions after each measurement, where more would come than the server admits.

    Two come after each measurement, up to 150, and leave after 3 min at the mean. A third of them have a turn between
    two measurements, with lognormal times.
    """
    random, sessions, n_sessions, number = Random(seed), Sessions(), [], MIN_SESSIONS
    inside = set(range(MIN_SESSIONS))
    for turn in range(2, times + 2):
        for each in [each for each in inside if random.random() < 4 / CALL_S]:
            inside.remove(each)
            sessions.latency.drop_session(f"s{each}")
        if not sessions.refuses():
            new = range(number, number + min(2, 150 - len(inside)))
            inside |= set(new)
            number += len(new)
        for each in inside:
            if random.random() < 1 / 3:
                took_ms = round(llm_ms(len(inside)) * random.lognormvariate(0, 0.5))
                sessions.latency.count_turn(record(f"s{each}", took_ms, turn=turn), "default")
        sessions.measure()
        n_sessions.append(len(inside))
    return n_sessions


def test_by_chance_hardly_any_session_is_refused() -> None:
    """A provider that is always over its limit, and as slow with 30 as with 150 sessions."""
    assert min(simulated(1, lambda _: 700.0, times=300)[100:]) > 60


@pytest.mark.parametrize("seed", range(2))
def test_sessions_stop_coming_where_a_provider_reaches_its_limit(seed: int) -> None:
    """It answers 60 sessions at once, and further ones wait: for hours no more get in than it can serve."""
    n_sessions = simulated(seed, lambda n: 400.0 * max(1.0, n / 60) ** 4, times=1_000)
    assert 60 < max(n_sessions) < 90
    assert min(n_sessions[100:]) > 45


async def test_the_server_refuses_sessions_and_client_secrets_for_it(
    serve: Any, gate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the reason and `Retry-After`; a metric counts it."""
    monkeypatch.setattr(stage_latency, "MIN_SESSIONS", 3)
    head_room = HeadRoom(lambda: 0.0)
    async with serve(head_room=head_room) as server, AsyncExitStack() as stack:
        server.talks.append(gate)
        key = server.new_key("shop")
        for turn, (n_sessions, llm_ms) in enumerate(((3, FAST_MS), *[(4, SLOW_MS)] * N_SLOW), 2):
            while len(server.sessions) < n_sessions:
                await stack.enter_async_context(server.connect(headers=key))
            for number, session in enumerate(server.sessions):
                session.on_record(record(f"s{number}", llm_ms, turn=turn))
            head_room.measure_shared([ProcessTurns(n_sessions, head_room.stages.latest_turns())])
        status, error = await server.refused(headers=key)
        assert (status, error["code"]) == (503, "server_overloaded")
        assert "The stage llm_ttft takes 900 ms (p95)" in error["message"]
        status, answer = await server.mint(headers=key)
        assert (status, answer["error"]["message"]) == (503, error["message"])
        assert server.context.live_sessions.n_refused["stage_latency"] == 2
        gate.go.set()
