"""The servers of the tests: one of each kind for all of a module's tests, each with a cluster of its own name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from voicepipe.testing.redis import KINDS, RedisServer, redis_server


@pytest.fixture(scope="module", params=KINDS)
def redis(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A server that runs, of each kind."""
    with redis_server(request.param) as server:
        yield server
