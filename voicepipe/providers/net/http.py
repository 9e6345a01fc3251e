"""Keep-alive HTTP to vendors: one connection pool for each event loop, shared by every adapter in it.

An adapter is made once, outside of any loop, and gets the pool when it has a request to send. The composition root
closes the pool: `async with http.lifetime(): ...` around everything that uses providers.
"""

from __future__ import annotations

import asyncio
import io
import weakref
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace

import aiohttp

from voicepipe.errors import StageError
from voicepipe.providers.net import failures
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.telemetry.tracing.port import OUTGOING

KEEP_ALIVE_S = 120
"""The idle time after which an unused connection is closed. Users think for seconds; a new TLS connection costs two
round trips."""

READ_BYTES = 9_600
"""Maximum size of one read: 200 ms of 24 kHz speech."""

ERROR_BODY_BYTES = 16_384
"""Maximum size of an error's body that is read."""

_POOLS: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, aiohttp.ClientSession] = weakref.WeakKeyDictionary()


def _pool() -> aiohttp.ClientSession:
    loop = asyncio.get_running_loop()
    pool = _POOLS.get(loop)
    if pool is None or pool.closed:
        # No limit on connections: sessions are limited above, and a wait here would look like a slow vendor.
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S, ttl_dns_cache=300)
        # identity: a compressing proxy holds an event stream back until its buffer is full.
        pool = aiohttp.ClientSession(
            connector=connector,
            trace_configs=[_connections()],
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept-Encoding": "identity", "User-Agent": "voicepipe"},
        )
        _POOLS[loop] = pool
    return pool


def _connections() -> aiohttp.TraceConfig:
    """Calls each request's `reached` when it has its connection."""
    trace = aiohttp.TraceConfig()

    async def on_connection(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
        if context.trace_request_ctx is not None:
            context.trace_request_ctx()

    trace.on_connection_create_end.append(on_connection)
    trace.on_connection_reuseconn.append(on_connection)
    return trace


async def close() -> None:
    """Close the running loop's connections, idle or not. A later request opens new ones."""
    pool = _POOLS.pop(asyncio.get_running_loop(), None)
    if pool is not None:
        await pool.close()


@asynccontextmanager
async def lifetime() -> AsyncIterator[None]:
    """Run everything that uses providers inside; leaving closes the running loop's connections."""
    try:
        yield
    finally:
        await close()


class Answer:
    """A vendor's answer with status 200, its body still arriving."""

    def __init__(self, address: ProviderAddress, response: aiohttp.ClientResponse) -> None:
        self._content = response.content
        self._translated = failures.Translated(address)
        self.content_type = response.content_type.lower()
        """The content type without parameters, such as `text/event-stream`."""

        self.header: Mapping[str, str] = response.headers

    async def read(self, most_bytes: int = READ_BYTES) -> bytes:
        """Return the next 1 to `most_bytes` bytes of the body, as soon as there are some; empty at its end.

        Raises:
            StageTimeout: nothing arrived for the provider's idle time.
            StageBroken: the connection was cut before the body's end.
        """
        with self._translated:
            return await self._content.read(most_bytes)

    async def body(self, *, limit_bytes: int) -> bytes:
        """Return the rest of the body, or its first `limit_bytes`.

        Raises:
            StageError: as in `read`.
        """
        parts, n_bytes = list[bytes](), 0
        while n_bytes < limit_bytes and (chunk := await self.read()):
            parts.append(chunk)
            n_bytes += len(chunk)
        return b"".join(parts)[:limit_bytes]


@asynccontextmanager
async def post(
    address: ProviderAddress,
    path: str,
    *,
    json: bytes | None = None,
    form: aiohttp.FormData | None = None,
    headers: Mapping[str, str] | None = None,
    reached: Callable[[], None] | None = None,
) -> AsyncIterator[Answer]:
    """Send a request to `address`, and yield its answer when its headers have arrived. `reached` is called when there
    is a connection.

    Leaving early closes the connection at once; an answer that was read to its end leaves it open for the next request.
    Redirects are not followed: they would send the user's words to a host that is not in the settings.

    Raises:
        StageRefused: the status was not 200.
        StageTimeout: no connection, or no headers, in the provider's time.
        StageBroken: no connection, or it was cut.
    """
    sent = dict(headers or {})
    if OUTGOING.get():
        sent["traceparent"] = OUTGOING.get()
    if json is not None:
        sent["Content-Type"] = "application/json"
    # aiohttp writes it in pieces, an iteration of the loop for each
    data = form if json is None else io.BytesIO(json)
    async with _request(address, "POST", path, data=data, headers=sent, reached=reached) as answer:
        yield answer


@asynccontextmanager
async def get(address: ProviderAddress, path: str) -> AsyncIterator[Answer]:
    """Send a GET request, otherwise as `post`."""
    async with _request(address, "GET", path, data=None, headers={}) as answer:
        yield answer


@asynccontextmanager
async def _request(
    address: ProviderAddress,
    method: str,
    path: str,
    *,
    data: aiohttp.FormData | io.BytesIO | None,
    headers: Mapping[str, str],
    reached: Callable[[], None] | None = None,
) -> AsyncIterator[Answer]:
    with failures.Translated(address):
        response = await _pool().request(
            method,
            address.base_url + path,
            data=data,
            headers={**dict(address.headers), **headers},
            timeout=_timeout(address),
            allow_redirects=False,
            trace_request_ctx=reached,
        )
    try:
        if response.status != 200:
            raise await _refusal(address, response)
        yield Answer(address, response)
    finally:
        response.close()


async def touch(address: ProviderAddress, path: str) -> None:
    """Open a connection to `address` for the next request. Failures are not reported."""
    try:
        with failures.Translated(address):
            async with _pool().head(
                address.base_url + path,
                headers=dict(address.headers),
                timeout=_timeout(address),
                allow_redirects=False,
            ) as response:
                await response.read()
    except StageError:
        return


async def _refusal(address: ProviderAddress, response: aiohttp.ClientResponse) -> StageError:
    try:
        body = await Answer(address, response).body(limit_bytes=ERROR_BODY_BYTES)
    except StageError:
        body = b""  # the status is enough
    return failures.refused(address, response.status, body, retry_after=response.headers.get("Retry-After"))


def _timeout(address: ProviderAddress) -> aiohttp.ClientTimeout:
    # No total: an answer may be long. ceil_threshold keeps aiohttp from rounding timeouts up to whole seconds.
    return aiohttp.ClientTimeout(
        total=None,
        connect=address.connect_timeout_ms / 1_000,
        sock_read=address.idle_timeout_ms / 1_000,
        ceil_threshold=3_600,
    )
