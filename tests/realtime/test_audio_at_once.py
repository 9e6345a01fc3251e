"""A frame of a user's audio is processed in the call that has read it; a fault there ends that session alone."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import numpy as np
import pytest

from voicepipe.session.audio_input import AudioInput
from voicepipe.session.read_limit import ReadLimit
from voicepipe.testing.user import calling
from voicepipe.testing.waiting import WAIT_S

FRAME = np.zeros(480, dtype=np.int16)


async def test_frames_that_come_alone_are_processed_at_once(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is longer than 100 ms is received."""
    lengths, process_at_once = list[int](), AudioInput.process_at_once
    came = asyncio.Semaphore(0)

    def noted(self: AudioInput, audio: bytes, read_limit: ReadLimit) -> None:
        lengths.append(len(audio))
        came.release()
        process_at_once(self, audio, read_limit)

    monkeypatch.setattr(AudioInput, "process_at_once", noted)

    async with calling(server.url, session={}) as user:
        for _ in range(2):
            await user.speak(FRAME)
            await asyncio.wait_for(came.acquire(), WAIT_S)
        await user.speak(np.tile(FRAME, 10))
        await user.send("session.update", session={"type": "realtime"})
        await user.until("session.updated")
    assert lengths == [960, 960]


async def test_a_fault_in_a_frame_ends_its_session(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one in a message that is received does. The server serves others."""
    faults = [ZeroDivisionError("a fault of ours")]

    def broken(self: AudioInput, audio: bytes, read_limit: ReadLimit) -> None:
        if faults:
            raise faults.pop()

    monkeypatch.setattr(AudioInput, "process_at_once", broken)
    async with calling(server.url, session={}) as user, calling(server.url, session={}) as other:
        await user.speak(FRAME)
        with pytest.raises(ConnectionError):
            await user.until("an event that does not come")
        assert user.close_code == aiohttp.WSCloseCode.INTERNAL_ERROR
        await other.speak(FRAME)
        await other.send("session.update", session={"type": "realtime"})
        await other.until("session.updated")
