"""A Postgres that all tests of a run share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from voicepipe.testing.postgres import postgres


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Where it is reached. It is there only while tests run that ask for it, and fails them where it can't be had."""
    with postgres() as url:
        yield url
