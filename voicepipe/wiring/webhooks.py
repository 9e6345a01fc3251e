"""Build the webhooks of the settings, which report turns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from voicepipe.config.settings import Settings
from voicepipe.errors import ConfigError
from voicepipe.storage import StorageHealth
from voicepipe.tasks import background_tasks
from voicepipe.telemetry.log import log_event
from voicepipe.telemetry.store.port import StoreError
from voicepipe.telemetry.webhooks.queue import WebhookQueue
from voicepipe.telemetry.webhooks.queue_file import FILE_NAME, QueueFile
from voicepipe.telemetry.webhooks.queue_postgres import QueuePostgres
from voicepipe.telemetry.webhooks.sender import Webhooks
from voicepipe.telemetry.webhooks.session_events import SessionEvents


@asynccontextmanager
async def webhooks_of(settings: Settings, health: StorageHealth, *, is_first: bool) -> AsyncIterator[Webhooks]:
    """Yield the webhooks, which send while the block runs; unsent events stay in the file for the next start.

    `is_first`: whether this process does what is done once for all workers.

    Raises:
        ConfigError: the queue can't be opened.
    """
    hooks = [entry.webhook(name) for name, entry in settings.webhooks.items()]
    if not hooks:
        yield Webhooks()
        return
    queue = await _opened(settings, moves=is_first)
    webhooks = Webhooks(hooks, queue, health=health)
    try:
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(webhooks.run(), name="webhooks")
            try:
                yield webhooks
            finally:
                sending.cancel()
        await _write_waiting_events(webhooks)
    finally:
        await queue.close()


@asynccontextmanager
async def session_events_of(webhooks: Webhooks) -> AsyncIterator[SessionEvents]:
    """Yield the webhooks of whole sessions. A summary that is not written at the end is left out."""
    async with background_tasks() as tasks:
        yield SessionEvents(webhooks, tasks)


async def _opened(settings: Settings, *, moves: bool) -> WebhookQueue:
    """Open the queue: with the records in Postgres, which all nodes share, or in this machine's file. With `moves`,
    what was queued in the file before is moved to Postgres.

    Raises:
        ConfigError: it can't be opened, or what is in the file can't be moved.
    """
    path, url = settings.data_path / FILE_NAME, settings.records.url
    if not url:
        return WebhookQueue(await QueueFile.open(path))
    queue = WebhookQueue(await QueuePostgres.open(url))
    if moves and path.exists():
        former = WebhookQueue(await QueueFile.open(path))
        try:
            await former.move_all(queue)
        except StoreError as why:
            await queue.close()
            raise ConfigError(f"{path}: what waits there can't be moved to records.url: {why}") from None
        finally:
            await former.close()
    return queue


async def _write_waiting_events(webhooks: Webhooks) -> None:
    try:
        await webhooks.write_waiting_events()
    except StoreError as why:
        log_event("webhook_queue_write_failed", level=logging.ERROR, why=str(why))
