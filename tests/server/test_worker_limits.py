"""What waits in the workers of one server is bounded for all of them together: connections, request bodies, streams."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.broker_members import CAPS, Member, Members
from voicepipe.clock import loop_s
from voicepipe.server import body_limits
from voicepipe.server.body_limits import CountedBody
from voicepipe.server.gateway.slot_counts import MAX_PER_TOKEN, STREAM_CAPS, SlotCounts
from voicepipe.server.wait_limits import Group, WaitingConnection, of_address, of_session
from voicepipe.server.workers import shared_waits
from voicepipe.server.workers.messages import BeginWait, DropWait, FromWorker, WaitKind
from voicepipe.server.workers.shared_waits import REPORT_BYTES, SharedBodies, SharedWaits
from voicepipe.server.workers.wait_counts import WaitCounts, WorkerWaits
from voicepipe.testing.waiting import eventually

ADDRESS, OTHER_ADDRESS = "192.0.2.1", "192.0.2.2"


class Client:
    """Connections and bodies that wait in a worker; notes which were dropped."""

    def __init__(self, member: Member, dropped: list[str]) -> None:
        self.member, self._dropped = member, dropped
        self.connections = SharedWaits(member.link, "connection", CAPS["connection"])
        self.resuming = SharedWaits(member.link, "resume", CAPS["resume"])
        self.bodies = SharedBodies(member.link)

    def connects(self, name: str, address: str = ADDRESS) -> WaitingConnection:
        return self._begin(self.connections, of_address(address), name)

    def resumes(self, name: str, address: str = ADDRESS, *, session: str = "") -> None:
        self._begin(self.resuming, of_session(session) if session else of_address(address), name)

    def _begin(self, waits: SharedWaits, group: Group, name: str) -> WaitingConnection:
        def drop() -> None:
            self._dropped.append(name)
            waits.end(connection)  # it is closed

        connection = waits.begin(group, drop)
        return connection

    def uploads(self, name: str, n_bytes: int, address: str = ADDRESS) -> CountedBody:
        body = self.bodies.begin(address, partial(self._dropped.append, name))
        self.bodies.grow(body, n_bytes)
        return body

    async def are_reported(self) -> bool | None:
        """Return whether the supervisor was sent all that waits here."""
        waiting = (self.connections.unreported, self.resuming.unreported, self.bodies.unreported, self.bodies.grown)
        return not any(waiting) or None


class Clients:
    """Two workers with what waits in them."""

    def __init__(self, members: Members) -> None:
        self.members, self.dropped = members, list[str]()
        self.one, self.other = (Client(members.join(), self.dropped) for _ in range(2))

    async def handled(self) -> None:
        """Wait until the supervisor has counted all, and the workers have dropped what it says."""
        for client in (self.one, self.other):
            await eventually(client.are_reported)
        await self.members.handled()


@pytest.fixture
async def clients(broker_members: Members, monkeypatch: pytest.MonkeyPatch) -> Clients:
    monkeypatch.setattr(shared_waits, "REPORT_S", 0)
    return Clients(broker_members)


async def test_the_connections_of_an_address_are_limited_in_all_workers_together(clients: Clients) -> None:
    """The oldest is closed, whichever worker has it; other addresses are not concerned."""
    one, other = clients.one, clients.other
    one.connects("other address", OTHER_ADDRESS)
    for client, name in ((one, "first"), (other, "second"), (one, "third"), (other, "fourth")):
        client.connects(name)
        await clients.handled()
    assert clients.dropped == ["first"]


async def test_a_worker_holds_the_limit_at_once(clients: Clients) -> None:
    """The supervisor learns of what waits a little later."""
    for name in ("first", "second", "third", "fourth"):
        clients.one.connects(name)
    assert clients.dropped == ["first"]
    await clients.handled()
    assert clients.dropped == ["first"]


async def test_a_connection_with_a_request_does_not_count(clients: Clients) -> None:
    """Whether its request came before the supervisor knew of it or after."""
    soon, late = clients.one.connects("soon"), clients.one.connects("late")
    clients.one.connections.end(soon)
    await clients.handled()
    assert len(clients.one.member.seen.waits.waits) == 1
    clients.one.connections.end(late)
    for name in ("first", "second", "third"):
        clients.other.connects(name)
    await clients.handled()
    assert (clients.one.member.seen.waits.waits, clients.dropped) == ({}, [])


async def test_a_connection_whose_request_comes_meanwhile_is_not_closed(clients: Clients) -> None:
    """The supervisor drops it before it knows of the request."""
    first = clients.one.connects("first")
    await clients.handled()
    for number in range(CAPS["connection"].per_address):
        begin = BeginWait(number, "connection", of_address(ADDRESS))
        clients.members.broker.handle(clients.other.member.seen, begin, None)
    assert clients.one.member.seen.waits.waits == {}
    clients.one.connections.end(first)
    await clients.handled()
    assert clients.dropped == []


async def test_what_a_dead_worker_had_does_not_count(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limits, "ADDRESS_BODIES", 1)
    for name in ("first", "second", "third"):
        clients.one.connects(name)
    clients.one.uploads("upload", REPORT_BYTES)
    await clients.handled()
    clients.members.broker.detach(clients.members.members.pop(0).seen)
    for name in ("fourth", "fifth", "sixth"):
        clients.other.connects(name)
    clients.other.uploads("another", REPORT_BYTES)
    await clients.handled()
    assert clients.dropped == []


async def test_connections_that_resume_are_limited_in_all_workers_together(clients: Clients) -> None:
    """Per address, per session, and in all: then the address with the most loses its oldest."""
    one, other = clients.one, clients.other
    for name, client in (("s1", one), ("s2", other)):
        client.resumes(name, session="sess_1")
        await clients.handled()
    assert clients.dropped == ["s1"]
    for client, name in ((one, "first"), (other, "second"), (one, "third")):
        client.resumes(name)
        await clients.handled()
    assert clients.dropped == ["s1", "first"]
    for number, client in enumerate((one, other, one)):
        client.resumes(f"far {number}", f"198.51.100.{number}")
        await clients.handled()
    assert clients.dropped == ["s1", "first", "second"]


async def test_bodies_have_the_same_memory_in_all_workers_together(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client with the most bytes loses its slowest body, which does not count any more."""
    monkeypatch.setattr(body_limits, "ALL_BYTES", 10 * REPORT_BYTES)
    one, other = clients.one, clients.other
    one.uploads("small", REPORT_BYTES, OTHER_ADDRESS)
    slowest = one.uploads("slowest", 4 * REPORT_BYTES)
    await clients.handled()
    other.uploads("fast", 6 * REPORT_BYTES)
    await clients.handled()
    assert (clients.dropped, slowest.is_counted) == (["slowest"], False)
    other.uploads("third", 3 * REPORT_BYTES, OTHER_ADDRESS)
    await clients.handled()
    assert clients.dropped == ["slowest"]
    one.bodies.end(slowest)
    other.uploads("fourth", 1, OTHER_ADDRESS)
    await clients.handled()
    assert clients.dropped == ["slowest", "fast"]


async def test_an_address_has_the_same_number_of_bodies_in_all_workers_together(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they are small, once they have been in transit for a while."""
    monkeypatch.setattr(body_limits, "ADDRESS_BODIES", 2)
    clients.one.uploads("fast", 3_000)
    clients.other.uploads("slow", 1_000)
    await clients.handled()
    clients.one.uploads("new", 2_000)
    clients.one.uploads("elsewhere", 1_000, OTHER_ADDRESS)
    await clients.handled()
    assert clients.dropped == ["slow"]


async def test_a_body_of_single_bytes_costs_few_messages(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the supervisor knows its size nevertheless."""
    member, sent = clients.one.member, list[str]()
    send = member.link.send

    def noted(message: FromWorker) -> bool:
        sent.append(type(message).__name__)
        return send(message)

    monkeypatch.setattr(member.link, "send", noted)
    body = clients.one.uploads("upload", 0)
    for _ in range(2 * REPORT_BYTES + 1):
        clients.one.bodies.grow(body, 1)
    await clients.handled()
    (counted,) = member.seen.waits.bodies.values()
    assert counted.n_bytes == body.n_bytes == 2 * REPORT_BYTES + 1
    clients.one.bodies.end(body)
    assert [name for name in sent if name != "GetHints"] == ["BeginWait", *["GrowBody"] * 3, "EndWait"]


async def test_the_slowest_body_is_the_one_that_stalls(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one that has grown since its first report, whichever worker has it."""
    monkeypatch.setattr(body_limits, "ADDRESS_BODIES", 2)
    growing = clients.one.uploads("growing", 1)
    clients.other.uploads("stalled", REPORT_BYTES // 2)
    await clients.handled()
    clients.one.bodies.grow(growing, REPORT_BYTES - 2)
    await clients.handled()
    clients.other.uploads("new", 1)
    await clients.handled()
    assert clients.dropped == ["stalled"]


async def test_one_that_ended_while_the_supervisor_read_nothing_does_not_count_beside_the_next(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = clients.one
    ended = [client.connects(name) for name in ("first", "second", "third")]
    await clients.handled()
    with monkeypatch.context() as silent:
        silent.setattr(client.member.link._channel, "send", lambda data, passed=None: False)
        for connection in ended:
            client.connections.end(connection)
    for name in ("fourth", "fifth", "sixth"):
        client.connects(name)
    await clients.handled()
    assert (len(client.member.seen.waits.waits), clients.dropped) == (3, [])


async def test_what_ends_soon_costs_no_message(broker_members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests one after the other on one connection, and bodies that come at once."""
    client, sent = Client(broker_members.join(), []), list[FromWorker]()
    monkeypatch.setattr(client.member.link, "send", sent.append)
    for _ in range(100):
        client.connections.end(client.connects("connection"))
        client.bodies.end(client.uploads("body", REPORT_BYTES - 1))
    assert (sent, await client.are_reported()) == ([], True)


async def test_what_waits_is_not_counted_while_the_supervisor_reads_nothing(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request waits for it."""
    client = clients.one
    with monkeypatch.context() as silent:
        silent.setattr(client.member.link._channel, "send", lambda data, passed=None: False)
        connection, body = client.connects("first"), client.uploads("upload", REPORT_BYTES)
        await eventually(client.are_reported)
    client.connections.end(connection)
    client.bodies.end(body)
    await clients.handled()
    assert (client.member.seen.waits.waits, client.member.seen.waits.bodies, clients.dropped) == ({}, {}, [])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["connection", "resume", "body", "end", "grow", "die"]),
            st.integers(0, 1),
            st.integers(0, 5),
        ),
        max_size=60,
    )
)
async def test_nothing_counts_once_all_have_ended(steps: list[tuple[str, int, int]]) -> None:
    """Whatever comes in which order: the limits hold, and what ends is free."""
    counts, dropped = WaitCounts(CAPS), list[DropWait]()
    workers = [WorkerWaits(dropped.append) for _ in range(2)]
    for number, (step, which, more) in enumerate(steps):
        worker = workers[which]
        running = sorted((*worker.waits, *worker.bodies))
        match step:
            case "connection" | "resume" | "body":
                what: WaitKind = step
                counts.begin(worker, BeginWait(number, what, of_address(f"192.0.2.{more % 2}")))
            case "end":
                counts.end(worker, running[more % len(running)] if running else number)
            case "grow":
                counts.grow(worker, running[more % len(running)] if running else number, 100 * number)
            case "die":
                counts.end_all(worker)
        for kind, caps in CAPS.items():
            held = [wait for each in workers for limits, wait in each.waits.values() if limits is counts._limits[kind]]
            assert len(held) == len(counts._limits[kind]) <= 2 * caps.per_address
    for worker in workers:
        counts.end_all(worker)
    assert [len(limits) for limits in counts._limits.values()] == [0, 0]
    assert (len(counts._bodies), counts._bodies.n_bytes) == (0, 0)


def test_client_secrets_leave_streams_for_operators() -> None:
    """One has a few streams, all together have half of them."""
    slots = SlotCounts(STREAM_CAPS)
    assert [slots.take("acme", "a") for _ in range(MAX_PER_TOKEN + 1)] == [None] * MAX_PER_TOKEN + ["token"]
    for number in range(STREAM_CAPS.of_tokens - MAX_PER_TOKEN):
        assert slots.take("acme", f"t{number}") is None
    assert slots.take("acme", "new") == "tokens"
    for _ in range(STREAM_CAPS.all - STREAM_CAPS.of_tokens):
        assert slots.take("acme", "") is None
    assert slots.take("acme", "") == "full"
    slots.free("acme", "a")
    assert slots.take("acme", "new") is None


async def test_a_rate_counts_from_the_beginning() -> None:
    """As if one more second had passed: a body that has just started is not slow yet."""
    body = CountedBody(ADDRESS, lambda: None, n_bytes=600, began_s=loop_s() - 5)
    assert body.rate == pytest.approx(100, rel=0.1)
