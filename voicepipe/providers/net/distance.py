"""Measure how far a provider's address is: TCP, and TLS where the address has it. No data is sent."""

from __future__ import annotations

import asyncio
import ssl
from functools import cache
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from voicepipe import clock

TIMEOUT_S: Final = 3.0
"""A provider that takes longer to connect can't answer within a second."""

TLS_SCHEMES: Final = ("https", "wss")


class Distance(Struct, frozen=True):
    """The way to an address: the shortest of several tries, since what is longer is the machine or a queue."""

    round_trip_ms: float
    """One TCP handshake, without the look-up of the name: a message there and back."""

    connect_ms: float
    """A whole connection: the look-up of the name, TCP, and TLS where the address has it."""


async def distance_of(base_url: str, *, tries: int) -> Distance:
    """Return how far an address is.

    Raises:
        OSError: it does not accept connections, or its certificate is refused; TimeoutError after `TIMEOUT_S`.
        ValueError: it is no address.
    """
    address = urlsplit(base_url)
    is_tls = address.scheme in TLS_SCHEMES
    port = address.port or (443 if is_tls else 80)
    if address.hostname is None:
        raise ValueError(f"expected an address with a host, got {base_url!r}")
    if is_tls:
        await asyncio.to_thread(_certificates)
    connects_ms, round_trips_ms = [], []
    for _ in range(tries):
        connects_ms.append(await _connect_ms(address.hostname, port, is_tls=is_tls))
        # The name is known now, so that this is the handshake alone.
        round_trips_ms.append(await _connect_ms(address.hostname, port, is_tls=False))
    return Distance(min(round_trips_ms), min(connects_ms))


async def _connect_ms(host: str, port: int, *, is_tls: bool) -> float:
    began_s = clock.loop_s()
    async with asyncio.timeout(TIMEOUT_S):
        _, writer = await asyncio.open_connection(host, port, ssl=_certificates() if is_tls else None)
    took_ms = 1_000 * (clock.loop_s() - began_s)
    writer.transport.abort()  # a clean close would have to be waited for
    return took_ms


@cache
def _certificates() -> ssl.SSLContext:
    """Return the machine's certificates. The first call reads them all, for tens of milliseconds: make it in a
    thread."""
    return ssl.create_default_context()
