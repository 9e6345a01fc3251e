"""The supervisor's broker and its workers, over their channels in one process: who answers, who holds what, and who is
gone."""

from __future__ import annotations

import asyncio
import logging
import socket

import pytest

from tests.server.broker_members import NEVER, Member, Members
from voicepipe.errors import Overload
from voicepipe.server.api.providers import _together
from voicepipe.server.api.stream_state import _together as states_together
from voicepipe.server.sessions.listed_sessions import ListedSessions
from voicepipe.server.sessions.live_sessions import ProcessLoad
from voicepipe.server.stage_latency import LatestTurn, ProcessTurns, SlowerStage, StageVerdict, StageWait
from voicepipe.server.webrtc.calls import RtcCallLookup
from voicepipe.server.workers import broker as broker_module
from voicepipe.server.workers import link as link_module
from voicepipe.server.workers.link import WorkerLink
from voicepipe.server.workers.messages import (
    ConnectionClosed,
    RelaySession,
    SessionOpened,
    Stop,
    TakeConnection,
    Watching,
    encoded,
)
from voicepipe.server.workers.peers import Workers, WorkerState
from voicepipe.tasks import background_tasks
from voicepipe.testing.waiting import eventually

# --- queries ----------------------------------------------------------------------------------


async def test_every_worker_that_listens_answers_for_itself(broker_members: Members) -> None:
    """One that still starts is left out."""
    one, other = broker_members.join(), broker_members.join()
    broker_members.join(owner="").answers("providers", {"id": "starts"})
    for number, member in enumerate((one, other)):
        member.answers("providers", {"id": number})
        member.answers("head_room", ProcessLoad(sessions=number, has_head_room=bool(number)))
        member.answers("session", bool(number))
        member.answers("sessions", [{"started_at": number}])
        member.answers("delete_session", None)
    assert sorted(each["id"] for each in await one.workers.providers()) == [0, 1]
    loads = sorted(await other.workers.loads(), key=lambda load: load.sessions)
    assert loads == [ProcessLoad(sessions=0, has_head_room=False), ProcessLoad(sessions=1, has_head_room=True)]
    other.workers.opened("s")
    assert await one.workers.find_session("s") == "held"
    assert [row["started_at"] for row in (await one.workers.sessions(None)).rows] == [1, 0]
    await one.workers.delete_session("acme", "s")
    assert broker_members.broker._pending == {}


async def test_a_session_is_looked_up_where_it_is(broker_members: Members) -> None:
    """A client without a credential may have it looked up: no other worker answers."""
    one, other, third = (broker_members.join() for _ in range(3))
    one.answers("session", NEVER)
    third.answers("session", NEVER)
    other.answers("session", True)
    other.workers.opened("s")
    assert await one.workers.find_session("s") == "held"
    assert await one.workers.find_session("unknown") == "unknown"


async def test_the_supervisor_says_why_a_session_is_not_found(
    broker_members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker does not answer, and later has died; of many such sessions the latest are remembered."""
    monkeypatch.setattr(broker_module, "LOST_SESSIONS", 2)
    one, other = broker_members.join(), broker_members.join()
    one.answers("session", False)
    other.answers("session", NEVER)
    for session in "abc":
        other.workers.opened(session)
    await eventually(lambda: has_session(other, "c"))
    monkeypatch.setattr(broker_module, "QUERY_S", 0.0)
    assert await one.workers.find_session("a") == "hung"
    assert await one.workers.find_session("x") == "unknown"
    broker_members.broker.detach(other.seen)
    assert sorted([await one.workers.find_session(session) for session in "abc"]) == ["lost", "lost", "unknown"]
    assert await one.workers.find_session("x") == "unknown"


async def test_a_worker_that_fails_to_answer_is_left_out(
    broker_members: Members, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By a bug of ours, which is in the log, or since it does not know the query yet."""
    monkeypatch.setattr(broker_module, "QUERY_S", 0.05)
    one, broken, _ = broker_members.join(), broker_members.join(), broker_members.join()
    one.answers("providers", {"id": "one"})
    broken.answers("providers", RuntimeError("a bug"))
    with caplog.at_level(logging.ERROR, logger="voicepipe"):
        assert await one.workers.providers() == [{"id": "one"}]
    assert [record.__dict__["fields"]["where"] for record in caplog.records] == ["answer providers"]


@pytest.mark.parametrize("end", ["ended", "hangs"])
async def test_a_worker_that_is_gone_is_not_waited_for(broker_members: Members, end: str) -> None:
    """It ended while it was to answer, or its channel takes nothing."""
    one, gone = broker_members.join(), broker_members.join()
    one.answers("providers", {"id": "one"})
    gone.answers("providers", NEVER)
    if end == "hangs":
        gone.seen.channel.close()
    query = asyncio.create_task(one.workers.providers())
    if end == "ended":
        await eventually(lambda: waits_for(broker_members, gone))
        broker_members.broker.detach(gone.seen)
    assert await query == [{"id": "one"}]


async def test_the_query_of_a_worker_that_is_gone_is_dropped(broker_members: Members) -> None:
    """A late answer to it goes to nobody."""
    one, other = broker_members.join(), broker_members.join()
    go_on = asyncio.Event()

    async def slowly(data: bytes) -> bytes:
        await go_on.wait()
        return b"[]"

    other.link.answers["providers"] = slowly
    one.answers("providers", [])
    query = asyncio.create_task(one.workers.providers())
    await eventually(lambda: waits_for(broker_members, other))
    broker_members.broker.detach(one.seen)
    assert broker_members.broker._pending == {}
    go_on.set()
    other.answers("head_room", ProcessLoad(sessions=0, has_head_room=True))
    assert len(await other.workers.loads()) == 1  # behind the late answer on the same channel
    assert not query.done()
    query.cancel()


async def test_what_must_reach_each_worker_fails_where_one_is_silent(
    broker_members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of open sessions says so; a deletion and a file that no other worker has are refused."""
    one, silent = broker_members.join(), broker_members.join()
    for kind, answer in (("sessions", []), ("delete_session", None)):
        one.answers(kind, answer)  # type: ignore[arg-type]
        silent.answers(kind, answer)  # type: ignore[arg-type]
    assert await one.workers.sessions(None) == ListedSessions([], "")
    await one.workers.delete_session("acme", "s")
    one.link.answers["item_audio"] = nothing
    monkeypatch.setattr(broker_module, "QUERY_S", 0.05)
    silent.link.answers.clear()
    assert (await one.workers.sessions(None)).why_more == "a worker of this server does not answer"
    with pytest.raises(Overload, match="does not answer"):
        await one.workers.delete_session("acme", "s")
    with pytest.raises(Overload, match="does not send its audio now"):
        await one.workers.item_audio(None, "s", "i")


async def test_a_call_that_a_silent_worker_may_have_is_not_said_to_be_over(
    broker_members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its backend would not try again, and the call would go on."""
    one, silent = broker_members.join(), broker_members.join()
    named = RtcCallLookup("rtc_1", "acme", None)
    for each in (one, silent):
        each.link.answers["call"] = nothing
        each.answers("hang_up", False)
    assert (await one.workers.session_of_call(named), await one.workers.hang_up(named)) == ("", False)
    monkeypatch.setattr(broker_module, "QUERY_S", 0.05)
    silent.link.answers.clear()
    with pytest.raises(Overload, match="does not answer"):
        await one.workers.session_of_call(named)
    with pytest.raises(Overload, match="does not answer"):
        await one.workers.hang_up(named)


async def nothing(_: bytes) -> bytes:
    return b""


async def waits_for(broker_members: Members, member: Member) -> bool | None:
    """Whether a query waits for this worker alone."""
    return any(pending.missing == {member.seen} for pending in broker_members.broker._pending.values()) or None


async def test_a_supervisor_that_does_not_answer_is_an_overload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "ANSWER_S", 0.01)
    ours, remote = socket.socketpair()
    async with background_tasks() as tasks:
        link = WorkerLink(remote, 0, 2, tasks)
        with pytest.raises(Overload, match="other processes do not answer"):
            await link.query("providers")
        with pytest.raises(Overload, match="supervisor does not answer"):
            async with link.taken("chat", "acme", "token"):
                pytest.fail("it has no slot")
        assert (link._results, link._slots) == ({}, {})
        link.close()
        assert Workers(link, "").relay("s") is None
        ours.close()


async def test_figures_are_read_again_after_a_while_and_stay_while_none_come(
    broker_members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = WorkerState(open={"acme": 1}, storage=[], records_lost=2, lag=None)
    member, now_ms = broker_members.join(), 10_000
    monkeypatch.setattr("voicepipe.server.workers.peers.monotonic_ms", lambda: now_ms)
    member.answers("state", state)
    workers = member.workers
    assert list(await workers.state()) == [state]
    member.answers("state", WorkerState(open={}, storage=[], records_lost=3, lag=None))
    assert list(await workers.state()) == [state]
    now_ms += 900
    assert [each.records_lost for each in await workers.state()] == [3]
    now_ms += 900
    monkeypatch.setattr(link_module, "ANSWER_S", 0.01)
    member.answers("state", NEVER)
    assert [each.records_lost for each in await workers.state()] == [3]


# --- slots, sessions, readers ----------------------------------------------------------------


async def test_sessions_share_the_local_models_of_all_workers(broker_members: Members) -> None:
    """Each request has the limit of its moment; one without a limit gets a slot whatever is taken."""
    one, other = broker_members.join(), broker_members.join()
    async with (
        one.workers.model_slot(2, "") as first,
        other.workers.model_slot(2, "") as second,
        one.workers.model_slot(2, "") as third,
        one.workers.model_slot(None, "") as taken_over,
    ):
        assert (first, second, third, taken_over) == (True, True, False, True)
        async with other.workers.model_slot(3, "") as fourth:
            assert not fourth
        broker_members.broker.detach(one.seen)
        async with other.workers.model_slot(2, "") as fifth:
            assert fifth, "those of a worker that has ended are free"


async def test_a_slot_of_the_local_models_can_be_reserved(
    broker_members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one worker for a session of another; it is free again after its life."""
    now_ms = 0
    monkeypatch.setattr(broker_module, "monotonic_ms", lambda: now_ms)
    one, other = broker_members.join(), broker_members.join()
    assert await one.workers.reserve_model_slot(2, "a", life_ms=10_000)
    assert await other.workers.reserve_model_slot(2, "b", life_ms=10_000)
    assert not await other.workers.reserve_model_slot(2, "c", life_ms=10_000)
    async with other.workers.model_slot(None, "a") as reserved, one.workers.model_slot(2, "") as second:
        assert (reserved, second) == (True, False)
        now_ms = 10_000
        async with one.workers.model_slot(2, "") as third:
            assert third


async def test_the_first_worker_gets_the_turns_of_all_and_the_others_what_it_has_measured(
    broker_members: Members,
) -> None:
    one, other = broker_members.join(), broker_members.join()
    turn = LatestTurn("default", (StageWait("llm_ttft", "fake/llm", 500, 600),))
    assert await other.workers.verdict() is None
    assert await other.workers.share_turns(ProcessTurns(1, (turn,))) is None
    assert await other.workers.verdict() is None
    assert await one.workers.share_turns(ProcessTurns(2)) == (ProcessTurns(1, (turn,)), ProcessTurns(2))
    slower = SlowerStage("llm_ttft", "fake/llm", frozenset({"default"}), 3, 900.0, 60, 400.0)
    for verdict in (StageVerdict(), StageVerdict(3, (slower,))):
        await one.workers.share_verdict(verdict)
        assert await one.workers.verdict() == verdict
    assert await other.workers.verdict() == verdict


async def test_slots_are_those_of_all_workers_and_free_when_one_ends(broker_members: Members) -> None:
    one, other = broker_members.join(), broker_members.join()
    async with one.link.taken("chat", "acme", "") as first, other.link.taken("chat", "acme", "") as second:
        assert (first, second) == (None, None)
        async with other.link.taken("chat", "acme", "") as third:
            assert third == "project"
        broker_members.broker.detach(one.seen)
        async with other.link.taken("chat", "acme", "") as fourth:
            assert fourth is None


class Unread:
    """A channel to a supervisor that reads nothing."""

    def __init__(self, member: Member) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = member.seen.channel._end
        self._read = member.seen.channel.read
        self._loop.remove_reader(self._end)

    def read(self) -> None:
        """Read all, and go on reading."""
        self._loop.add_reader(self._end, self._read)


async def test_files_leave_room_for_what_is_sent_once(
    broker_members: Members, caplog: pytest.LogCaptureFixture
) -> None:
    """Seven workers request a long file of one worker at the same time, while the supervisor is busy: the files beyond
    the bound are refused at once, and the slots are freed all the same."""
    holder, *others = [broker_members.join() for _ in range(8)]
    file = bytes(5_800_000)
    entered, go_on = 0, asyncio.Event()

    async def file_of(_: bytes) -> bytes:
        nonlocal entered
        entered += 1
        await go_on.wait()
        return file

    async def all_entered() -> bool | None:
        return entered == len(others) or None

    holder.link.answers["item_audio"] = file_of
    for each in others:
        each.link.answers["item_audio"] = nothing
    async with asyncio.TaskGroup() as group:
        async with holder.link.taken("chat", "acme", "") as refusal:
            assert refusal is None
            requests = [group.create_task(audio_or_why(each)) for each in others]
            await eventually(all_entered)
            unread = Unread(holder)
            go_on.set()
            await eventually(lambda: has_refused(caplog))
        unread.read()
    found = [each.result() for each in requests]
    assert 2 <= found.count(file) < len(others)
    assert set(found) == {file, "The process of this session does not send its audio now."}
    async with others[0].link.taken("chat", "acme", "") as one, others[0].link.taken("chat", "acme", "") as two:
        assert (one, two) == (None, None), "the slot of the first worker is free"


async def audio_or_why(member: Member) -> bytes | str:
    """The file, or the reason of the refusal."""
    try:
        return await member.workers.item_audio(None, "s", "i")
    except Overload as why:
        return why.why


async def has_refused(caplog: pytest.LogCaptureFixture) -> bool | None:
    return any(record.message == "worker_channel_full" for record in caplog.records) or None


async def test_what_a_busy_supervisor_did_not_take_follows(
    broker_members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In order, as soon as it pings again. A slot that can't be requested is refused at once."""
    one, other = broker_members.join(), broker_members.join()
    async with one.link.taken("chat", "acme", "") as first, one.link.taken("chat", "acme", "") as second:
        assert (first, second) == (None, None)
        send = one.link._channel.send
        monkeypatch.setattr(one.link._channel, "send", lambda *_: False)
    one.workers.opened("a")
    one.workers.closed("a")
    one.workers.opened("b")
    with pytest.raises(Overload, match="supervisor does not answer"):
        async with one.link.taken("chat", "acme", ""):
            pytest.fail("it has no slot")
    assert one.link._slots == {}
    monkeypatch.setattr(one.link._channel, "send", send)
    one.seen.ping()
    await eventually(lambda: has_session(one, "b"))
    assert one.seen.sessions == {"b"}
    async with other.link.taken("chat", "acme", "") as third, other.link.taken("chat", "acme", "") as fourth:
        assert (third, fourth) == (None, None)


async def test_a_worker_that_joins_learns_that_the_live_feed_is_read(broker_members: Members) -> None:
    """And that nobody does any more when the reader's worker has ended."""
    reader, other = broker_members.join(), broker_members.join()
    reader.link.send(Watching(True))
    await eventually(lambda: is_watched(other, True))
    newcomer = broker_members.join()
    await eventually(lambda: is_watched(newcomer, True))
    broker_members.broker.detach(reader.seen)
    await eventually(lambda: is_watched(newcomer, False))


async def is_watched(member: Member, expected: bool) -> bool | None:
    return (member.link.watched is expected) or None


async def test_a_connection_is_passed_to_the_worker_of_its_session(broker_members: Members) -> None:
    """And closed if no worker has it; a message that lost its connection means nothing."""
    one, other = broker_members.join(), broker_members.join()
    arrived: asyncio.Future[tuple[socket.socket, str]] = asyncio.get_running_loop().create_future()
    other.link.on_relay = lambda end, session: arrived.set_result((end, session))
    other.workers.opened("s")
    one.link.send(RelaySession("s"))
    other.seen.channel.send(encoded(TakeConnection()))
    await eventually(lambda: has_session(other, "s"))
    end = one.workers.relay("s")
    unknown = one.workers.relay("unknown")
    assert end is not None
    assert unknown is not None
    there, session = await arrived
    assert session == "s"
    there.sendall(b"hello")
    loop = asyncio.get_running_loop()
    for each, expected in ((end, b"hello"), (unknown, b"")):
        each.setblocking(False)
        assert await loop.sock_recv(each, 100) == expected
        each.close()
    there.close()


async def has_session(member: Member, session: str) -> bool | None:
    return session in member.seen.sessions or None


async def test_the_next_connection_goes_where_least_is_running(
    broker_members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection counts until it has a session or is closed, and for two seconds at most."""
    now_ms = 10_000
    monkeypatch.setattr(broker_module, "monotonic_ms", lambda: now_ms)
    assert broker_members.broker.least_loaded() is None
    one, other = broker_members.join(), broker_members.join()
    for _ in range(2):
        one.seen.given_ms.append(now_ms)
    assert broker_members.broker.least_loaded() is other.seen
    other.link.send(SessionOpened("s"))
    one.link.send(ConnectionClosed())
    one.link.send(ConnectionClosed())
    one.link.send(ConnectionClosed())
    assert broker_members.broker.least_loaded() is one.seen
    one.seen.given_ms.extend([now_ms] * 5)
    assert broker_members.broker.least_loaded() is other.seen
    now_ms += 2_000
    assert broker_members.broker.least_loaded() is one.seen


@pytest.mark.parametrize("is_draining", [False, True])
async def test_a_worker_ends_with_its_supervisor(is_draining: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once if it drains already, as after a second signal."""
    raised: list[int] = []
    monkeypatch.setattr("signal.raise_signal", raised.append)
    ours, remote = socket.socketpair()
    async with background_tasks() as tasks:
        link = WorkerLink(remote, 0, 2, tasks)
        if is_draining:
            link._handle(Stop(), None)
        ours.close()
        link._channel.read()
        assert link.stopped.is_set()
        assert len(raised) == is_draining
        link.close()


# --- figures of several workers ---------------------------------------------------------------


def provider(**changes: object) -> dict[str, object]:
    usual = {"stage": "llm", "id": "v/m", "state": "closed", "retry_in_ms": 0, "opened": 0, "alert": None}
    times = {"ttft_p50_ms": 100, "ttft_p95_ms": None, "itl_ms": 10.04, "tokens_per_s": None}
    return {**usual, "in_flight": 1, "errors": {"timeout": 1}, **times, **changes}


def test_a_provider_of_several_workers_is_one() -> None:
    """Counts are added, the worst state counts, and measured times are means of those that are known."""
    worse = provider(state="open", retry_in_ms=500, opened=2, alert="401: no", errors={"timeout": 2, "refused": 1})
    slower = {**worse, "ttft_p50_ms": 301, "itl_ms": None}
    (one,) = _together([[provider()], [slower], []])
    assert one == {
        **provider(state="open", retry_in_ms=500, opened=2, alert="401: no", in_flight=2),
        "errors": {"timeout": 3, "refused": 1},
        "ttft_p50_ms": 200,
        "itl_ms": 10.0,
    }
    alone = [provider(), provider(id="w/m")]
    assert list(_together([alone])) == alone


def test_figures_of_several_workers_are_sums_and_the_worst() -> None:
    """A store that fails in two of them is named once, since the earlier time."""
    early, late = ({"store": "records", "since": since} for since in ("09:00", "10:00"))
    together = states_together(
        [
            WorkerState(open={"a": 1, "b": 2}, storage=[late], records_lost=1, lag={"p50": 1.0, "p99": 9.0}),
            WorkerState(open={"a": 4}, storage=[early], records_lost=2, lag={"p50": 2.0, "p99": 3.0}),
            WorkerState(open={}, storage=[late], records_lost=0, lag=None),
        ]
    )
    assert (together.open, together.storage, together.records_lost) == ({"a": 5, "b": 2}, [early], 3)
    assert together.lag == {"p50": 2.0, "p99": 9.0}
    assert states_together([]).lag is None
