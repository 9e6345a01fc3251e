"""Maintain a store while the server runs: sum up figures, delete old turns."""

from __future__ import annotations

import asyncio
import logging

from msgspec import Struct

from voicepipe import clock
from voicepipe.telemetry.log import log_event
from voicepipe.telemetry.store.port import StoreError, TurnStore


class Retention(Struct, frozen=True, kw_only=True):
    """The retention of turns, and the interval of its check."""

    keep_days: int | None = None
    """Days for which turns are stored; None: no limit."""

    max_bytes: int | None = None
    """Size limit of the store; None: no limit."""

    maintain_every_ms: int = 5_000
    """Interval of the search for finished buckets."""

    trim_every_ms: int = 60_000
    pause_ms: int = 10
    """Pause between two steps. A step takes a few ms: sessions and the store's own writer run in between."""


async def maintain(store: TurnStore, retention: Retention) -> None:
    """Sum up finished buckets and delete old turns, step by step, until cancelled.

    A store that fails is tried again; the failure is logged once until the store works again.
    """
    trim_at_ms, is_failing = 0, False
    while True:
        try:
            has_more = True
            while has_more:
                has_more = await store.maintain_step(clock.unix_ms())
                await asyncio.sleep(retention.pause_ms / 1_000)
            if clock.monotonic_ms() >= trim_at_ms:
                await _trim(store, retention)
                trim_at_ms = clock.monotonic_ms() + retention.trim_every_ms
            is_failing = False
        except StoreError as why:
            if not is_failing:
                log_event("record_maintenance_failed", level=logging.ERROR, why=str(why))
            is_failing = True
        await asyncio.sleep(retention.maintain_every_ms / 1_000)


async def _trim(store: TurnStore, retention: Retention) -> None:
    n_deleted = 1
    while n_deleted:
        n_deleted = await store.trim(clock.unix_ms(), keep_days=retention.keep_days, max_bytes=retention.max_bytes)
        await asyncio.sleep(retention.pause_ms / 1_000)
