"""A cache of what was read from the file of keys: kept until the file changes, and for as long as the file cannot be
read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from voicepipe.auth.sqlite import KeysUnreadable
from voicepipe.clock import monotonic_ms
from voicepipe.errors import StorageFailureKind
from voicepipe.storage import StorageHealth, kind_of

T = TypeVar("T")

RETRY_MS: Final = 1_000
"""Time after which a file that has changed and cannot be read is tried again, in ms: requests in between do not wait
for it.
"""


class FileCache(Generic[T]):
    """A cache of one reading of the file. Threads may share one."""

    def __init__(self, state: Callable[[], bytes], health: StorageHealth | None) -> None:
        """Create a cache. `state`: returns some bytes of the file that differ after every change
        (`sqlite.change_counter`).
        """
        self._state, self._health = state, health
        self._lock = threading.Lock()
        self._found: tuple[bytes, T] | None = None
        """The file's state, and what was read in it: replaced together, since threads read both."""

        self._retry_ms: int | None = None
        """When a file that cannot be read is tried again; None: it can be read."""

    @property
    def last(self) -> T | None:
        """Return what was read last; None: nothing was ever read."""
        return None if self._found is None else self._found[1]

    def current(self) -> T | None:
        """Return what was read if the file is unchanged, or cannot be checked now; else None: the file must be read.

        Never waits for another process: a short read, also on an event loop.
        """
        found = self._found
        if found is None:
            return None
        if self._retry_ms is not None and monotonic_ms() < self._retry_ms:
            return found[1]
        try:
            state = self._state()
        except OSError as why:
            self._failed(kind_of(why), why)
            return found[1]
        if not state or state != found[0]:
            return None
        self._recovered()
        return found[1]

    def get(self, read: Callable[[], T]) -> T:
        """Return what `read` finds in the file as it is now, or its last result if the file cannot be read.

        May wait for another process: call from a worker thread.

        Raises:
            ConfigError: it cannot be read, and never was.
            OSError: likewise.
        """
        with self._lock:
            found = self.current()
            if found is not None:
                return found
            try:
                # Read before the rest: a change in between is then found the next time, never missed.
                state = self._state()
                self._found = (state, read())
                self._recovered()
            except KeysUnreadable as why:
                self._failed(why.kind, why)
            except OSError as why:
                self._failed(kind_of(why), why)
            assert self._found is not None
            return self._found[1]

    def _failed(self, kind: StorageFailureKind, why: Exception) -> None:
        if self._found is None:
            raise why
        self._retry_ms = monotonic_ms() + RETRY_MS
        if self._health is not None:
            self._health.failed("keys", kind, str(why))

    def _recovered(self) -> None:
        self._retry_ms = None
        if self._health is not None:
            self._health.worked("keys")
