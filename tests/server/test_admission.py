"""Who gets in: reserved slots, quotas, and head-room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.auth.claims import Claims
from voicepipe.auth.tokens import AUDIENCE, ISSUER
from voicepipe.clock import unix_s
from voicepipe.cluster.memory import MemoryCluster
from voicepipe.errors import ConfigError, Overload
from voicepipe.server.authenticate import Principal
from voicepipe.server.head_room import HeadRoom, NoHeadRoom
from voicepipe.server.quota_usage import QuotaExceeded, QuotaUsage
from voicepipe.server.quotas import Quotas
from voicepipe.server.sessions import live_sessions, session_usage
from voicepipe.server.sessions import slots as slots_module
from voicepipe.server.sessions.live_sessions import LiveSession, LiveSessions, ProcessLoad
from voicepipe.server.sessions.session_usage import SessionUsage
from voicepipe.server.sessions.slots import MACHINE, RESERVED_S, Slots, reservation
from voicepipe.server.stage_latency import N_SLOW, ProcessTurns, SlowerStage, SlowStage, StageVerdict
from voicepipe.server.usage_limits import UsageLimits
from voicepipe.server.workers.model_slots import ModelSlots
from voicepipe.session.grant import SessionGrant
from voicepipe.testing.waiting import eventually

RESERVE = {"voicepipe": {"reserve": True}}


def bearer(minted: dict[str, Any]) -> dict[str, str]:
    return {"Authorization": f"Bearer {minted['value']}"}


# --- reserved slots --------------------------------------------------------------------------


async def test_a_reserved_slot_is_held_for_its_client_secret(serve: Any, gate: Any) -> None:
    """Nobody else gets it, and its session needs no second one."""
    async with serve(max_sessions=1) as server:
        server.talks.append(gate)
        status, minted = await server.mint(RESERVE, headers=server.new_key("shop"))
        assert status == 200
        assert 0 < minted["voicepipe"]["reserved_until"] - unix_s() <= RESERVED_S
        status, error = await server.refused(headers=server.new_key("other"))
        assert (status, error["code"]) == (503, "server_overloaded")
        async with server.connect(headers=bearer(minted)):
            await gate.began.wait()
            assert await server.context.cluster.slots_taken(MACHINE, now_s=unix_s()) == 1
            gate.go.set()
        assert server.context.live_sessions.n_refused == {"full": 1, "head_room": 0, "stage_latency": 0, "quota": 0}


async def test_a_client_secret_is_not_minted_without_a_slot_to_reserve(serve: Any, gate: Any) -> None:
    async with serve(max_sessions=1) as server:
        server.talks.append(gate)
        key = server.new_key("shop")
        await server.mint(RESERVE, headers=key)
        status, answer = await server.mint(RESERVE, headers=key)
        assert (status, answer["error"]["code"]) == (503, "server_overloaded")


async def test_only_one_session_gets_the_reserved_slot(serve: Any, gate: Any) -> None:
    """The next session of the same client secret takes a slot of its own."""
    async with serve(max_sessions=2) as server:
        server.talks.append(gate)
        _, minted = await server.mint(RESERVE, headers=server.new_key("shop"))
        async with server.connect(headers=bearer(minted)), server.connect(headers=bearer(minted)):
            assert await server.context.cluster.slots_taken(MACHINE, now_s=unix_s()) == 2
            status, _ = await server.refused(headers=bearer(minted))
            assert status == 503
            gate.go.set()


async def test_reserved_and_taken_slots_are_always_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever order reservations, sessions and time come in: never more slots than there are, and none is left."""

    @given(
        st.lists(
            st.tuples(st.sampled_from(["reserve", "connect", "connect_reserved", "leave", "wait"]), st.integers(0, 5)),
            max_size=40,
        )
    )
    def follows(steps: list[tuple[str, int]]) -> None:
        asyncio.run(_run_steps(steps, monkeypatch))

    await asyncio.to_thread(follows)


async def _run_steps(steps: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000_000]
    monkeypatch.setattr(slots_module, "unix_s", lambda: now[0])
    cluster = MemoryCluster()
    slots, no_quotas = Slots(cluster, max_sessions=3), QuotaUsage((), cluster)
    reserved_until: dict[str, int] = {}
    running: list[Any] = []
    for n, (step, which) in enumerate(steps):
        try:
            if step == "reserve":
                await slots.reserve(reservation("p", f"t{n}"), no_quotas)
                reserved_until[f"t{n}"] = now[0] + RESERVED_S
            elif step == "connect":
                running.append(await _entered(slots, f"s{n}", no_quotas))
            elif step == "connect_reserved" and reserved_until:
                token = sorted(reserved_until)[which % len(reserved_until)]
                holder = await slots.use_reservation(_claims(token, reserved_until[token]))
                running.append(await _entered(slots, holder or f"s{n}", no_quotas))
            elif step == "leave" and running:
                await running.pop(which % len(running)).__aexit__(None, None, None)
            elif step == "wait":
                # The heartbeat comes more often than a lease ends.
                for _ in range(which):
                    now[0] += 5
                    await cluster.renew_slots(slots.owner, until_s=now[0] + 30, now_s=now[0])
        except Overload:
            assert await cluster.slots_taken(MACHINE, now_s=now[0]) == 3, "refused although a slot was free"
        assert len(running) <= await cluster.slots_taken(MACHINE, now_s=now[0]) <= 3
    for session in running:
        await session.__aexit__(None, None, None)
    now[0] += RESERVED_S
    assert await cluster.slots_taken(MACHINE, now_s=now[0]) == 0


async def _entered(slots: Slots, holder: str, quotas: QuotaUsage) -> Any:
    slot = slots.slot(holder, quotas)
    await slot.__aenter__()
    return slot


def _claims(token_id: str, reserved_until_s: int) -> Claims:
    return Claims(
        issuer=ISSUER,
        audience=AUDIENCE,
        subject="",
        issued_at_s=0,
        not_before_s=0,
        expires_at_s=reserved_until_s + 600,
        token_id=token_id,
        project="p",
        reserved_until_s=reserved_until_s,
    )


# --- quotas -----------------------------------------------------------------------------------


async def test_a_user_has_so_many_sessions_at_once(serve: Any, gate: Any) -> None:
    """Another user of the same project, and sessions without a user, are not concerned."""
    async with serve(quotas=Quotas(user_sessions=1)) as server:
        server.talks.append(gate)
        key = server.new_key("shop")
        _, ann = await server.mint({"voicepipe": {"subject": "ann"}}, headers=key)
        _, ann_again = await server.mint({"voicepipe": {"subject": "ann"}}, headers=key)
        _, bob = await server.mint({"voicepipe": {"subject": "bob"}}, headers=key)
        async with server.connect(headers=bearer(ann)):
            status, error = await server.refused(headers=bearer(ann_again))
            assert (status, error["code"]) == (429, "quota_exceeded")
            assert error["message"] == "Too many sessions of this user (limit 1)."
            async with server.connect(headers=bearer(bob)), server.connect(headers=key):
                gate.go.set()
        async with server.connect(headers=bearer(ann_again)):
            pass
        assert server.context.live_sessions.n_refused["quota"] == 1


async def test_the_sessions_of_a_key_include_those_of_its_client_secrets(serve: Any, gate: Any) -> None:
    async with serve(quotas=Quotas(key_sessions=1)) as server:
        server.talks.append(gate)
        key = server.new_key("shop")
        _, minted = await server.mint(headers=key)
        async with server.connect(headers=bearer(minted)):
            status, error = await server.refused(headers=key)
            assert (status, error["message"]) == (429, "Too many sessions of this API key (limit 1).")
            async with server.connect(headers=server.new_key("shop")):
                gate.go.set()


async def test_a_used_up_day_refuses_until_midnight(serve: Any) -> None:
    """A second's use of the last minute is counted by the session itself; here it is used up before."""
    async with serve(quotas=Quotas(project_minutes_per_day=1, project_usd_per_day=0.5)) as server:
        quotas = QuotaUsage(server.context.quotas.of(project="shop", key_id="", subject=""), server.context.cluster)
        await quotas.add("seconds", 59)
        key = server.new_key("shop")
        async with server.connect(headers=key):
            pass
        await quotas.add("seconds", 1)
        status, error = await server.refused(headers=key)
        assert (status, error["code"]) == (429, "quota_exceeded")
        assert error["message"] == "Daily quota of project 'shop' used up: 1 minutes."
        async with server.connect(headers=server.new_key("other")):
            pass


async def test_a_refused_day_says_when_the_next_one_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicepipe.server.quota_usage.unix_s", lambda: 86_400 * 3 + 86_000)
    quotas = QuotaUsage(Quotas(user_usd_per_day=0.5).of(project="p", key_id="", subject="ann"), MemoryCluster())
    await quotas.add("spend", 499_999)
    await quotas.check()
    await quotas.add("spend", 1)
    with pytest.raises(QuotaExceeded, match=r"Daily quota of this user used up: 0\.5 USD\.") as refused:
        await quotas.check()
    assert refused.value.wait_s == 400
    monkeypatch.setattr("voicepipe.server.quota_usage.unix_s", lambda: 86_400 * 4)
    await quotas.check()


async def test_a_session_ends_when_the_minutes_of_the_day_are_used_up(
    serve: Any, gate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is counted while it runs, and the rest of it at its end."""
    now_ms = [0]
    monkeypatch.setattr(session_usage, "monotonic_ms", lambda: now_ms[0])
    monkeypatch.setattr(session_usage, "TIME_S", 0.005)
    async with serve(quotas=Quotas(project_minutes_per_day=1)) as server:
        server.talks.append(gate)
        async with server.connect(headers=server.new_key("shop")):
            await gate.began.wait()
            now_ms[0] += 60_900
            (session,) = server.sessions
            await session.notified.wait()
            assert session.ending.code == "limit_reached"
            assert session.ending.why == "daily quota of project 'shop' used up: 1 minutes"
            gate.go.set()


async def test_the_cost_of_a_session_counts_for_its_quotas(serve: Any, gate: Any) -> None:
    """Here a cost outside turns; records and REST requests are counted by the same object."""
    async with serve(quotas=Quotas(key_usd_per_day=1, user_usd_per_day=1)) as server:
        server.talks.append(gate)
        _, minted = await server.mint({"voicepipe": {"subject": "ann"}}, headers=server.new_key("shop"))
        async with server.connect(headers=bearer(minted)):
            await gate.began.wait()
            (live,) = server.context.live_sessions.of(None)
            live.usage.charge(1.0)
            await server.sessions[0].notified.wait()
            gate.go.set()
        status, error = await server.refused(headers=bearer(minted))
        assert (status, error["code"]) == (429, "quota_exceeded")


def test_a_quota_below_zero_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"quotas\.user_sessions: expected a number from 0"):
        Quotas(user_sessions=-1)


# --- head-room --------------------------------------------------------------------------------


def measured(*shares: tuple[int, float]) -> HeadRoom:
    """Return a head-room with these measurements: sessions, and the share of a core that all of them use."""
    now = [0.0]
    head_room = HeadRoom(lambda: now[0])
    for n_sessions, cpu_share in shares:
        now[0] = cpu_share
        head_room.measure(n_sessions)
    return head_room


@pytest.mark.parametrize(
    ("measurements", "capacity"),
    [
        ([], 117),  # nothing is known: (0.83 - 0.08) / 0.0064
        ([(9, 0.9)] * 9, 117),  # too few to measure
        ([(10, 0.22)] * 4, 117),
        ([(10, 0.22)] * 6, 72),  # a few sessions on a slow machine tell what many would cost
        ([(20, 0.4)] * 6, 54),
        ([(20, 0.4)] * 9 + [(9, 0.1)] * 9, 117),  # they are gone, and so is what they cost
        ([(60, 0.12)] * 4, 117),  # so far they were silent, or have just begun
        ([(60, 0.12)] * 6, 153),  # silent sessions may all speak, and further ones have shown nothing yet
        ([(10, 0.144)] * 5 + [(50, 0.208)] + [(50, 0.4)] * 3, 117),  # they came during the measurement: 20 counted
        ([(10, 0.144)] * 7 + [(40, 0.29), (90, 0.64)], 73),  # so many who cost more count at once
        ([(100, 0.65)] * 6, 128),
        ([(125, 0.75)] * 6, 137),  # cheap sessions let further ones in as they come
        ([(20, 0.4)] * 6 + [(20, 0.9), (25, 1.0)], 54),  # a flood is no cost of a session
        ([(10, 1.0)] * 9, 30),  # but one that lasts is, up to three times what is expected
        ([(20, 0.4)] + [(20, 0.8)] * 9, 30),  # 40 s ago is forgotten
    ],
)
def test_as_many_sessions_get_in_as_there_is_cpu_time_for(measurements: list[tuple[int, float]], capacity: int) -> None:
    head_room = measured(*measurements)
    assert head_room.capacity == capacity
    head_room.check(capacity - 1)
    with pytest.raises(NoHeadRoom, match=rf"it has for {capacity}") as refused:
        head_room.check(capacity)
    assert refused.value.retry_after_ms > 0


@pytest.mark.parametrize(
    ("measurements", "capacity"),
    [
        ([], 4),  # nothing is known: 0.7 / 0.17
        ([(1, 1.0)] * 5, 4),  # too few to measure
        ([(3, 0.45)] * 3, 4),
        ([(4, 0.95)] * 2, 4),  # one answer that takes long is no cost of a session
        ([(4, 0.95)] * 3, 2),  # those that are there stay, and no more come
        ([(4, 0.08)] * 3, 6),  # a fast machine lets further ones in as they come
        ([(20, 0.4)] * 4, 21),
        ([(40, 0.0)] * 3, 39),  # silent sessions may all speak
    ],
)
def test_as_many_sessions_get_in_as_the_local_models_have_time_for(
    measurements: list[tuple[int, float]], capacity: int
) -> None:
    now: list[float | None] = [None]
    head_room = HeadRoom(lambda: 0.0, local_share=lambda: now[0])
    for n_sessions, share in measurements:
        now[0] = share
        head_room.measure_shared([ProcessTurns(n_sessions)])
    assert head_room.local_capacity == capacity
    assert measured().local_capacity is None


def test_the_sessions_of_all_processes_share_the_local_models() -> None:
    """Also where another process has measured them."""
    one, other = (HeadRoom(lambda: 0.0, local_share=lambda: 0.95) for _ in range(2))
    for _ in range(3):
        one.measure_shared([ProcessTurns(1), ProcessTurns(3)])
        other.adopt(one.stages.verdict)
    assert one.local_capacity == other.local_capacity == 2


SLOWER = SlowerStage("llm_ttft", "fake/llm", frozenset({"default"}), N_SLOW, 1_200.0, 31, 200.0)


class OtherProcess:
    """Another process that serves the port, as the supervisor passes its messages on; `is_first`: it measures."""

    def __init__(self, sessions: int, *, is_first: bool = True) -> None:
        self.slots, self.shared, self._is_first = ModelSlots(), asyncio.Queue[ProcessTurns | StageVerdict](), is_first
        for _ in range(sessions):
            self.slots.take(None, "", 0)
        self.is_silent = self.is_gone = False

    def opened(self, session: str) -> None:
        """Do nothing: the supervisor would count it."""

    def closed(self, session: str) -> None:
        """Do nothing likewise."""

    async def loads(self) -> list[ProcessLoad]:
        return [ProcessLoad(0, has_head_room=True)]

    @asynccontextmanager
    async def model_slot(self, limit: int | None, reservation: str) -> AsyncIterator[bool]:
        is_taken = self.slots.take(limit, reservation, 0)
        yield is_taken
        if is_taken:
            self.slots.free()

    async def reserve_model_slot(self, limit: int, reservation: str, *, life_ms: int) -> bool:
        return self.slots.reserve(limit, reservation, life_ms, 0)

    async def share_turns(self, own: ProcessTurns) -> list[ProcessTurns] | None:
        self.shared.put_nowait(own)
        if self.is_silent:
            raise Overload("The server's other processes do not answer.", retry_after_ms=1_000)
        return None if self._is_first else [own, ProcessTurns(3)]

    async def share_verdict(self, verdict: StageVerdict) -> None:
        self.shared.put_nowait(verdict)

    async def verdict(self) -> StageVerdict | None:
        return None if self.is_gone else StageVerdict(7, (SLOWER,))


def beside(others: OtherProcess, cluster: MemoryCluster) -> LiveSessions:
    """Return the sessions of a process beside another one. Their local models have time for four, as expected."""
    head_room = HeadRoom(lambda: 0.0, local_share=lambda: None)
    return LiveSessions(cluster, max_sessions=10, head_room=head_room, others=others)


async def test_a_session_gets_in_while_the_local_models_have_time_for_those_of_all_processes() -> None:
    others, cluster = OtherProcess(sessions=3), MemoryCluster()
    live = beside(others, cluster)
    async with AsyncExitStack() as stack:
        await live.check_capacity()
        await stack.enter_async_context(live.slot(_session("sess_1", cluster)))
        for _ in range(2):
            with pytest.raises(NoHeadRoom, match="it has for 4"):
                await live.check_capacity()
            with pytest.raises(NoHeadRoom, match="it has for 4"):
                await stack.enter_async_context(live.slot(_session("sess_2", cluster)))
        assert len(live) == 1
        assert live.n_refused["head_room"] == 4
        await stack.enter_async_context(live.slot(_session("sess_3", cluster, is_taken_over=True)))
    await live.check_capacity()


async def test_a_slot_that_is_reserved_in_one_process_is_taken_in_another() -> None:
    """It counts once: four of four are taken or reserved, before and after."""
    others, cluster, quotas = OtherProcess(sessions=3), MemoryCluster(), QuotaUsage((), MemoryCluster())
    minting, other = beside(others, cluster), beside(others, cluster)
    await minting.reserve("p", "token_1", quotas)
    with pytest.raises(NoHeadRoom, match="it has for 4"):
        await minting.reserve("p", "token_2", quotas)
    claims = _claims("token_1", unix_s() + RESERVED_S)
    async with other.slot(_session("sess_1", cluster, claims)):
        with pytest.raises(NoHeadRoom, match="it has for 4"):
            await minting.check_capacity()
        others.slots.free()
        await minting.check_capacity()


async def test_one_process_measures_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor that does not answer does not end it."""
    monkeypatch.setattr(live_sessions, "MEASURE_S", 0)
    for others in (OtherProcess(0, is_first=False), OtherProcess(0)):
        others.is_silent = True
        head_room = HeadRoom(lambda: 0.0)
        live = LiveSessions(MemoryCluster(), max_sessions=10, head_room=head_room, others=others)
        measuring = asyncio.create_task(live.measure())
        for _ in range(3):
            assert await others.shared.get() == ProcessTurns(0)
        others.is_silent = False
        expected = StageVerdict(7, (SLOWER,)) if others._is_first else StageVerdict(3)
        await eventually(partial(_has_verdict, head_room, expected))
        assert not measuring.done()
        measuring.cancel()
        if not others._is_first:
            while (shared := await others.shared.get()) == ProcessTurns(0):
                pass
            assert shared == expected


async def test_what_a_dead_process_has_measured_refuses_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be long ago, and the provider fast again."""
    monkeypatch.setattr(live_sessions, "MEASURE_S", 0)
    others, head_room = OtherProcess(0), HeadRoom(lambda: 0.0)
    live = LiveSessions(MemoryCluster(), max_sessions=10, head_room=head_room, others=others)
    measuring = asyncio.create_task(live.measure())
    await eventually(partial(_has_verdict, head_room, StageVerdict(7, (SLOWER,))))
    with pytest.raises(SlowStage):
        live.check_stages("default")
    others.is_gone = True
    await eventually(partial(_has_verdict, head_room, StageVerdict(7)))
    live.check_stages("default")
    measuring.cancel()


async def _has_verdict(head_room: HeadRoom, expected: StageVerdict) -> bool | None:
    return head_room.stages.verdict == expected or None


def _session(
    session_id: str, cluster: MemoryCluster, claims: Claims | None = None, *, is_taken_over: bool = False
) -> LiveSession:
    grant = SessionGrant(
        session_id=session_id, project="p", agent="default", model="default", identity=None, config=None, expires_at=0
    )
    usage = SessionUsage(UsageLimits(Principal("p", claims), Quotas(), cluster))
    return LiveSession(grant, usage, is_taken_over=is_taken_over)


def test_no_session_gets_in_while_the_event_loop_is_late() -> None:
    """Whatever the sessions cost: other programs may take the time. One late moment refuses nobody, nor do few sessions
    wait for many."""
    lag_ms = 300.0
    head_room = HeadRoom(lambda: 0.1, lag_ms=lambda: lag_ms)
    for _ in range(2):
        head_room.measure(20)
    head_room.check(20)
    head_room.measure(20)
    with pytest.raises(NoHeadRoom, match=r"event loop is 300 ms late \(limit 250 ms\)"):
        head_room.check(20)
    head_room.check(9)
    lag_ms = 5.0
    for _ in range(3):
        head_room.measure(20)
    head_room.check(20)


async def test_the_cost_of_sessions_is_measured_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process that serves alone, too."""
    monkeypatch.setattr(live_sessions, "MEASURE_S", 0)
    n_measured, cluster = 0, MemoryCluster()

    def cpu_share() -> float:
        nonlocal n_measured
        n_measured += 1
        return 0.4

    live = LiveSessions(cluster, max_sessions=10, head_room=HeadRoom(cpu_share))
    measuring = asyncio.create_task(live.measure())

    async def has_measured() -> bool | None:
        return n_measured > 3 or None

    async with live.slot(_session("sess_1", cluster)):
        await eventually(has_measured)
        assert live._head_room is not None
        assert live._head_room.stages.verdict == StageVerdict(sessions=1)
    measuring.cancel()


async def test_without_head_room_neither_session_nor_client_secret_is_given(serve: Any, gate: Any) -> None:
    """A slot that was reserved before counts, and stays."""
    head_room = measured(*[(10, 10.0)] * 15)
    capacity = head_room.capacity
    async with serve(head_room=head_room) as server, AsyncExitStack() as stack:
        server.talks.append(gate)
        key = server.new_key("shop")
        _, minted = await server.mint(RESERVE, headers=key)
        for _ in range(capacity - 1):
            await stack.enter_async_context(server.connect(headers=key))
        for _ in range(2):
            status, error = await server.refused(headers=key)
            assert (status, error["code"]) == (503, "server_overloaded")
        status, _ = await server.mint(headers=key)
        assert status == 503
        await stack.enter_async_context(server.connect(headers=bearer(minted)))
        assert server.context.live_sessions.n_refused == {"full": 0, "head_room": 3, "stage_latency": 0, "quota": 0}
        gate.go.set()
