"""A server of two workers for the tests of a module."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.wiring.workers import Server, serving
from voicepipe.testing.waiting import eventually


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    async with serving(tmp_path_factory.mktemp("workers")) as server:

        async def both() -> bool | None:
            return (await server.metric("workers") == 2 and len(await server.read("/v1/providers")) > 0) or None

        await eventually(both)
        yield server
