"""Report the state of the stores to the log, the API and `/metrics`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from voicepipe.clock import unix_ms
from voicepipe.storage import STORES, StorageHealth, StoreChange, StoreFailed, StoreLost, StoreRecovered
from voicepipe.telemetry.log import log_event
from voicepipe.telemetry.metrics.catalog import Sample


def log_storage(change: StoreChange) -> None:
    """Log that a store started to fail, works again, or has lost data."""
    match change:
        case StoreFailed(store, kind, detail, unlogged):
            log_event(
                "storage_failed", level=logging.ERROR, store=store, kind=kind, why=detail, unlogged=unlogged or None
            )
        case StoreRecovered(store, lasted_ms):
            log_event("storage_recovered", store=store, lasted_ms=lasted_ms)
        case StoreLost(store, count, what):
            log_event("storage_lost", level=logging.ERROR, store=store, count=count, what=what)


def new_health() -> StorageHealth:
    """Return a health object without any store yet, whose changes go to the log."""
    return StorageHealth(unix_ms, log_storage)


def failing_stores_plain(health: StorageHealth) -> list[dict[str, Any]]:
    """Return the stores that fail now, as plain values for JSON: `store`, `kind`, `since`. They name no file."""
    return [{"store": each.store, "kind": each.kind, "since": _iso(each.since_ms)} for each in health.failing_stores()]


def storage_samples(health: StorageHealth) -> Iterator[Sample]:
    """Return the samples for `/metrics`."""
    now = {each.store for each in health.failing_stores()}
    for store in STORES:
        yield Sample("storage_failing", store in now, (store,))
        yield Sample("storage_failures_total", health.failures(store), (store,))


def _iso(unix_ms: int) -> str:
    return datetime.fromtimestamp(unix_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
