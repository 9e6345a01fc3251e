"""The snapshots of sessions in the memory of one process, for the other processes of its machine."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from voicepipe.cluster.port import LeftSnapshot

MAX_BYTES: Final = 256_000_000
"""Limit for all snapshots together: 256 sessions of the largest size, and tens of thousands of usual ones (some kB)."""


@dataclass(slots=True)
class _Stored:
    body: bytes
    owner: str
    digest: str
    taken_with: str
    """The digest of a secret that is good too, because the client may not have the latest; or nothing."""

    until_ms: int
    written_ms: int
    """When it was written, taken or leased last."""

    lease: str = ""
    """Of the process that ends the session's records."""


class LocalSnapshots:
    """Implements the rules of `cluster.port.SessionSnapshots` and `LeftSnapshots`, without waiting.

    All times are monotonic, in ms, unless stated otherwise.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        # In the order of `written_ms`. Full: the oldest is dropped, and its session can't be resumed elsewhere.
        self._snapshots: OrderedDict[str, _Stored] = OrderedDict()
        self._n_bytes = 0

    def has(self, session_id: str, *, now_ms: int) -> bool:
        """Return whether there is a snapshot of this session."""
        return self._find(session_id, now_ms) is not None

    def store(
        self, session_id: str, body: bytes, *, digest: str, owner: str, life_s: int, previous_digest: str, now_ms: int
    ) -> bool:
        """Store a snapshot in place of the one before; False: it has another owner."""
        held = self._find(session_id, now_ms)
        if held is not None and held.owner != owner:
            return False
        self._drop(session_id)
        self._snapshots[session_id] = _Stored(body, owner, digest, previous_digest, now_ms + life_s * 1_000, now_ms)
        self._n_bytes += len(body)
        while self._snapshots and (self._n_bytes > self._max_bytes or self._is_oldest_expired(now_ms)):
            self._drop(next(iter(self._snapshots)))
        return True

    def acquire(self, session_id: str, *, digest: str, owner: str, next_digest: str, now_ms: int) -> bytes | None:
        """Return the snapshot to its new owner; None: there is none, or the digest is wrong."""
        held = self._find(session_id, now_ms)
        if held is None or digest not in (held.digest, held.taken_with):
            return None
        held.owner, held.digest, held.taken_with = owner, next_digest, digest
        self._mark(session_id, held, now_ms)
        return held.body

    def delete(self, session_id: str, *, owner: str) -> None:
        """Delete a snapshot, unless it has another owner."""
        if session_id in self._snapshots and self._snapshots[session_id].owner == owner:
            self._drop(session_id)

    def lease_left(self, *, after_s: int, life_s: int, lease: str, now_ms: int) -> LeftSnapshot | None:
        """Return the snapshot that was written longest ago, if that is `after_s` or more, and give it a new life and a
        lease; None: there is none.
        """
        for session_id, held in self._snapshots.items():
            if now_ms - held.written_ms < after_s * 1_000:
                return None
            if held.until_ms > now_ms:
                self._mark(session_id, held, now_ms, lease)
                held.until_ms = now_ms + life_s * 1_000
                return LeftSnapshot(session_id, held.body)
        return None

    def delete_left(self, session_id: str, *, lease: str) -> None:
        """Delete a leased snapshot, unless it was written, taken or leased since."""
        if session_id in self._snapshots and self._snapshots[session_id].lease == lease:
            self._drop(session_id)

    def _mark(self, session_id: str, held: _Stored, now_ms: int, lease: str = "") -> None:
        """Count a snapshot as the latest."""
        held.written_ms, held.lease = now_ms, lease
        self._snapshots.move_to_end(session_id)

    def _find(self, session_id: str, now_ms: int) -> _Stored | None:
        held = self._snapshots.get(session_id)
        return held if held is not None and held.until_ms > now_ms else None

    def _is_oldest_expired(self, now_ms: int) -> bool:
        return next(iter(self._snapshots.values())).until_ms <= now_ms

    def _drop(self, session_id: str) -> None:
        held = self._snapshots.pop(session_id, None)
        self._n_bytes -= len(held.body) if held is not None else 0
