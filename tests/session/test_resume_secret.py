"""A client gets no resume secret that the store does not know: the session would be lost with its node."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

import aiohttp
import pytest

from voicepipe.session import session as sessions
from voicepipe.session import snapshot_writer
from voicepipe.session.snapshot import SessionSnapshot
from voicepipe.session.snapshot_writer import SnapshotWriter
from voicepipe.testing.waiting import WAIT_S, eventually

UPDATE = {"type": "session.update", "session": {"type": "realtime", "providerData": {"voicepipe": {"resume": True}}}}


class Store:
    """Takes the text of sessions once `answer_now` is set."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        """The digest of each write."""

        self.answer_now = asyncio.Event()

    async def keep(self, state: SessionSnapshot, digest: str, previous_digest: str) -> bool:
        """Store a text."""
        self.begun.append(digest)
        await self.answer_now.wait()
        return True


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    """The store of every session that begins in this test."""
    made = Store()

    def shared() -> SnapshotWriter:
        text = SnapshotWriter()
        text.store = made.keep
        return text

    monkeypatch.setattr(sessions, "SnapshotWriter", shared)
    return made


async def _has_begun(store: Store) -> bool | None:
    return bool(store.begun) or None


async def test_the_secret_leaves_when_the_store_knows_it(
    server: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So do the events behind it, in their order; what came before has left."""
    monkeypatch.setattr(snapshot_writer, "MAX_SECRET_WAIT_S", 10 * WAIT_S)
    got: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def read(line: aiohttp.ClientWebSocketResponse) -> None:
        async for message in line:
            got.put_nowait(json.loads(message.data))

    async with aiohttp.ClientSession() as http, http.ws_connect(f"{server.base_url}/v1/realtime") as line:
        reading = asyncio.create_task(read(line))
        async with asyncio.timeout(WAIT_S):
            await line.send_json(UPDATE)
            await line.send_json({"type": "not_an_event"})
            await eventually(lambda: _has_begun(store))
            assert (await got.get())["type"] == "session.created"
            assert got.empty()
            store.answer_now.set()
            updated, error = await got.get(), await got.get()
        secret = updated["session"]["providerData"]["voicepipe"]["resume_secret"]
        assert store.begun[0] == hashlib.sha256(secret.encode()).hexdigest()
        assert error["type"] == "error"
        reading.cancel()


async def test_a_store_that_hangs_holds_the_secret_for_a_moment_only(
    server: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_writer, "MAX_WRITE_WAIT_S", 0)
    async with aiohttp.ClientSession() as http, http.ws_connect(f"{server.base_url}/v1/realtime") as line:
        async with asyncio.timeout(WAIT_S):
            await line.send_json(UPDATE)
            kinds = [json.loads((await line.receive()).data)["type"] for _ in range(2)]
    assert kinds == ["session.created", "session.updated"]
