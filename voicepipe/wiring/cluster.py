"""Open the store of shared state that the settings name."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from voicepipe.cluster.port import Cluster
from voicepipe.cluster.redis import open_redis
from voicepipe.cluster.resilient import Resilient, ResilientOptions, open_resilient
from voicepipe.cluster.sqlite import open_sqlite
from voicepipe.config.settings import Settings
from voicepipe.storage import StorageHealth


def open_store(settings: Settings, health: StorageHealth | None = None) -> AbstractAsyncContextManager[Cluster]:
    """Open the store for the duration of the block: the server that `cluster.store` names, or this machine's file.

    `health`: notified when one server of `cluster.snapshot_stores` is away.

    Raises:
        ConfigError: the store can't be opened; the text has the reason.
    """
    cluster = settings.cluster
    if not cluster.store:
        return open_sqlite(settings.data_path)
    return open_redis(cluster.store, cluster.name, snapshot_urls=cluster.snapshot_stores, health=health)


@asynccontextmanager
async def shared_state(settings: Settings, health: StorageHealth) -> AsyncIterator[Resilient]:
    """Open the store, and stand before it while it is away."""
    options = ResilientOptions(unavailable=settings.server.store_unavailable)
    async with open_store(settings, health) as store, open_resilient(store, health, options) as cluster:
        yield cluster


def node_of(settings: Settings) -> str:
    """Return this machine's name in the cluster; empty: the store is of this machine alone."""
    return (settings.cluster.node or socket.gethostname()) if settings.cluster.store else ""
