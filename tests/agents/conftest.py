"""A running server with a fake vendor behind it, for the tests of agents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.virtual import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories
from voicepipe.audio.files import read_sound
from voicepipe.ports.transcriber import Samples
from voicepipe.testing.journal_check import JournalCheck
from voicepipe.testing.user import WIRE_HZ


@pytest.fixture(autouse=True)
def replayed() -> Iterator[None]:
    """Every session of the server, written down as a journal, is replayed without a difference."""
    sessions = JournalCheck()
    with sessions.watching():
        yield
    assert sessions.problems() == []


@pytest.fixture
def speech(question: Path) -> Samples:
    """Return a user's "no", and then silence for a while: int16 at 24 kHz."""
    return read_sound(question, WIRE_HZ)
