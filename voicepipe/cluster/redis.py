"""Implement the cluster port on a Redis or Valkey server that all machines reach."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from voicepipe.auth.claims import Claims
from voicepipe.cluster.port import CountResult, Hint, Snapshots, check_config
from voicepipe.cluster.redis_scripts import (
    ANNOUNCE,
    ANNOUNCED,
    COUNT,
    EVENTS_AFTER,
    HINTS,
    RELEASE_SLOTS,
    RENEW_SLOTS,
    REVOKE,
    REVOKED_AFTER,
    SEND_EVENTS,
    SHARE_KEYS,
    STORE_HINT,
    STORE_VALUE,
    TAKE_SLOTS,
)
from voicepipe.cluster.revocation import Revocation, RevokedSubject, RevokedToken
from voicepipe.cluster.store_calls import SNAPSHOT_MS
from voicepipe.errors import ConfigError, StoreUnavailable
from voicepipe.extras import install_command
from voicepipe.storage import StorageHealth

if TYPE_CHECKING:
    from voicepipe.cluster.redis_calls import RedisCalls

ANSWER_MS: Final = 500
"""A request without an answer by then fails. A request usually takes 1 ms at the server, and a round trip."""

WATCHED_AT_ONCE: Final = 500
"""Revocations that a watch reads in one request."""


@asynccontextmanager
async def open_redis(
    url: str,
    name: str,
    *,
    snapshot_urls: Sequence[str] = (),
    health: StorageHealth | None = None,
    poll_ms: int = 1_000,
    answer_ms: int = ANSWER_MS,
    snapshot_ms: int = SNAPSHOT_MS,
) -> AsyncIterator[RedisCluster]:
    """Connect to the server that holds the state of the cluster `name`. Leaving the context closes the connections.

    Args:
        url: `redis://USER:PASSWORD@HOST:PORT/DATABASE`, `rediss://` with TLS; `valkey://` and `valkeys://` are the
            same.
        name: the cluster's name: clusters of other names on the same server share nothing with it.
        snapshot_urls: the servers that have the snapshots of sessions, an odd number; empty: `url` has them.
        health: notified when one server of several for snapshots is away.
        poll_ms: how often a watch of revocations checks for new ones.
        answer_ms: how long a request may take, including its wait for a connection.
        snapshot_ms: how long one may take that reads or writes the snapshot of a session.

    Raises:
        ConfigError: the package `redis` is missing, a URL is wrong, a server refuses the connection, or can't be
            reached: of those for snapshots, a majority. The text has no password.
    """
    try:
        from voicepipe.cluster.redis_calls import RedisCalls
        from voicepipe.cluster.snapshot_quorum import CONNECTIONS, open_snapshots
    except ImportError:
        raise ConfigError(
            f"cluster.store: Redis needs the package redis, which is not installed: {install_command('redis')}"
        ) from None
    prefix = f"voicepipe:{{{name}}}:"
    setting = "snapshot_stores" if snapshot_urls else "store"
    calls = RedisCalls(url, prefix, answer_ms=answer_ms)
    # Connections of their own: with a slow server the snapshots would use all connections of the checks.
    prefix_there = f"{prefix}{_list_name(snapshot_urls)}" if snapshot_urls else prefix
    servers = [
        RedisCalls(each, prefix_there, answer_ms=snapshot_ms, max_connections=CONNECTIONS, setting=setting)
        for each in snapshot_urls or (url,)
    ]
    async with AsyncExitStack() as stack:
        stack.push_async_callback(calls.close)
        try:
            await calls.connect()
        except StoreUnavailable as gone:
            raise ConfigError(f"cluster.store: the server can't be used: {gone.detail}") from None
        try:
            snapshots = await stack.enter_async_context(open_snapshots(servers, health))
        except StoreUnavailable as gone:
            raise ConfigError(f"cluster.{setting}: the server can't be used: {gone.detail}") from None
        yield RedisCluster(calls, prefix, poll_ms, snapshots)


class RedisCluster:
    """The port on one server. Each request is one atomic step there.

    A write whose outcome is unknown is sent again until the server answers, and has its effect once: so it may take as
    long as the server is away. Reads raise within `answer_ms`.
    """

    def __init__(self, calls: RedisCalls, prefix: str, poll_ms: int, snapshots: Snapshots) -> None:
        self._calls, self._prefix, self._poll_ms = calls, prefix, poll_ms
        self.snapshots = snapshots

    async def revoke(self, revocation: Revocation, *, now_s: int) -> bool:
        await self._calls.evaluate_idempotent(
            REVOKE, _name(revocation), _encoded(revocation), revocation.until_s, now_s
        )
        return True

    async def is_revoked(self, claims: Claims) -> bool:
        names = (_token(claims.project, claims.token_id), _subject(claims.project, claims.subject))
        found = await self._calls.command("HMGET", f"{self._prefix}revoked", *names)
        return any(value is not None and _decoded(value).covers(claims) for value in found)

    async def revocations(self) -> AsyncGenerator[Revocation, None]:
        seen = "0"
        while True:
            found = await self._calls.evaluate(REVOKED_AFTER, seen, WATCHED_AT_ONCE)
            for number, value in zip(found[::2], found[1::2], strict=True):
                seen = str(number, "ascii")
                yield _decoded(value)
            if len(found) < 2 * WATCHED_AT_ONCE:
                await asyncio.sleep(self._poll_ms / 1_000)

    async def store_config(self, config_id: str, session: bytes, *, project: str, until_s: int, now_s: int) -> None:
        check_config(session)
        head = msgspec.json.encode((project, until_s))
        await self._calls.evaluate_idempotent(
            STORE_VALUE, f"config:{config_id}", head + b"\n" + session, max(until_s - now_s, 1)
        )

    async def config(self, config_id: str, *, project: str, now_s: int) -> bytes | None:
        stored: bytes | None = await self._calls.command("GET", f"{self._prefix}config:{config_id}")
        if stored is None:
            return None
        head, _, session = stored.partition(b"\n")
        owner, until_s = msgspec.json.decode(head, type=tuple[str, int])
        return session if owner == project and until_s > now_s else None

    async def count(self, name: str, amount: int, *, limit: int | None, until_s: int, now_s: int) -> CountResult:
        if not amount:
            return await self._counted(name, now_s)
        text = await self._calls.evaluate_once(COUNT, name, amount, "" if limit is None else limit, until_s, now_s)
        total, _, outcome = text.partition(" ")
        return CountResult(int(total), counted=outcome == "counted")

    async def take_slots(
        self, holder: str, pools: Mapping[str, int], *, owner: str, until_s: int, now_s: int
    ) -> str | None:
        each = (part for pool in pools.items() for part in pool)
        text = await self._calls.evaluate_once(TAKE_SLOTS, holder, owner, until_s, now_s, *each)
        outcome, _, full = text.partition(" ")
        return full if outcome == "full" else None

    async def renew_slots(self, owner: str, *, until_s: int, now_s: int) -> None:
        await self._calls.evaluate_idempotent(RENEW_SLOTS, owner, until_s, now_s)

    async def release_slots(self, holder: str, *, owner: str) -> None:
        await self._calls.evaluate_idempotent(RELEASE_SLOTS, holder, owner)

    async def slots_taken(self, pool: str, *, now_s: int) -> int:
        return int(await self._calls.command("ZCOUNT", f"{self._prefix}pool:{pool}", f"({now_s}", "+inf"))

    async def announce(self, process: str, facts: bytes, *, life_s: int) -> str:
        epoch: bytes = await self._calls.evaluate(ANNOUNCE, process, facts, life_s, secrets.token_hex(8))
        return epoch.decode()

    async def announced(self) -> list[bytes]:
        found: list[bytes] = await self._calls.evaluate(ANNOUNCED)
        return found

    async def send_events(self, events: Sequence[bytes]) -> None:
        await self._calls.evaluate(SEND_EVENTS, *events)

    async def events_after(self, last_id: str, *, limit: int, requested_s: int) -> tuple[str, list[bytes]]:
        new_last_id, *events = await self._calls.evaluate(EVENTS_AFTER, last_id, limit, requested_s)
        return new_last_id.decode(), events

    async def are_events_requested(self) -> bool:
        return bool(await self._calls.command("EXISTS", f"{self._prefix}events:requested"))

    async def store_hint(self, kind: str, process: str, body: bytes, *, life_s: int) -> None:
        await self._calls.evaluate(STORE_HINT, kind, process, body, life_s)

    async def hints(self, kind: str) -> list[Hint]:
        found = await self._calls.evaluate(HINTS, kind)
        each = zip(found[::3], found[1::3], found[2::3], strict=True)
        return [Hint(process.decode(), int(age_ms), body) for process, age_ms, body in each]

    async def share_keys(self, keys: Mapping[str, bytes], revoked: Mapping[str, int]) -> None:
        parts = (part for pairs in (keys, revoked) for pair in pairs.items() for part in pair)
        await self._calls.evaluate(SHARE_KEYS, secrets.token_hex(8), len(keys), *parts)

    async def keys_version(self) -> str:
        version: bytes | None = await self._calls.command("GET", f"{self._prefix}keys:version")
        return "" if version is None else version.decode()

    async def shared_keys(self) -> tuple[dict[str, bytes], dict[str, int]]:
        keys = await self._calls.command("HGETALL", f"{self._prefix}keys")
        revoked = await self._calls.command("HGETALL", f"{self._prefix}keys:revoked")
        return (
            {id_.decode(): key for id_, key in zip(keys[::2], keys[1::2], strict=True)},
            {id_.decode(): int(at_s) for id_, at_s in zip(revoked[::2], revoked[1::2], strict=True)},
        )

    async def _counted(self, name: str, now_s: int) -> CountResult:
        total, until_s = await self._calls.command("HMGET", f"{self._prefix}count:{name}", "total", "until_s")
        return CountResult(int(total) if until_s is not None and int(until_s) > now_s else 0, counted=True)


def _list_name(urls: Sequence[str]) -> str:
    """Return the prefix of a list of servers: a node with another list must not be a majority of some of these."""
    with suppress(ValueError):  # a wrong URL, which the connection names
        addresses = sorted(
            (parts.hostname or "localhost", parts.port or 6379, parts.path) for parts in map(urlsplit, urls)
        )
        return f"snapshots-{hashlib.sha256(repr(addresses).encode()).hexdigest()[:12]}:"
    return ""


def _token(project: str, token_id: str) -> bytes:
    return msgspec.json.encode(("token", project, token_id))


def _subject(project: str, subject: str) -> bytes:
    return msgspec.json.encode(("subject", project, subject))


def _name(revocation: Revocation) -> bytes:
    if isinstance(revocation, RevokedToken):
        return _token(revocation.project, revocation.token_id)
    return _subject(revocation.project, revocation.subject)


def _encoded(revocation: Revocation) -> bytes:
    if isinstance(revocation, RevokedToken):
        return msgspec.json.encode(("token", revocation.project, revocation.token_id, 0, revocation.until_s))
    fields = ("subject", revocation.project, revocation.subject, revocation.issued_until_s, revocation.until_s)
    return msgspec.json.encode(fields)


def _decoded(value: bytes) -> Revocation:
    kind, project, name, issued_until_s, until_s = msgspec.json.decode(value, type=tuple[str, str, str, int, int])
    if kind == "token":
        return RevokedToken(project, name, until_s)
    return RevokedSubject(project, name, issued_until_s, until_s)
