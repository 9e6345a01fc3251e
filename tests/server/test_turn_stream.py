"""The live stream sends turns as they end and marks as they come to permitted clients, and delays no other client."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from voicepipe.auth.tokens import session_prefix, verify
from voicepipe.clock import unix_s
from voicepipe.server import streaming
from voicepipe.server.api import stream
from voicepipe.server.gateway.slot_counts import STREAM_CAPS
from voicepipe.telemetry.live_feed import Reader
from voicepipe.telemetry.store.port import StoredTurn
from voicepipe.testing.records import turn_record
from voicepipe.testing.waiting import WAIT_S, eventually
from voicepipe.values import replace


def stored_turn(id: str, *, project: str = "acme", session: str = "sess_1") -> StoredTurn:
    return StoredTurn(replace(turn_record(), id=id, session=session), project, "default", 1)


class Events:
    """A stream as its reader sees it."""

    def __init__(self, answer: Any) -> None:
        self._lines = answer.content

    async def next(self, kind: str) -> tuple[Any, str]:
        """The next event of that kind: its data, and its id."""
        async with asyncio.timeout(WAIT_S):
            while True:
                fields = await self._fields()
                if fields.get("event") == kind:
                    return json.loads(fields["data"]), fields.get("id", "")

    async def _fields(self) -> dict[str, str]:
        fields = {}
        while (line := (await self._lines.readline()).decode()) not in ("\n", ""):
            name, _, value = line.rstrip("\n").partition(": ")
            fields[name] = value
        if not line:
            raise EOFError
        return fields


@asynccontextmanager
async def reading(server: Any, path: str = "/v1/turns/stream", **headers: str) -> AsyncIterator[Events]:
    async with server.http.get(server.base + path, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert "no-transform" in answer.headers["Cache-Control"]
        yield Events(answer)


async def test_a_turn_is_sent_as_it_ends(serve: Any) -> None:
    """As the API serves it; not another project's."""
    async with serve() as server, reading(server, **server.new_key()) as events:
        await events.next("sessions")
        server.context.feed.on_record(stored_turn("theirs", project="bank"))
        server.context.feed.on_record(stored_turn("mine"))
        turn, _ = await events.next("turn")
        assert (turn["id"], turn["project"], turn["object"]) == ("mine", "acme", "voicepipe.turn")


async def test_marks_of_running_turns_are_sent_while_a_client_reads(serve: Any) -> None:
    async with serve() as server:
        assert not server.context.feed.is_watched
        async with reading(server, "/v1/turns/stream?session=sess_2") as events:
            await events.next("sessions")
            assert server.context.feed.is_watched
            server.context.feed.publish_live("acme", "sess_1", lambda: {"mark": "llm_requested"})
            server.context.feed.publish_live("acme", "sess_2", lambda: {"mark": "ended"})
            assert (await events.next("live"))[0] == {"mark": "ended"}


async def test_who_comes_back_gets_what_they_missed(serve: Any) -> None:
    """A client resumes by the header that browsers send, or by the address; a client that is too late is notified of
    the gap.
    """
    async with serve() as server:
        async with reading(server) as events:
            await events.next("sessions")
            server.context.feed.on_record(stored_turn("a"))
            _, seen = await events.next("turn")
        server.context.feed.on_record(stored_turn("b"))
        async with reading(server, **{"Last-Event-ID": seen}) as events:
            assert (await events.next("turn"))[0]["id"] == "b"
        async with reading(server, f"/v1/turns/stream?after={seen}") as events:
            assert (await events.next("dropped"))[0] == {"records": 0, "events": 0, "gap": False}
        async with reading(server, **{"Last-Event-ID": "of-before-1"}) as events:
            assert (await events.next("dropped"))[0]["gap"] is True


async def test_lost_events_are_reported(serve: Any, monkeypatch: Any) -> None:
    """How many events this reader was too slow for."""
    monkeypatch.setattr(stream, "CHECK_S", 0.01)
    readers: list[Reader] = []
    async with serve() as server, reading(server) as events:
        await events.next("sessions")
        readers += server.context.feed._readers
        for number in range(1_005):  # in one go: the stream has no chance to read in between
            server.context.feed.on_record(stored_turn(f"t{number}"))
        dropped = (await events.next("dropped"))[0]
        while dropped["events"] == 0:
            dropped = (await events.next("dropped"))[0]
        assert dropped["events"] == readers[0].lost == 5


async def test_a_stuck_reader_delays_no_other(serve: Any, monkeypatch: Any) -> None:
    """On a real socket: its events are dropped and counted, another reader gets every one of them."""
    monkeypatch.setattr(streaming, "STUCK_S", 3 * WAIT_S)
    async with serve() as server, reading(server) as quick:
        await quick.next("sessions")
        known = set(server.context.feed._readers)

        async def joined() -> set[Reader] | None:
            return server.context.feed._readers - known or None

        address = urlsplit(server.base)
        line = socket.socket()
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)  # the system keeps less on its behalf, too
        line.setblocking(False)
        await asyncio.get_running_loop().sock_connect(line, (address.hostname, address.port))
        _, writer = await asyncio.open_connection(sock=line, limit=1_024)
        writer.write(b"GET /v1/turns/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        try:
            async with asyncio.timeout(3 * WAIT_S):
                slow = await eventually(joined)
                n_sent = 0
                while not server.context.feed.dropped:
                    for _ in range(50):
                        server.context.feed.on_record(stored_turn(f"t{n_sent}"))
                        assert (await quick.next("turn"))[0]["id"] == f"t{n_sent}"
                        n_sent += 1
        finally:
            writer.transport.abort()
        assert {reader.lost for reader in known} == {0}
        assert sum(reader.lost for reader in slow) > 0


async def test_sessions_are_counted_as_they_come_and_go(serve: Any, gate: Any, monkeypatch: Any) -> None:
    """One's own project's."""
    monkeypatch.setattr(stream, "CHECK_S", 0.01)
    async with serve() as server:
        server.talks.append(gate)
        key, other = server.new_key(), server.new_key("bank")
        async with reading(server, **key) as events, reading(server, **other) as theirs:
            assert (await events.next("sessions"))[0] == {"open": 0}
            assert (await theirs.next("sessions"))[0] == {"open": 0}
            async with server.connect(headers=key):
                assert (await events.next("sessions"))[0] == {"open": 1}
                gate.go.set()
            assert (await events.next("sessions"))[0] == {"open": 0}


async def test_a_client_secret_gets_only_its_own_sessions(serve: Any) -> None:
    """And not how many others there are."""
    async with serve() as server:
        token = server.forge(scopes=["realtime", "turns"])
        claims = verify(token, server.context.key_store.keyring(unix_s()), now_s=unix_s())
        own = f"{session_prefix(claims)}1"
        async with server.http.get(
            f"{server.base}/v1/turns/stream", headers={"Authorization": f"Bearer {token}"}
        ) as answer:
            events = Events(answer)
            assert (await events._fields()) == {"retry": "1000"}
            server.context.feed.on_record(stored_turn("theirs"))
            server.context.feed.on_record(stored_turn("mine", session=own))
            fields = await events._fields()
            assert (fields["event"], json.loads(fields["data"])["id"]) == ("turn", "mine")


async def test_a_key_that_is_revoked_is_cut_off(serve: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(stream, "CHECK_S", 0.01)
    monkeypatch.setattr(stream, "CHECK_MS", 0)
    async with serve() as server:
        key = server.api_keys.create("acme", now_s=1)
        async with reading(server, Authorization=f"Bearer {key.text}") as events:
            await events.next("sessions")
            server.api_keys.revoke(key.key.id, now_s=2)
            try:
                while True:
                    await events.next("turn")
            except EOFError:
                pass


async def test_there_are_only_so_many_streams_and_a_left_one_is_free(serve: Any) -> None:
    async with serve() as server:
        async with AsyncExitStack() as stack:
            for _ in range(STREAM_CAPS.all):
                await stack.enter_async_context(reading(server))
            status, body = await server.get("/v1/turns/stream")
            assert (status, body["error"]["code"]) == (503, "server_overloaded")
            assert "Too many concurrent live streams (limit 32)" in body["error"]["message"]
        await eventually(lambda: is_free(server))


async def is_free(server: Any) -> bool | None:
    """Return whether another stream can be read: the server sees a little later that one has ended."""
    async with server.http.get(f"{server.base}/v1/turns/stream") as answer:
        return answer.status == 200 or None


async def test_a_silent_line_has_a_heartbeat(serve: Any, monkeypatch: Any) -> None:
    """A comment, which readers skip."""
    monkeypatch.setattr(stream, "CHECK_S", 0.01)
    monkeypatch.setattr(stream, "HEARTBEAT_MS", 20)
    async with serve() as server, server.http.get(f"{server.base}/v1/turns/stream") as answer:
        async with asyncio.timeout(WAIT_S):
            while await answer.content.readline() != b":\n":
                pass


async def test_the_server_stops_while_a_client_reads(serve: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(stream, "CHECK_S", 0.01)
    async with serve() as server, reading(server) as events:
        await events.next("sessions")
        server.context.live_sessions.closing = True
        try:
            await events.next("turn")
        except EOFError:
            return
        raise AssertionError("expected the end of the stream")
