"""How failures of stores are tracked, and how often they are logged."""

from __future__ import annotations

import errno
import sqlite3

import pytest

from voicepipe.storage import LOG_EVERY_MS, StorageHealth, StoreChange, StoreFailed, StoreLost, StoreRecovered, kind_of


class Log:
    """A clock that stands still until it is moved, and the log's lines."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.changes: list[StoreChange] = []
        self.health = StorageHealth(lambda: self.now_ms, self.changes.append)


def test_each_failure_is_reported_once_with_its_end() -> None:
    """However often it is met, also when it turns into another one."""
    log = Log()
    log.health.worked("records")
    for kind in ("locked", "locked", "full"):
        log.health.failed("records", kind, f"/a/file: {kind}")
    (failing,) = log.health.failing_stores()
    assert (failing.store, failing.kind, failing.since_ms) == ("records", "full", 1_000)
    log.now_ms += 70
    log.health.worked("records")
    assert log.changes == [StoreFailed("records", "locked", "/a/file: locked", 0), StoreRecovered("records", 70)]
    assert (log.health.failing_stores(), log.health.failures("records")) == ((), 1)


def test_a_store_that_comes_and_goes_does_not_fill_the_log() -> None:
    """The changes between are counted, and a failure that lasts is reported in the end."""
    log = Log()
    for _ in range(50):
        log.health.failed("keys", "locked", "x")
        log.health.worked("keys")
    log.health.failed("keys", "full", "x")
    assert log.changes == [StoreFailed("keys", "locked", "x", 0), StoreRecovered("keys", 0)]
    log.now_ms += LOG_EVERY_MS
    log.health.failed("keys", "full", "y")
    log.health.worked("keys")
    assert log.changes[2:] == [StoreFailed("keys", "full", "y", 49), StoreRecovered("keys", LOG_EVERY_MS)]
    assert log.health.failures("keys") == 51


def test_each_store_is_reported_by_itself() -> None:
    """And what is lost, each time."""
    log = Log()
    log.health.failed("keys", "locked", "x")
    log.health.failed("records", "unreachable", "y")
    log.health.lost("shared", 3, "counts")
    assert [type(change) for change in log.changes] == [StoreFailed, StoreFailed, StoreLost]
    assert [failing.store for failing in log.health.failing_stores()] == ["keys", "records"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.ENOSPC, "no space"), "full"),
        (OSError(errno.EROFS, "read only"), "read_only"),
        (PermissionError(errno.EACCES, "denied"), "read_only"),
        (OSError(errno.EIO, "broken"), "io_error"),
        (OSError("who knows"), "io_error"),
        (TimeoutError(), "unreachable"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), "unreachable"),
        (ValueError("a value"), "unknown"),
        (sqlite3.ProgrammingError("closed"), "unknown"),
    ],
)
def test_an_error_says_what_is_wrong(error: Exception, kind: str) -> None:
    """Those of SQLite are tried for real, see tests/cluster/test_resilient.py."""
    assert kind_of(error) == kind
