"""Open the store of turn records that the settings name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from voicepipe.config.settings import RecordsSettings, Settings
from voicepipe.telemetry.rollups.retention import Retention
from voicepipe.telemetry.store.port import TurnStore
from voicepipe.telemetry.store.postgres import PostgresTurnStore
from voicepipe.telemetry.store.sqlite import SqliteTurnStore

MB = 1_000_000


def turns_file(settings: Settings) -> Path:
    """Return the file of the turn records when no database is configured."""
    return settings.data_path / "turns.sqlite3"


@asynccontextmanager
async def open_turns(settings: Settings) -> AsyncIterator[TurnStore]:
    """Open the store for the duration of the block.

    Raises:
        ConfigError: the store can't be opened; the text says why.
    """
    url = settings.records.url
    store = await (PostgresTurnStore.open(url) if url else SqliteTurnStore.open(turns_file(settings)))
    try:
        yield store
    finally:
        await store.close()


def retention_of(records: RecordsSettings) -> Retention:
    """Return how long turns are kept."""
    return Retention(keep_days=records.keep_days or None, most_bytes=records.max_mb * MB if records.max_mb else None)
