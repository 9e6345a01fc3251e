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

from voicepipe.clock import answer_from_outside
from voicepipe.errors import StageError
from voicepipe.providers.net import failures
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.tasks import background_tasks
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
    """Return a trace that calls the function in a request's context when the request has its connection."""
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


class StreamedAnswer:
    """A vendor's answer with status 200, its body still arriving."""

    def __init__(self, address: ProviderAddress, response: aiohttp.ClientResponse) -> None:
        self._content = response.content
        self._translated, self._url = failures.Translated(address), address.base_url
        self.content_type = response.content_type.lower()
        """The content type without parameters, such as `text/event-stream`."""

        self.header: Mapping[str, str] = response.headers

    async def read(self, max_bytes: int = READ_BYTES) -> bytes:
        """Return the next 1 to `max_bytes` bytes of the body, as soon as there are some; empty at its end.

        Raises:
            StageTimeout: nothing arrived for the provider's idle time.
            StageBroken: the connection was cut before the body's end.
        """
        with self._translated, answer_from_outside(self._url):
            return await self._content.read(max_bytes)

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
    on_connected: Callable[[], None] | None = None,
) -> AsyncIterator[StreamedAnswer]:
    """Send a request to `address`, and yield its answer when its headers have arrived. `on_connected` is called when
    there is a connection.

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
    async with _request(address, "POST", path, data=data, headers=sent, on_connected=on_connected) as answer:
        yield answer


class Posted:
    """A request on its way; see `posting`."""

    def __init__(self, address: ProviderAddress) -> None:
        self._address = address
        self._is_connected = self._over = False
        self._answer: StreamedAnswer | None = None
        self._failure: Exception | None = None
        self._changed = asyncio.Event()

    async def connected(self) -> None:
        """Wait until the request has its connection, reused or new.

        Raises:
            StageError: it gets none.
        """
        while not self._is_connected:
            await self._wait()

    async def answer(self) -> StreamedAnswer:
        """Return the answer when its headers have arrived.

        Raises:
            StageError: as in `post`.
        """
        while self._answer is None:
            await self._wait()
        return self._answer

    async def run(self, path: str, json: bytes, headers: Mapping[str, str] | None) -> None:
        """Send the request, and hold its answer open until cancelled. Failures are kept for `answer`."""
        try:
            async with post(
                self._address, path, json=json, headers=headers, on_connected=self._record_connected
            ) as answer:
                self._answer = answer
                self._changed.set()
                await asyncio.get_running_loop().create_future()
        except Exception as failure:
            self._failure = failure
            self.leave()

    def leave(self) -> None:
        """End pending waits; see `posting`."""
        self._over = True
        self._changed.set()

    def _record_connected(self) -> None:
        self._is_connected = True
        self._changed.set()

    async def _wait(self) -> None:
        if self._over:
            raise self._take_failure()
        self._changed.clear()
        await self._changed.wait()

    def _take_failure(self) -> Exception:
        """Return the failure and keep it no longer: its traceback holds the frames that hold this."""
        failure, self._failure = self._failure, None
        return failure or failures.broken(self._address, "the request was left")


@asynccontextmanager
async def posting(
    address: ProviderAddress, path: str, *, json: bytes, headers: Mapping[str, str] | None = None
) -> AsyncIterator[Posted]:
    """Send a request as `post` does, and yield it at once, before it has a connection. Leaving closes it."""
    async with background_tasks() as owned:
        posted = Posted(address)
        owned.start(posted.run(path, json, headers), name=f"http-{address.name}")
        try:
            yield posted
        finally:
            posted.leave()


@asynccontextmanager
async def get(address: ProviderAddress, path: str) -> AsyncIterator[StreamedAnswer]:
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
    on_connected: Callable[[], None] | None = None,
) -> AsyncIterator[StreamedAnswer]:
    with failures.Translated(address), answer_from_outside(address.base_url):
        response = await _pool().request(
            method,
            address.base_url + path,
            data=data,
            headers={**dict(address.headers), **headers},
            timeout=_timeout(address),
            allow_redirects=False,
            trace_request_ctx=on_connected,
        )
    try:
        if response.status != 200:
            raise await _refusal(address, response)
        yield StreamedAnswer(address, response)
    finally:
        response.close()


async def preconnect(address: ProviderAddress, path: str) -> None:
    """Open a connection to `address` for the next request. Failures are not reported."""
    try:
        with failures.Translated(address), answer_from_outside(address.base_url):
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
        body = await StreamedAnswer(address, response).body(limit_bytes=ERROR_BODY_BYTES)
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
