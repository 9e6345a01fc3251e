"""A running server with a fake vendor behind it, for tests named after the rows of the wire's contract."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from voicepipe.audio.files import read_sound
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.clock import unix_s
from voicepipe.ports.transcriber import Samples
from voicepipe.testing.fakes.cues import LlmCue, tokens
from voicepipe.testing.journal_check import JournalCheck
from voicepipe.testing.user import WIRE_HZ

ANSWER = "It is noon. Anything else?"


@pytest.fixture(autouse=True)
def replayed() -> Iterator[None]:
    """Every session of the server, written down as a journal, is replayed without a difference."""
    sessions = JournalCheck()
    with sessions.watching():
        yield
    assert sessions.problems() == []


@pytest.fixture
async def server(fake_server: Any) -> AsyncIterator[Any]:
    """A server that needs no key and answers every question with the same words."""
    async with fake_server() as opened:
        opened.vendor.llm.usual = LlmCue(tokens=tokens(ANSWER))
        yield opened


@pytest.fixture
def answer() -> str:
    """What the model says."""
    return ANSWER


@pytest.fixture
def speech(question: Path) -> Samples:
    """Return a user's "no", and then silence for a while: int16 at 24 kHz."""
    return read_sound(question, WIRE_HZ)


@pytest.fixture
def new_key(server: Any) -> str:
    """Make an API key of the server, which is closed to every client without one from now on."""
    return ApiKeys(server.folder / "data").create("acme", now_s=unix_s()).text
