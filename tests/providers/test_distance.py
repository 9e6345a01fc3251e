"""The way to a provider's address: two connections for each try, and no data."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from voicepipe.providers.net import distance
from voicepipe.providers.net.distance import distance_of


class Counted:
    """A server that counts connections and what they send."""

    def __init__(self) -> None:
        self.n_connections = 0
        self.received = b""
        self.port = 0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.n_connections += 1
        with suppress(ConnectionError):  # the measurement aborts
            self.received += await reader.read(100)
        writer.transport.abort()


@pytest.fixture
async def server() -> AsyncIterator[Counted]:
    counted = Counted()
    async with await asyncio.start_server(counted.accept, "127.0.0.1", 0) as listening:
        counted.port = listening.sockets[0].getsockname()[1]
        yield counted


async def test_the_shortest_of_several_connections(server: Counted) -> None:
    found = await distance_of(f"http://127.0.0.1:{server.port}/v1", tries=3)
    assert 0 < found.round_trip_ms < 3_000
    assert 0 < found.connect_ms < 3_000
    assert server.n_connections == 6
    assert server.received == b""


async def test_tls_is_a_part_of_a_connection(server: Counted) -> None:
    """Where the address has it: a server without TLS fails."""
    with pytest.raises((ConnectionError, ssl.SSLError)):
        await distance_of(f"wss://127.0.0.1:{server.port}/v1", tries=1)
    assert server.received.startswith(b"\x16")  # a handshake, RFC 8446


async def test_certificates_are_read_once_and_beside_the_event_loop(
    server: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes tens of milliseconds, which calls would wait for."""
    threads: list[int] = []
    read = ssl.create_default_context

    def noted(*args: Any, **more: Any) -> ssl.SSLContext:
        threads.append(threading.get_ident())
        return read(*args, **more)

    monkeypatch.setattr(ssl, "create_default_context", noted)
    distance._certificates.cache_clear()
    for _ in range(2):
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await distance_of(f"https://127.0.0.1:{server.port}/v1", tries=2)
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


async def test_what_has_no_distance() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        closed = held.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        await distance_of(f"http://127.0.0.1:{closed}", tries=1)
    with pytest.raises(ValueError, match="expected an address with a host, got 'nowhere'"):
        await distance_of("nowhere", tries=1)
