"""Send requests to a Redis or Valkey server, with timeouts and the errors of this package."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from redis import exceptions
from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from voicepipe.errors import ConfigError, StorageFailureKind, StoreUnavailable

CONNECTIONS: Final = 16
"""Connections of one process. A request takes under 1 ms at the server, so more would wait there."""

FIRST_PAUSE_MS: Final = 100
START_MS: Final = 5_000
"""Limit of the first request: a server that starts may have to wait for its machine."""

LAST_PAUSE_MS: Final = 2_000
"""Longest pause before a write whose outcome is unknown is sent again; the pause is doubled each time up to this."""

_SCHEMES: Final = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss"}

_KINDS: Final[dict[str, StorageFailureKind]] = {
    "OOM": "full",
    "MISCONF": "full",
    "READONLY": "read_only",
    "LOADING": "unreachable",
    "MASTERDOWN": "unreachable",
    "CLUSTERDOWN": "unreachable",
    "BUSY": "locked",
}
"""The first word of the server's error -> the kind of failure. MISCONF: it can't write its own file."""


class _Unknown(Exception):
    """A request was sent, and no answer came: it may have had its effect."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@dataclass(slots=True)
class _Writes:
    """The numbers of a process's writes: the server answers a repeated number as it did before."""

    owner: str = field(default_factory=lambda: secrets.token_hex(12))
    latest: int = 0
    answered: list[int] = field(default_factory=list)
    """Writes whose answers the server can forget. Bounded: each write takes all of them along."""


class RedisCalls:
    """The requests of one process to one server, over connections of their own. Belongs to one event loop."""

    def __init__(
        self, url: str, prefix: str, *, answer_ms: int, max_connections: int = CONNECTIONS, setting: str = "store"
    ) -> None:
        """Check the URL; nothing is connected yet.

        Args:
            url: the address; see `open_redis`.
            prefix: that of all keys.
            answer_ms: timeout of a request, including its wait for a connection.
            max_connections: they are made when they are needed.
            setting: the option of `[cluster]` that has the URL.

        Raises:
            ConfigError: it is no such URL. The text does not contain it: it may hold a password.
        """
        self._prefix, self._answer_ms = prefix, answer_ms
        scheme, _, rest = url.partition("://")
        try:
            arguments: dict[str, Any] = dict(parse_url(f"{_SCHEMES[scheme]}://{rest}"))
            parts = urlsplit(url)
            self.address = f"{parts.hostname or 'localhost'}:{parts.port or 6379}"
        except (KeyError, ValueError):
            raise ConfigError(
                f"cluster.{setting}: expected an address such as redis://USER:PASSWORD@HOST:6379/0, got another one"
            ) from None
        self._secrets = tuple(filter(None, {parts.password, unquote(parts.password or "")}))
        arguments |= {
            # Each request has one timeout, around all of its steps. The library's own is a `wait_for`, which drops a
            # cancellation in Python 3.11.
            "socket_timeout": None,
            "socket_connect_timeout": START_MS / 1_000,
            "retry": Retry(NoBackoff(), 0),  # the library would count twice
            "client_name": "voicepipe",
            "driver_info": None,
            "protocol": 2,
        }

        # Full: a request waits for a connection, within its time.
        self._pool = BlockingConnectionPool(max_connections=max_connections, timeout=answer_ms / 1_000, **arguments)
        self._writes = _Writes()

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.disconnect()

    async def connect(self, n_connections: int = 1) -> None:
        """Make the first connections, within `START_MS`.

        Raises:
            StoreUnavailable: the server can't be reached, or refuses the connection.
        """
        try:
            await asyncio.gather(*(self._attempt(("PING",), timeout_ms=START_MS) for _ in range(n_connections)))
        except _Unknown as unknown:
            raise self._unreachable(unknown.why) from None

    async def load(self, *scripts: str) -> None:
        """Load scripts: the first use of each is then one request, not two.

        Raises:
            StoreUnavailable: there was no answer, or an error.
        """
        for script in scripts:
            await self.command("SCRIPT LOAD", script)

    async def command(self, *parts: str | bytes | int) -> Any:
        """Return the server's answer to a command that changes nothing, or whose effect may be repeated.

        Raises:
            StoreUnavailable: there was no answer, or an error.
        """
        try:
            return await self._attempt(parts)
        except _Unknown as unknown:
            raise self._unreachable(unknown.why) from None

    async def evaluate(self, script: str, *arguments: str | bytes | int) -> Any:
        """Return the answer of a script that changes nothing, or whose effect the next call replaces.

        Raises:
            StoreUnavailable: there was no answer, or an error.
        """
        try:
            return await self._run(script, arguments)
        except _Unknown as unknown:
            raise self._unreachable(unknown.why) from None

    async def evaluate_idempotent(self, script: str, *arguments: str | bytes | int) -> None:
        """Run a script whose effect may be repeated, and send it again until its outcome is known.

        Raises:
            StoreUnavailable: nothing was changed.
        """
        await self._until_known(script, arguments)

    async def evaluate_once(self, script: str, *arguments: str | int) -> str:
        """Run a script that has its effect once, and return its answer; send it again until its outcome is known.

        Raises:
            StoreUnavailable: nothing was changed.
        """
        writes = self._writes
        writes.latest += 1
        number, answered, writes.answered = writes.latest, writes.answered, []
        head = (writes.owner, number, ",".join(map(str, answered)))
        try:
            answer, n_sent = await self._until_known(script, (*head, *arguments))
        except BaseException:
            writes.answered += answered
            raise
        if n_sent == 1:
            writes.answered.append(number)
        elif writes is self._writes:
            # A copy of it may still be on its way: the server must keep its number for longer.
            self._writes = _Writes()
        return str(answer, "utf-8")

    async def _until_known(self, script: str, arguments: Sequence[str | bytes | int]) -> tuple[Any, int]:
        """Return the answer, and how often the script was sent."""
        n_sent, pause_ms = 0, FIRST_PAUSE_MS
        while True:
            try:
                answer = await self._run(script, arguments)
                return answer, n_sent + 1
            except _Unknown:
                n_sent += 1
            except StoreUnavailable:
                if not n_sent:
                    raise
            await asyncio.sleep(pause_ms / 1_000)
            pause_ms = min(2 * pause_ms, LAST_PAUSE_MS)

    async def _run(self, script: str, arguments: Sequence[str | bytes | int]) -> Any:
        digest = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
        tail = (1, self._prefix, *arguments)
        try:
            return await self._attempt(("EVALSHA", digest, *tail))
        except exceptions.NoScriptError:  # the first time, and after a restart of the server
            return await self._attempt(("EVAL", script, *tail))

    async def _attempt(self, parts: Sequence[str | bytes | int], *, timeout_ms: int | None = None) -> Any:
        is_sent, timeout_ms = False, timeout_ms or self._answer_ms
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                connection = await self._pool.get_connection()
                try:
                    is_sent = True
                    await connection.send_command(*parts, check_health=False)
                    return await connection.read_response()
                finally:
                    await self._pool.release(connection)
        except exceptions.NoScriptError:
            raise
        except (exceptions.ResponseError, exceptions.BusyLoadingError, exceptions.AuthenticationError) as refused:
            # The server has answered, and done nothing.
            kind = _KINDS.get(_code(refused), "unknown")
            raise StoreUnavailable(kind, f"{self.address}: {self._why(refused)}") from None
        except (exceptions.RedisError, OSError) as failed:
            why = f"no answer within {timeout_ms} ms" if isinstance(failed, TimeoutError) else self._why(failed)
            if is_sent:
                raise _Unknown(why) from None
            raise self._unreachable(why) from None

    def _unreachable(self, why: str) -> StoreUnavailable:
        return StoreUnavailable("unreachable", f"{self.address}: {why}")

    def _why(self, error: Exception) -> str:
        """Return the error's text without the password: a server that does not support a command repeats its words."""
        text = str(error) or type(error).__name__
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def _code(refused: Exception) -> str:
    if isinstance(refused, exceptions.ReadOnlyError):
        return "READONLY"
    if isinstance(refused, exceptions.BusyLoadingError):
        return "LOADING"
    if isinstance(refused, exceptions.OutOfMemoryError):
        return "OOM"
    return str(refused).partition(" ")[0]
