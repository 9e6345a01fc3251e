"""Open the store of turn records that the settings name."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from voicepipe.config.settings import RecordsSettings, Settings
from voicepipe.telemetry.log import log_event
from voicepipe.telemetry.rollups.retention import Retention
from voicepipe.telemetry.store import postgres, sqlite_file
from voicepipe.telemetry.store.port import StoreError, TurnStore
from voicepipe.telemetry.store.postgres import PostgresTurnStore
from voicepipe.telemetry.store.sqlite import SqliteTurnStore

MB = 1_000_000

SUMMARY_PAUSES_S: Final = (0.5, 1.0, 2.0, 4.0)
"""Pauses until the store is expected to have a session's turns, which it gets in batches."""


def turns_file(settings: Settings) -> Path:
    """Return the file of the turn records when no database is configured."""
    return settings.data_path / "turns.sqlite3"


@asynccontextmanager
async def open_turns(settings: Settings) -> AsyncIterator[TurnStore]:
    """Open the store for the duration of the block.

    Raises:
        ConfigError: the store can't be opened; the text has the reason.
    """
    url = settings.records.url
    store = await (PostgresTurnStore.open(url) if url else SqliteTurnStore.open(turns_file(settings)))
    try:
        yield store
    finally:
        await store.close()


async def downgrade_turns(settings: Settings, version: int) -> int:
    """Bring the tables of the turn records back to an older version; return the version that they had.

    Raises:
        ConfigError: there are none, or there is no way back to that version; the text has the reason.
    """
    url = settings.records.url
    return await (
        postgres.downgrade(url, version)
        if url
        else asyncio.to_thread(sqlite_file.downgrade, turns_file(settings), version)
    )


def retention_of(records: RecordsSettings) -> Retention:
    """Return how long turns are kept."""
    return Retention(keep_days=records.keep_days or None, max_bytes=records.max_mb * MB if records.max_mb else None)


async def store_summary(store: TurnStore, project: str, session: str, summary: str) -> None:
    """Store the summary of a session, once the last of its turns is written; log where that fails."""
    try:
        for pause_s in SUMMARY_PAUSES_S:
            if await store.store_summary(project, session, summary):
                return
            await asyncio.sleep(pause_s)
    except StoreError as why:
        log_event("summary_not_stored", level=logging.WARNING, session=session, why=str(why))
    else:
        log_event("summary_not_stored", level=logging.WARNING, session=session, why="its turns are not stored")
