"""All clusters pass every conformance check of the port."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from tests.cluster.stores import open_redis, open_sqlite
from voicepipe.cluster.memory import MemoryCluster
from voicepipe.cluster.port import Cluster
from voicepipe.testing.conformance import cluster as suite
from voicepipe.testing.redis import RedisServer


@asynccontextmanager
async def open_memory() -> AsyncIterator[Cluster]:
    yield MemoryCluster()


@pytest.mark.parametrize("check", suite.CONFORMANCE_CHECKS, ids=lambda check: check.__name__)
async def test_memory_conforms(check: suite.ConformanceCheck) -> None:
    await check(open_memory)


@pytest.mark.parametrize("check", suite.CONFORMANCE_CHECKS, ids=lambda check: check.__name__)
async def test_sqlite_conforms(check: suite.ConformanceCheck, tmp_path: Path) -> None:
    def open_file() -> AbstractAsyncContextManager[Cluster]:
        return open_sqlite(tmp_path, poll_ms=10)

    await check(open_file)


@pytest.mark.slow
@pytest.mark.parametrize("check", suite.CONFORMANCE_CHECKS, ids=lambda check: check.__name__)
async def test_redis_conforms(check: suite.ConformanceCheck, redis: RedisServer) -> None:
    name = secrets.token_hex(4)

    def open_server() -> AbstractAsyncContextManager[Cluster]:
        return open_redis(redis.url, name, poll_ms=10)

    await check(open_server)
