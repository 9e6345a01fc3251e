"""Track which stores of this process fail, since when, and how."""

from __future__ import annotations

import errno
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from msgspec import Struct

from voicepipe.errors import StorageFailureKind
from voicepipe.values import replace

StoreName = Literal[
    "shared", "snapshots", "keys", "records", "webhooks", "journals", "recordings", "audio_cache", "responses"
]
"""`shared` is what processes and nodes agree on (used tokens, revocations, slots); `snapshots` one of several servers
for the snapshots of sessions, where the others go on; `keys` the file of API keys and secrets."""

STORES: Final[tuple[StoreName, ...]] = (
    "shared",
    "snapshots",
    "keys",
    "records",
    "webhooks",
    "journals",
    "recordings",
    "audio_cache",
    "responses",
)


LOG_EVERY_MS: Final = 10_000
"""A store whose state changes more often is logged once in that time; the changes between are counted."""

_BY_SQLITE: Final[dict[int, StorageFailureKind]] = {
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_PROTOCOL: "locked",
    sqlite3.SQLITE_READONLY: "read_only",
    sqlite3.SQLITE_PERM: "read_only",
    sqlite3.SQLITE_CORRUPT: "damaged",
    sqlite3.SQLITE_ERROR: "damaged",  # our statements are right: a table is missing
    sqlite3.SQLITE_SCHEMA: "damaged",
    sqlite3.SQLITE_NOTADB: "damaged",
    sqlite3.SQLITE_FORMAT: "damaged",
    sqlite3.SQLITE_IOERR: "io_error",
    sqlite3.SQLITE_CANTOPEN: "io_error",
}

_BY_ERRNO: Final[dict[int, StorageFailureKind]] = {
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EFBIG: "full",
    errno.EROFS: "read_only",
    errno.EACCES: "read_only",
    errno.EPERM: "read_only",
    errno.EIO: "io_error",
    errno.ECONNREFUSED: "unreachable",
    errno.ECONNRESET: "unreachable",
    errno.EPIPE: "unreachable",
    errno.EHOSTUNREACH: "unreachable",
    errno.ENETUNREACH: "unreachable",
}


def kind_of(error: BaseException) -> StorageFailureKind:
    """Return the kind of failure that a store's error means; `unknown`: what was stored may be invalid."""
    if isinstance(error, sqlite3.Error):
        return _BY_SQLITE.get((getattr(error, "sqlite_errorcode", None) or 0) & 0xFF, "unknown")
    if isinstance(error, TimeoutError | ConnectionError):
        return "unreachable"
    if isinstance(error, OSError):
        return _BY_ERRNO.get(error.errno or 0, "io_error")
    return "unknown"


_ADVICE: Final[dict[StorageFailureKind, str]] = {
    "full": "make room on its disk, or name another folder with --data-dir",
    "locked": "another program holds it: end that, or wait",
    "read_only": "mount it so that it can be written, give it to the user who runs voicepipe, or name another folder "
    "with --data-dir",
    "io_error": "its disk fails, or it is not there: check the disk, or name another folder with --data-dir",
}


def advice(kind: StorageFailureKind, otherwise: str) -> str:
    """Return what a person can do about a store that can't be opened; `otherwise` where its content is at fault."""
    return _ADVICE.get(kind, otherwise)


class FailingStore(Struct, frozen=True):
    """A store that fails. It names no file, so that it may be published."""

    store: StoreName
    kind: StorageFailureKind
    since_ms: int
    """When it began, in ms since 1970 UTC."""


class StoreFailed(Struct, frozen=True):
    """A store has begun to fail."""

    store: StoreName
    kind: StorageFailureKind
    detail: str
    """In the store's own words, for the log: it may name files."""

    unlogged: int
    """Number of failures since the last log entry."""


class StoreRecovered(Struct, frozen=True):
    """A store works again."""

    store: StoreName
    lasted_ms: int


class StoreLost(Struct, frozen=True):
    """Something could not be stored, and is gone."""

    store: StoreName
    count: int
    what: str


StoreChange = StoreFailed | StoreRecovered | StoreLost


@dataclass(slots=True)
class _State:
    failing: FailingStore | None = None
    failures: int = 0
    logged_ms: int | None = None
    is_logged: bool = False
    """Whether the current failure was logged."""

    unlogged: int = 0


def _ignore(change: StoreChange) -> None:
    """Ignore a change."""


@dataclass(slots=True)
class StorageHealth:
    """The state of every store of this process. Threads may share one.

    `on_change` is called for each change of state, at most once in `LOG_EVERY_MS` for each store; it returns at once.
    """

    now_ms: Callable[[], int]
    """Ms since 1970 UTC."""

    on_change: Callable[[StoreChange], None] = _ignore
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _states: dict[StoreName, _State] = field(default_factory=lambda: {store: _State() for store in STORES})

    def failed(self, store: StoreName, kind: StorageFailureKind, detail: str) -> None:
        """Record that a store failed; `detail` is for the log alone."""
        with self._lock:
            change = self._failed(self._states[store], store, kind, detail)
        if change is not None:
            self.on_change(change)

    def worked(self, store: StoreName) -> None:
        """Record that a store worked. Cheap while it does not fail."""
        if self._states[store].failing is None:
            return
        with self._lock:
            state = self._states[store]
            was, was_logged, state.failing, state.is_logged = state.failing, state.is_logged, None, False
        if was is not None and was_logged:
            self.on_change(StoreRecovered(store, self.now_ms() - was.since_ms))

    def lost(self, store: StoreName, count: int, what: str) -> None:
        """Report that data to be stored was lost."""
        self.on_change(StoreLost(store, count, what))

    def failing_stores(self) -> tuple[FailingStore, ...]:
        """Return the stores that fail now."""
        return tuple(state.failing for state in self._states.values() if state.failing is not None)

    def failures(self, store: StoreName) -> int:
        """Return how often a store has begun to fail since the process began."""
        return self._states[store].failures

    def _failed(self, state: _State, store: StoreName, kind: StorageFailureKind, detail: str) -> StoreFailed | None:
        now_ms = self.now_ms()
        if state.failing is None:
            state.failing = FailingStore(store, kind, now_ms)
            state.failures += 1
            state.unlogged += 1
        elif state.failing.kind != kind:
            state.failing = replace(state.failing, kind=kind)
        if state.is_logged or (state.logged_ms is not None and 0 <= now_ms - state.logged_ms < LOG_EVERY_MS):
            return None
        state.is_logged, state.logged_ms, unlogged, state.unlogged = True, now_ms, state.unlogged - 1, 0
        return StoreFailed(store, kind, detail, unlogged)
