"""What the tests of phone calls share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.virtual import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories
from voicepipe.audio import g711
from voicepipe.audio.files import read_sound


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def no(question: Path) -> bytes:
    """Return a spoken "no", mu-law at 8 kHz."""
    return g711.encode_mulaw(read_sound(question, 8_000))
