"""Keeps a store in order while the server runs: figures summed up, old turns let go of."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from voicepipe import clock
from voicepipe.telemetry.log import log_event
from voicepipe.telemetry.store import StoreError, TurnStore


@dataclass(frozen=True, kw_only=True, slots=True)
class Retention:
    """How long turns are kept, and how often that is looked at."""

    keep_days: int | None = None
    """None: for ever."""

    most_bytes: int | None = None
    """What the store may take up; None: anything."""

    tidy_every_ms: int = 5_000
    """A span waits no longer than that, once it is over, to be summed up."""

    trim_every_ms: int = 60_000
    pause_ms: int = 10
    """Between two pieces of work. Each takes some ms: calls and the store's own writer come in between."""


async def keep_in_order(store: TurnStore, retention: Retention) -> None:
    """Sum up what is over and trim what is too old, piece by piece, until cancelled.

    A store that fails is tried again; the log says so once until it has worked again.
    """
    trim_at_ms, failing = 0, False
    while True:
        try:
            more = True
            while more:
                more = await store.tidy(clock.unix_ms())
                await asyncio.sleep(retention.pause_ms / 1_000)
            if clock.monotonic_ms() >= trim_at_ms:
                await _trim(store, retention)
                trim_at_ms = clock.monotonic_ms() + retention.trim_every_ms
            failing = False
        except StoreError as why:
            if not failing:
                log_event("records_not_in_order", level=logging.ERROR, why=str(why))
            failing = True
        await asyncio.sleep(retention.tidy_every_ms / 1_000)


async def _trim(store: TurnStore, retention: Retention) -> None:
    gone = 1
    while gone:
        gone = await store.trim(clock.unix_ms(), keep_days=retention.keep_days, most_bytes=retention.most_bytes)
        await asyncio.sleep(retention.pause_ms / 1_000)
