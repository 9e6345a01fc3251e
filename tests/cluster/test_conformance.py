"""All clusters pass every conformance check of the port."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from voicepipe.cluster.memory import MemoryCluster
from voicepipe.cluster.port import Cluster
from voicepipe.cluster.redis import open_redis
from voicepipe.cluster.sqlite import open_sqlite
from voicepipe.testing.conformance import cluster as suite
from voicepipe.testing.redis import RedisServer
from voicepipe.testing.waiting import WAIT_S


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
        # The promises are not about how long an answer takes, and a busy machine may stand still.
        return open_redis(redis.url, name, poll_ms=10, answer_ms=int(WAIT_S * 1_000))

    await check(open_server)
