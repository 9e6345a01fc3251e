"""Files of items' audio are large: few are made, and sent between workers, at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from voicepipe.errors import Overload
from voicepipe.server.api import item_audio
from voicepipe.server.authenticate import Principal
from voicepipe.server.gateway.request_slots import RequestSlots
from voicepipe.server.gateway.slot_counts import AUDIO_SLOTS, SlotCaps
from voicepipe.server.workers.messages import QueryResult
from voicepipe.server.workers.peers import Workers


async def test_a_request_takes_a_slot_of_audio(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a free one only: the next is refused, not queued."""
    entered, left = asyncio.Event(), asyncio.Event()
    n_entered = 0

    async with serve() as server:
        slots = server.context.audio_slots
        path, key = "/v1/sessions/sess_1/items/item_1/audio", server.new_key("acme")

        async def held(*_: object) -> bytes:
            nonlocal n_entered
            n_entered += 1
            if n_entered <= slots.caps.all:
                if n_entered == slots.caps.all:
                    entered.set()
                await left.wait()
            return b"RIFF"

        async def status() -> int:
            async with server.http.get(server.base + path, headers=key) as answer:
                return int(answer.status)

        monkeypatch.setattr(item_audio, "own_item_audio", held)
        async with asyncio.TaskGroup() as group:
            taking = [group.create_task(status()) for _ in range(slots.caps.all)]
            await entered.wait()
            assert await status() == 503
            left.set()
        assert [each.result() for each in taking] == [200] * slots.caps.all
        assert len(slots) == 0


async def test_a_refusal_names_all_that_takes_these_slots() -> None:
    """Whatever was requested is among it."""
    slots, principal = RequestSlots(AUDIO_SLOTS, SlotCaps(1)), Principal("acme", None)
    async with slots.slot(principal):
        with pytest.raises(Overload) as refused:
            slots.check(principal)
    for kind in ("speech", "transcription", "translation", "audio of items"):
        assert kind in refused.value.why


class CountingLink:
    """Answers queries with a file, and counts how many are open."""

    def __init__(self) -> None:
        self.n_open = self.most_open = 0

    async def query(self, kind: str, data: bytes) -> QueryResult:
        self.n_open += 1
        self.most_open = max(self.most_open, self.n_open)
        await asyncio.sleep(0)
        self.n_open -= 1
        return QueryResult(0, [b"", b"RIFF"])


async def test_a_worker_requests_one_file_at_a_time() -> None:
    link: Any = CountingLink()
    workers = Workers(link, "http://localhost")
    files = await asyncio.gather(*(workers.item_audio(None, "sess_1", f"item_{n}") for n in range(5)))
    assert files == [b"RIFF"] * 5
    assert link.most_open == 1
