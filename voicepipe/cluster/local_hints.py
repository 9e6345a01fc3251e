"""Hints of processes in the memory of one, for the others of its machine."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from msgspec import Struct

from voicepipe.cluster.port import Hint

MAX_BYTES: Final = 8_000_000
"""Limit for all hints together: a message has all of a kind."""


class _Stored(Struct, frozen=True):
    body: bytes
    stored_ms: int
    until_ms: int


class LocalHints:
    """Implements the rules of `cluster.port.RouterHints`, without waiting. All times are monotonic, in ms."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._hints: OrderedDict[tuple[str, str], _Stored] = OrderedDict()
        """Kind and process -> its hint. Full: the oldest is dropped."""

    def store(self, kind: str, process: str, body: bytes, *, life_s: int, now_ms: int) -> None:
        """Store a process's hint of a kind in place of the one before."""
        self._hints.pop((kind, process), None)
        self._hints[kind, process] = _Stored(body, now_ms, now_ms + life_s * 1_000)
        for key in [key for key, hint in self._hints.items() if hint.until_ms <= now_ms]:
            del self._hints[key]
        while sum(len(hint.body) for hint in self._hints.values()) > self._max_bytes:
            self._hints.popitem(last=False)

    def of(self, kind: str, *, now_ms: int) -> list[Hint]:
        """Return the hints of a kind that have not expired."""
        return [
            Hint(process, now_ms - hint.stored_ms, hint.body)
            for (stored_kind, process), hint in self._hints.items()
            if stored_kind == kind and hint.until_ms > now_ms
        ]
