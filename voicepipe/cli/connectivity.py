"""Check whether a provider's address accepts connections: TCP, and TLS where the address has it. No data is sent."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from voicepipe import clock

CONNECT_TIMEOUT_S: Final = 3.0
"""A provider that takes longer cannot answer within a second anyway."""

TLS_SCHEMES: Final = ("https", "wss")


async def reached(base_urls: Iterable[str]) -> dict[str, str]:
    """Return how long connecting to each took, `23 ms`, or `no: ` and the reason of the failure; all concurrently."""
    urls = list(dict.fromkeys(base_urls))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_reached(url), name=f"reach {url}") for url in urls]
    return {url: task.result() for url, task in zip(urls, tasks, strict=True)}


async def _reached(base_url: str) -> str:
    address = urlsplit(base_url)
    is_tls = address.scheme in TLS_SCHEMES
    began_ms = clock.monotonic_ms()
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            port = address.port or (443 if is_tls else 80)
            _, writer = await asyncio.open_connection(address.hostname, port, ssl=is_tls or None)
    except TimeoutError:
        return f"no: nothing within {CONNECT_TIMEOUT_S:g} s"
    except (OSError, ValueError) as why:
        return f"no: {reason_of(why)}"
    took_ms = clock.monotonic_ms() - began_ms
    writer.transport.abort()  # a clean close would have to be waited for
    return f"{took_ms} ms"


def reason_of(why: OSError | ValueError) -> str:
    """Return a short reason, to fit a table."""
    if isinstance(why, ConnectionRefusedError):
        return "refused"
    if isinstance(why, ssl.SSLCertVerificationError):
        return f"certificate: {why.verify_message}"
    return getattr(why, "strerror", None) or str(why) or type(why).__name__
