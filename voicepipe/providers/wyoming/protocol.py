"""Wyoming, the protocol of Home Assistant's STT and TTS: events over TCP, as lines of JSON with bytes after them.

    async with connected(address) as line:
        await line.write("synthesize", {"text": "Hello."})
        event = await line.read()

An event is a line `{"type", "data", "data_length", "payload_length"}`, then `data_length` bytes of JSON that are merged
into `data`, then `payload_length` bytes of audio. Source: the README of the protocol's own package, `wyoming`, and its
`event.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from voicepipe.errors import ConfigError, StageError, StageTimeout
from voicepipe.providers.net import failures
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.registry import ProviderSettings, Spec, Stage

SCHEME: Final = "tcp://"

EVENT_BYTES: Final = 1 << 20
"""Maximum length of a line, of its data and of its audio."""


class WyomingEvent(msgspec.Struct, frozen=True):
    """An event."""

    type: str
    data: dict[str, Any]
    payload: bytes = b""


class _Head(msgspec.Struct):
    type: str
    data: dict[str, Any] | None = None
    data_length: int | None = None
    payload_length: int | None = None


_head = msgspec.json.Decoder(_Head)
_data = msgspec.json.Decoder(dict[str, Any])


def encoded(kind: str, data: dict[str, Any], payload: bytes = b"") -> bytes:
    """Return an event's bytes."""
    body = msgspec.json.encode(data)
    head = {"type": kind, "version": "1.10.2", "data_length": len(body), "payload_length": len(payload)}
    return msgspec.json.encode(head) + b"\n" + body + payload


def sound(rate_hz: int) -> dict[str, Any]:
    """The audio format of events: 16-bit mono."""
    return {"rate": rate_hz, "width": 2, "channels": 1, "timestamp": None}


def peer_of(stage: Stage, spec: Spec, settings: ProviderSettings) -> ProviderAddress:
    """Return the address that `settings` describe.

    Raises:
        ConfigError: its address is not one of Wyoming's.
    """
    url = urlsplit(settings.base_url)
    try:
        fits = settings.base_url.startswith(SCHEME) and url.hostname is not None and url.port is not None
    except ValueError:  # an invalid port
        fits = False
    if not fits:
        raise ConfigError(
            f'providers.{spec.provider}.base_url: expected "tcp://HOST:PORT", such as "tcp://127.0.0.1:10300", '
            f"got {settings.base_url!r}"
        )
    return ProviderAddress(
        stage=stage,
        name=str(spec),
        base_url=settings.base_url,
        connect_timeout_ms=settings.connect_timeout_ms,
        idle_timeout_ms=settings.idle_timeout_ms,
    )


class WyomingLine:
    """A connection; see `connected`."""

    def __init__(self, address: ProviderAddress, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._address, self._reader, self._writer = address, reader, writer

    async def write(self, kind: str, data: dict[str, Any], payload: bytes = b"") -> None:
        """Send an event.

        Raises:
            StageError: the connection was cut, or the server reads nothing.
        """
        self._writer.write(encoded(kind, data, payload))
        try:
            async with asyncio.timeout(self._address.idle_timeout_ms / 1_000):
                await self._writer.drain()
        except TimeoutError:
            raise self._stalled() from None
        except OSError:
            raise self._cut() from None

    async def read(self) -> WyomingEvent:
        """Return the next event.

        Raises:
            StageError: it is an error or none of the protocol's, the connection was cut, or nothing came within the
                timeout.
        """
        try:
            async with asyncio.timeout(self._address.idle_timeout_ms / 1_000):
                event = await self._read()
        except TimeoutError:
            raise self._stalled() from None
        except (OSError, asyncio.IncompleteReadError):
            raise self._cut() from None
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            raise failures.broken(self._address, f"expected a Wyoming event ({error})") from None
        if event.type == "error":
            text, code = event.data.get("text"), event.data.get("code")
            raise failures.in_band(self._address, msgspec.json.encode({"message": text, "code": code}))
        return event

    async def _read(self) -> WyomingEvent:
        line = await self._reader.readline()
        if not line.endswith(b"\n"):
            raise asyncio.IncompleteReadError(line, None)
        head = _head.decode(line)
        data = dict(head.data or {})
        if head.data_length:
            data |= _data.decode(await self._exactly(head.data_length))
        payload = await self._exactly(head.payload_length) if head.payload_length else b""
        return WyomingEvent(head.type, data, payload)

    async def _exactly(self, n_bytes: int) -> bytes:
        if not 0 < n_bytes <= EVENT_BYTES:
            raise ValueError(f"{n_bytes} bytes at once")
        return await self._reader.readexactly(n_bytes)

    def _stalled(self) -> StageError:
        why = f"no data for {self._address.idle_timeout_ms} ms"
        return StageTimeout(self._address.stage, provider=self._address.name, why=why, retryable=True)

    def _cut(self) -> StageError:
        return failures.broken(self._address, "the connection was cut")


@asynccontextmanager
async def connected(address: ProviderAddress) -> AsyncIterator[WyomingLine]:
    """Open a connection; leaving closes it at once, which the server takes as a cancel.

    Raises:
        StageError: no server answers at `address.base_url`.
    """
    url = urlsplit(address.base_url)
    with failures.WsOpening(address):
        async with asyncio.timeout(address.connect_timeout_ms / 1_000):
            reader, writer = await asyncio.open_connection(url.hostname, url.port, limit=EVENT_BYTES)
    try:
        yield WyomingLine(address, reader, writer)
    finally:
        writer.transport.abort()
