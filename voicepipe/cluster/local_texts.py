"""The texts of sessions in the memory of one process, for the other processes of its machine."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

MAX_BYTES: Final = 256_000_000
"""Limit for all texts together: 256 sessions of the longest text, and tens of thousands of usual ones (some kB)."""


@dataclass(slots=True)
class _Text:
    text: bytes
    owner: str
    digest: str
    taken_with: str
    """The digest of a secret that is good too, because the client may not know the latest; or nothing."""

    until_ms: int


class LocalTexts:
    """Implements the rules of `cluster.port.SessionTexts`, without waiting. All times are monotonic, in ms."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        # In the order of their latest writes. Full: the oldest is dropped, and its session can't be resumed elsewhere.
        self._texts: OrderedDict[str, _Text] = OrderedDict()
        self._n_bytes = 0

    def has(self, session_id: str, *, now_ms: int) -> bool:
        """Return whether there is a text of this session."""
        return self._find(session_id, now_ms) is not None

    def keep(
        self, session_id: str, text: bytes, *, digest: str, owner: str, life_s: int, former: str, now_ms: int
    ) -> bool:
        """Store a text in place of the one before; False: it has another owner."""
        held = self._find(session_id, now_ms)
        if held is not None and held.owner != owner:
            return False
        self._drop(session_id)
        self._texts[session_id] = _Text(text, owner, digest, former, now_ms + life_s * 1_000)
        self._n_bytes += len(text)
        while self._texts and (self._n_bytes > self._max_bytes or self._is_oldest_expired(now_ms)):
            self._drop(next(iter(self._texts)))
        return True

    def take(self, session_id: str, *, digest: str, owner: str, next_digest: str, now_ms: int) -> bytes | None:
        """Return the text to its new owner; None: there is none, or the digest is wrong."""
        held = self._find(session_id, now_ms)
        if held is None or digest not in (held.digest, held.taken_with):
            return None
        held.owner, held.digest, held.taken_with = owner, next_digest, digest
        return held.text

    def drop(self, session_id: str, *, owner: str) -> None:
        """Delete a text, unless it has another owner."""
        if session_id in self._texts and self._texts[session_id].owner == owner:
            self._drop(session_id)

    def _find(self, session_id: str, now_ms: int) -> _Text | None:
        held = self._texts.get(session_id)
        return held if held is not None and held.until_ms > now_ms else None

    def _is_oldest_expired(self, now_ms: int) -> bool:
        return next(iter(self._texts.values())).until_ms <= now_ms

    def _drop(self, session_id: str) -> None:
        held = self._texts.pop(session_id, None)
        self._n_bytes -= len(held.text) if held is not None else 0
