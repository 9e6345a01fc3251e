"""Define the ports to the state that processes and nodes share. Times are unix seconds, passed in."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Final, Literal, Protocol, Self, runtime_checkable

from msgspec import Struct

from voicepipe.auth.claims import Claims
from voicepipe.cluster.revocation import Revocation
from voicepipe.errors import ProtocolError

Unavailable = Literal["admit", "refuse"]
"""What happens to a client secret while the store is away, when only the store has its session config,
or whether it was revoked elsewhere and how often it was used."""

MAX_CONFIG_BYTES: Final = 262_144
"""Limit of one session config: space for long instructions and many tools, and a bound on what a key's holder can
store.
"""


class CountResult(Struct, frozen=True):
    """The result of `Cluster.count`."""

    total: int
    counted: bool
    """False: the count would have passed the limit, so nothing was counted."""

    @classmethod
    def of(cls, had: int, amount: int, limit: int | None) -> Self:
        """Apply the rule of `Cluster.count`: never above the limit by counting up, never below 0 by giving back."""
        refused = amount > 0 and limit is not None and had + amount > limit
        return cls(had, counted=False) if refused else cls(max(had + amount, 0), counted=True)


class Cluster(Protocol):
    """State that all servers of the same clients must agree on.

    Every method is atomic: when several tasks, in any process, request the last unit, exactly 1 gets it. A cancelled
    method may still have had its effect.

    Raises:
        StoreUnavailable: from any method, when the store can't be reached, read or written; nothing was changed. A
            store without a result must find out whether a call had its effect before it raises. `Resilient` converts
            these errors to answers of this process, for any store.
    """

    async def revoke(self, revocation: Revocation, *, now_s: int) -> bool:
        """Revoke a token or a subject. Repeating it has no effect.

        Returns:
            True: all processes that share the store have. False: only this process does, and writes it later.
        """
        ...

    async def is_revoked(self, claims: Claims) -> bool:
        """Return whether any revocation in force covers a token. Called before a handshake is answered."""
        ...

    def revocations(self) -> AsyncGenerator[Revocation, None]:
        """Yield all revocations in force, then each new one within 2 s, until closed or cancelled.

        May yield a revocation again. One watch per process is enough: it finds its running sessions with
        `Revocation.covers`.
        """
        ...

    async def store_config(self, config_id: str, session: bytes, *, project: str, until_s: int, now_s: int) -> None:
        """Store a token's initial session config, as JSON text, until the token expires.

        Raises:
            ProtocolError: the config is longer than `MAX_CONFIG_BYTES`.
        """
        ...

    async def config(self, config_id: str, *, project: str, now_s: int) -> bytes | None:
        """Return the config of that id; None when it expired, was never stored, or belongs to another project."""
        ...

    async def count(self, name: str, amount: int, *, limit: int | None, until_s: int, now_s: int) -> CountResult:
        """Add `amount` to a counter, unless that would pass `limit`; a negative amount gives back, and 0 only reads.

        A counter starts at 0 and is dropped at the latest `until_s` that it was given. Sessions may outlive a token,
        so for turns and spend that is a time by which they have surely ended. Money is counted in millionths of a
        USD.
        """
        ...

    async def take_slots(
        self, holder: str, pools: Mapping[str, int], *, owner: str, until_s: int, now_s: int
    ) -> str | None:
        """Take one slot for `holder` (a session's id) in each pool, or in none.

        Args:
            pools: a pool's name -> its number of slots: `{"machine": 40, "project/demo": 10}`.
            owner: the process that runs the session. It must call `renew_slots` before `until_s`, else the slots
                are free again: so a crashed process keeps no slots.

        Returns:
            None when all were taken (again, if the holder had them; from another owner, if that one had them), or the
            name of a pool that was full.
        """
        ...

    async def renew_slots(self, owner: str, *, until_s: int, now_s: int) -> None:
        """Extend all slots of a process. Slots that have expired meanwhile stay free."""
        ...

    async def release_slots(self, holder: str, *, owner: str) -> None:
        """Free the slots of one session, unless another owner has taken them since. Repeating it has no effect."""
        ...

    async def slots_taken(self, pool: str, *, now_s: int) -> int:
        """Return how many slots of a pool are taken."""
        ...


class LeftSnapshot(Struct, frozen=True):
    """The snapshot of a session that no process has."""

    session_id: str
    stored: bytes


class SessionSnapshots(Protocol):
    """The snapshots of sessions that another node can go on with. Each session has one owner at a time.

    Raises:
        StoreUnavailable: from any method, when the store can't be reached.
    """

    async def has_snapshot(self, session_id: str) -> bool:
        """Return whether there is a snapshot of this session."""
        ...

    async def store_snapshot(
        self, session_id: str, snapshot: bytes, *, digest: str, owner: str, life_s: int, previous_digest: str = ""
    ) -> bool:
        """Store a session's snapshot in place of the one before; False, and nothing is stored: it has another owner.

        `previous_digest`: the digest of the secret before, while the client may not have the latest.
        """
        ...

    async def acquire_snapshot(self, session_id: str, *, digest: str, owner: str, next_digest: str) -> bytes | None:
        """Make this process the owner, and return the snapshot. The owner before can't write any more. From now on the
        digest of the latest secret is `next_digest`.

        None: there is none, or the digest is neither that of its latest secret nor of one whose answer may be lost:
        with which it was taken last, until the owner stores it without `previous_digest`.
        """
        ...

    async def delete_snapshot(self, session_id: str, *, owner: str) -> None:
        """Delete the snapshot of a session that is over, unless it has another owner."""
        ...


class LeftSnapshots(Protocol):
    """The snapshots of sessions whose process has died and whose client has not come back.

    Raises:
        StoreUnavailable: from any method, when the store can't be reached.
    """

    async def lease_left_snapshot(self, *, after_s: int, life_s: int, lease: str) -> LeftSnapshot | None:
        """Return a snapshot that was not written for `after_s`: its process has died, and its client has not come back.
        No other process gets it for `after_s`. None: there is none.

        `life_s`: that of the snapshot when it was written last, and from now on. It keeps its owner.
        """
        ...

    async def delete_left_snapshot(self, session_id: str, *, lease: str) -> None:
        """Delete a snapshot of `lease_left_snapshot`, unless it was written, taken or leased since."""
        ...


class Snapshots(SessionSnapshots, LeftSnapshots, Protocol):
    """All that nodes do with the snapshots of sessions."""


class NodePresence(Protocol):
    """The announced status of the processes of all nodes, for operators; no decision uses it.

    Raises:
        StoreUnavailable: from any method, when the store can't be reached.
    """

    async def announce(self, process: str, facts: bytes, *, life_s: int) -> str:
        """Store the facts of a process in place of those before; they expire after `life_s`, by the store's clock.

        Returns:
            The epoch of the store's data: another one means that the store has lost what it had.
        """
        ...

    async def announced(self) -> list[bytes]:
        """Return the facts of each process that have not expired."""
        ...


class NodeEvents(Protocol):
    """Events of the live feed on their way from each node to the others. They are for pages: old ones are dropped.

    Raises:
        StoreUnavailable: from any method, when the store can't be reached.
    """

    async def send_events(self, events: Sequence[bytes]) -> None:
        """Add events behind those of all nodes."""
        ...

    async def events_after(self, last_id: str, *, limit: int, requested_s: int) -> tuple[str, list[bytes]]:
        """Return the last event's ID and the events after `last_id`, oldest first; an empty ID stands for the latest.

        All nodes send their events for `requested_s` from now on.
        """
        ...

    async def are_events_requested(self) -> bool:
        """Return whether any node requests events."""
        ...


class Hint(Struct, frozen=True):
    """A hint of a process to the others."""

    process: str
    age_ms: int
    body: bytes


class RouterHints(Protocol):
    """Hints of processes about providers. A process that has nothing newer may use it; none requires it.

    Raises:
        StoreUnavailable: from any method, when the store can't be reached.
    """

    async def store_hint(self, kind: str, process: str, body: bytes, *, life_s: int) -> None:
        """Store a process's hint of a kind in place of the one before; it expires after `life_s`."""
        ...

    async def hints(self, kind: str) -> list[Hint]:
        """Return the hints of a kind that have not expired; all ages are by the store's clock."""
        ...


class SharedKeys(Protocol):
    """The API keys of all nodes, without their secrets. Keys and revocations are added, and never taken back.

    Raises:
        StoreUnavailable: from any method, when the store can't be reached.
    """

    async def share_keys(self, keys: Mapping[str, bytes], revoked: Mapping[str, int]) -> None:
        """Add keys by id, and revocations: id -> unix s. What is there already stays."""
        ...

    async def keys_version(self) -> str:
        """Return some text that differs after each change; empty: the store has no keys, or has lost them."""
        ...

    async def shared_keys(self) -> tuple[dict[str, bytes], dict[str, int]]:
        """Return all keys and revocations."""
        ...


@runtime_checkable
class NodeStore(NodePresence, NodeEvents, RouterHints, SharedKeys, Protocol):
    """All that nodes share beside the `Cluster`; the store of one machine does not have it."""

    @property
    def snapshots(self) -> Snapshots:
        """Return the snapshots of sessions, which may be on servers of their own."""
        ...


def counter(claims: Claims, what: str) -> str:
    """Return the name of a counter of one token: `what` is `sessions`, `turns` or `spend`."""
    return f"token/{claims.project}/{claims.token_id}/{what}"


NO_CONFIG: Final = b"{}"
"""`Cluster.config` while the store that may have it is away, and clients are admitted all the same."""


def check_config(session: bytes) -> None:
    """Refuse a session config that is too long to store.

    Raises:
        ProtocolError: the config is longer than `MAX_CONFIG_BYTES`.
    """
    if len(session) > MAX_CONFIG_BYTES:
        raise ProtocolError(
            f"expected a session config of at most {MAX_CONFIG_BYTES} bytes, got {len(session)}", field="session"
        )
