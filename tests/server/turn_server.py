"""A small STUN and TURN server (RFC 8489 and 8656): bindings, allocations with a password, and channels.

It is reached over UDP, TCP or TLS; what it relays is UDP in any case.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, Literal, cast

from aioice import stun
from aioice.turn import is_channel_data, make_integrity_key

Address = tuple[str, int]

REALM: Final = "voicepipe.test"
NONCE: Final = b"a nonce"
LIFETIME_S: Final = 600

HEAD_BYTES: Final = 4
STUN_HEAD_BYTES: Final = 20


class Relay(asyncio.DatagramProtocol):
    """One allocation: a port of its own, and the channels to its peers."""

    def __init__(self, server: TurnServer, client: Address) -> None:
        self._server, self._client = server, client
        self.channels: dict[int, Address] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: Address) -> None:
        """Pass on what a peer sends: on its channel, or as an indication if another port of its address has one."""
        if addr[0] not in {host for host, _ in self.channels.values()}:
            return
        self._server.n_relayed += 1
        for number, peer in self.channels.items():
            if peer == addr:
                self._server.send(struct.pack("!HH", number, len(data)) + data, self._client)
                return
        attributes = {"XOR-PEER-ADDRESS": addr, "DATA": data}
        indication = stun.Message(stun.Method.DATA, stun.Class.INDICATION, attributes=attributes)
        self._server.send(bytes(indication), self._client)


class Stream(asyncio.Protocol):
    """A client's connection over TCP or TLS: messages are padded to 4 bytes (RFC 8656, section 12.5)."""

    def __init__(self, server: TurnServer) -> None:
        self._server, self._received = server, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._client: Address = transport.get_extra_info("peername")
        self._server.streams[self._client] = self._transport

    def data_received(self, data: bytes) -> None:
        """Take all messages that are complete now."""
        self._received += data
        while len(self._received) >= HEAD_BYTES:
            (length,) = struct.unpack("!H", self._received[2:HEAD_BYTES])
            n_bytes = length + (HEAD_BYTES if is_channel_data(self._received) else STUN_HEAD_BYTES)
            n_padded = -(-n_bytes // 4) * 4
            if len(self._received) < n_padded:
                return
            self._server.datagram_received(self._received[:n_bytes], self._client)
            self._received = self._received[n_padded:]


class TurnServer(asyncio.DatagramProtocol):
    """The server. A binding's address is `mapped`, if that is given, as behind a NAT."""

    def __init__(self, username: str, password: str, mapped: Address | None) -> None:
        self._username, self._mapped = username, mapped
        self._key = make_integrity_key(username, REALM, password)
        self._relays: dict[Address, Relay] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.streams: dict[Address, asyncio.Transport] = {}
        """The connections over TCP or TLS, by the client's address."""

        self.n_relayed = 0
        """Packets of peers that were passed on."""

        self.received = b""
        """All that clients have sent."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: Address) -> None:
        """Answer a request, or pass on the data of a channel."""
        self.received += data
        if is_channel_data(data):
            number, length = struct.unpack("!HH", data[:4])
            relay = self._relays[addr]
            relay.transport.sendto(data[4 : 4 + length], relay.channels[number])
            return
        task = asyncio.get_running_loop().create_task(self._answer(stun.parse_message(data), addr))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, request: stun.Message, client: Address) -> None:
        if request.message_method is stun.Method.BINDING:
            self._send(request, client, {"XOR-MAPPED-ADDRESS": self._mapped or client}, is_signed=False)
        elif not self._is_known(request):
            denied = {"ERROR-CODE": (401, "Unauthorized"), "REALM": REALM, "NONCE": NONCE}
            self._send(request, client, denied, stun.Class.ERROR, is_signed=False)
        elif request.message_method is stun.Method.ALLOCATE:
            self._send(request, client, await self._allocated(client))
        elif request.message_method is stun.Method.CHANNEL_BIND:
            channel = request.attributes["CHANNEL-NUMBER"]
            self._relays[client].channels[channel] = request.attributes["XOR-PEER-ADDRESS"]
            self._send(request, client, {})
        else:
            self._send(request, client, {"LIFETIME": request.attributes["LIFETIME"]})

    def _is_known(self, request: stun.Message) -> bool:
        return request.attributes.get("USERNAME") == self._username and request.check_message_integrity(self._key)

    async def _allocated(self, client: Address) -> dict[str, Any]:
        transport, relay = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: Relay(self, client), ("127.0.0.1", 0)
        )
        self._relays[client] = relay
        at = transport.get_extra_info("sockname")
        return {"XOR-RELAYED-ADDRESS": at, "XOR-MAPPED-ADDRESS": client, "LIFETIME": LIFETIME_S}

    def _send(
        self,
        request: stun.Message,
        client: Address,
        attributes: dict[str, Any],
        kind: stun.Class = stun.Class.RESPONSE,
        *,
        is_signed: bool = True,
    ) -> None:
        answer = stun.Message(request.message_method, kind, request.transaction_id, attributes)
        if is_signed:
            answer.add_message_integrity(self._key)
        self.send(bytes(answer), client)

    def send(self, data: bytes, client: Address) -> None:
        """Send to a client, the way that it has come."""
        if client in self.streams:
            self.streams[client].write(data + bytes(-len(data) % 4))
        else:
            self.transport.sendto(data, client)

    def close(self) -> None:
        """Close all ports."""
        for task in self._tasks:
            task.cancel()
        for relay in self._relays.values():
            relay.transport.close()
        for stream in self.streams.values():
            stream.abort()
        self.transport.close()


@asynccontextmanager
async def turn_server(
    username: str = "",
    password: str = "",
    *,
    mapped: Address | None = None,
    over: Literal["udp", "tcp", "tls"] = "udp",
    certificate: ssl.SSLContext | None = None,
) -> AsyncIterator[tuple[TurnServer, int]]:
    """Run a server while the block runs; yields it and its port. `certificate` is for `tls`."""
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(
        lambda: TurnServer(username, password, mapped), ("127.0.0.1", 0)
    )
    listening = None
    try:
        if over == "udp":
            yield server, transport.get_extra_info("sockname")[1]
        else:
            listening = await loop.create_server(lambda: Stream(server), "127.0.0.1", 0, ssl=certificate)
            yield server, listening.sockets[0].getsockname()[1]
    finally:
        if listening is not None:
            listening.close()
        server.close()
