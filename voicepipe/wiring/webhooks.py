"""Build the webhooks of the settings, which report turns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from voicepipe.config.settings import Settings
from voicepipe.storage import StorageHealth
from voicepipe.tasks import background_tasks
from voicepipe.telemetry.log import log_event
from voicepipe.telemetry.store.port import StoreError
from voicepipe.telemetry.webhooks.queue import FILE_NAME, WebhookQueue
from voicepipe.telemetry.webhooks.sender import Webhooks
from voicepipe.telemetry.webhooks.session_events import SessionEvents


@asynccontextmanager
async def webhooks_of(settings: Settings, health: StorageHealth) -> AsyncIterator[Webhooks]:
    """Yield the webhooks, which send while the block runs; unsent events stay in the file for the next start.

    Raises:
        ConfigError: the file can't be read.
    """
    hooks = [entry.webhook(name) for name, entry in settings.webhooks.items()]
    if not hooks:
        yield Webhooks()
        return
    queue = await WebhookQueue.open(settings.data_path / FILE_NAME)
    webhooks = Webhooks(hooks, queue, health=health)
    try:
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(webhooks.run(), name="webhooks")
            try:
                yield webhooks
            finally:
                sending.cancel()
        await _settle(webhooks)
    finally:
        await queue.close()


@asynccontextmanager
async def session_events_of(webhooks: Webhooks) -> AsyncIterator[SessionEvents]:
    """Yield the webhooks of whole sessions. A summary that is not written at the end is left out."""
    async with background_tasks() as tasks:
        yield SessionEvents(webhooks, tasks)


async def _settle(webhooks: Webhooks) -> None:
    try:
        await webhooks.settle()
    except StoreError as why:
        log_event("webhook_queue_write_failed", level=logging.ERROR, why=str(why))
