"""Open the store of responses over REST, and delete what is too old."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from voicepipe.clock import unix_s
from voicepipe.cluster.response_store import FILE_NAME, ResponseStore
from voicepipe.config.settings import Settings
from voicepipe.errors import StoreUnavailable
from voicepipe.storage import StorageHealth

PURGE_S: Final = 600.0
"""Interval in which responses are deleted that were not used for too long."""


@asynccontextmanager
async def open_responses(settings: Settings, health: StorageHealth) -> AsyncIterator[ResponseStore]:
    """Yield the store for the duration of the block. With `records.redact` it stores nothing: a request that goes on
    from a response needs its words as they are."""
    options = settings.server
    store = ResponseStore(
        settings.data_path / FILE_NAME,
        max_bytes=0 if settings.records.redact else options.responses_max_mb * 1_000_000,
        keep_s=options.responses_keep_h * 3_600,
        health=health,
    )
    try:
        yield store
    finally:
        await store.close()


async def purge_responses(store: ResponseStore) -> None:
    """Delete responses that are too old, until this is cancelled. A failing store is reported by its health."""
    while True:
        with suppress(StoreUnavailable):
            await store.purge(now_s=unix_s())
        await asyncio.sleep(PURGE_S)
