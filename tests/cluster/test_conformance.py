"""Both clusters keep every promise of the port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from voicepipe.cluster.memory import MemoryCluster
from voicepipe.cluster.port import Cluster
from voicepipe.cluster.sqlite import open_sqlite
from voicepipe.testing.conformance import cluster as suite


@asynccontextmanager
async def open_memory() -> AsyncIterator[Cluster]:
    yield MemoryCluster()


@pytest.mark.parametrize("promise", suite.PROMISES, ids=lambda promise: promise.__name__)
async def test_memory_keeps_the_promise(promise: suite.Promise) -> None:
    await promise(open_memory)


@pytest.mark.parametrize("promise", suite.PROMISES, ids=lambda promise: promise.__name__)
async def test_sqlite_keeps_the_promise(promise: suite.Promise, tmp_path: Path) -> None:
    def open_file() -> AbstractAsyncContextManager[Cluster]:
        return open_sqlite(tmp_path, poll_ms=10)

    await promise(open_file)
