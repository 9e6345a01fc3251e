"""The hints of the router in the memory of one process, for the other processes of its machine."""

from __future__ import annotations

from msgspec import Struct

from voicepipe.cluster.port import Hint


class _Stored(Struct, frozen=True):
    body: bytes
    stored_ms: int
    until_ms: int


class LocalHints:
    """Implements the rules of `cluster.port.RouterHints`, without waiting. All times are monotonic, in ms."""

    def __init__(self) -> None:
        self._hints: dict[tuple[str, str], _Stored] = {}
        """Kind and process -> its hint; bounded by the processes: what has expired is dropped with the next one."""

    def store(self, kind: str, process: str, body: bytes, *, life_s: int, now_ms: int) -> None:
        """Store a process's hint of a kind in place of the one before."""
        self._hints[kind, process] = _Stored(body, now_ms, now_ms + life_s * 1_000)
        self._hints = {key: hint for key, hint in self._hints.items() if hint.until_ms > now_ms}

    def of(self, kind: str, *, now_ms: int) -> list[Hint]:
        """Return the hints of a kind that have not expired."""
        return [
            Hint(process, now_ms - hint.stored_ms, hint.body)
            for (stored_kind, process), hint in self._hints.items()
            if stored_kind == kind and hint.until_ms > now_ms
        ]
