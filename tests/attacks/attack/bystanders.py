"""Two users who do nothing wrong: one speaks in frames of 20 ms, one writes. What they feel is what counts."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pybase64
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from attack.target import HANG_S, Target, written_turn
from voicepipe.audio.files import read_sound
from voicepipe.audio.samples import to_pcm

RATE_HZ = 24_000
FRAME_MS = 20
SPOKEN_MS, PAUSE_MS = 1_300, 3_700
"""A word, and the time in which the agent answers."""

BETWEEN_TURNS_S = 0.3
"""The pause in which an answer is played to its end before the next question."""

SPEECH = Path(__file__).parents[2] / "data" / "clean" / "cv_22058264.flac"


@dataclass(slots=True)
class Experience:
    """What the innocent felt in a stretch of time."""

    waits_ms: list[float] = field(default_factory=list)
    """How long each frame's ping took through the server's loop."""

    turns_ms: list[float] = field(default_factory=list)
    """From a written question to the first sound of its answer."""

    completed: int = 0
    spoken: Counter[str] = field(default_factory=Counter)
    """Spoken responses by status."""

    failed: list[str] = field(default_factory=list)
    """Whatever went wrong, in words."""


class Bystanders:
    """Both users."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._over = asyncio.Event()
        self._turn_ended = asyncio.Event()
        self.felt = Experience()

    def begin_anew(self) -> Experience:
        """Return what was felt up to now, and count from here on."""
        before, self.felt = self.felt, Experience()
        return before

    async def turns(self, n: int) -> None:
        """Wait until `n` more written turns have ended, well or badly.

        Raises:
            TimeoutError: they did not within `HANG_S`.
        """
        async with asyncio.timeout(HANG_S):
            for _ in range(n):
                await self._turn_ended.wait()

    def stop(self) -> None:
        """Let both end after what they are doing."""
        self._over.set()

    # --- the one who writes -------------------------------------------------------------------

    async def write(self) -> None:
        """Ask and wait for the answer, again and again."""
        line = await self._target.line(credential=self._target.key)
        async with line:
            while not self._over.is_set():
                felt = self.felt
                try:
                    status, first_ms = await written_turn(line)
                except (TimeoutError, ConnectionClosed) as why:
                    felt.failed.append(f"a written turn: {why!r}")
                    status, first_ms = "", None
                felt.completed += status == "completed"
                if status not in ("completed", ""):
                    felt.failed.append(f"a written turn ended as {status}")
                if first_ms is not None:
                    felt.turns_ms.append(first_ms)
                self._turn_ended.set()
                self._turn_ended.clear()
                if line.close_code is not None:
                    return
                await asyncio.sleep(BETWEEN_TURNS_S)

    # --- the one who speaks -------------------------------------------------------------------

    async def speak(self) -> None:
        """Send frames as a microphone does, pinging with each, and read what comes."""
        line = await self._target.line(credential=self._target.key)
        async with line, asyncio.TaskGroup() as group:
            reading = group.create_task(self._read(line))
            pinging = group.create_task(self._ping(line))
            try:
                await self._send_frames(line)
            except ConnectionClosed as why:
                self.felt.failed.append(f"the spoken call: {why!r}")
            reading.cancel()
            pinging.cancel()

    async def _send_frames(self, line: ClientConnection) -> None:
        now = asyncio.get_running_loop().time
        began_s = now()
        for n, frame in enumerate(itertools.cycle(spoken_frames())):
            if self._over.is_set():
                return
            await asyncio.sleep(max(0.0, began_s + n * FRAME_MS / 1_000 - now()))
            await line.send(frame)

    async def _ping(self, line: ClientConnection) -> None:
        try:
            while True:
                felt = self.felt
                felt.waits_ms.append(await (await line.ping()) * 1_000)
                await asyncio.sleep(FRAME_MS / 1_000)
        except ConnectionClosed:
            pass  # the sending side sees it too

    async def _read(self, line: ClientConnection) -> None:
        try:
            async for message in line:
                event = json.loads(message)
                if event["type"] == "response.done":
                    status = event["response"]["status"]
                    self.felt.spoken[status] += 1
                    if status == "failed":
                        self.felt.failed.append(f"a spoken turn: {event['response']['status_details']}")
                if event["type"] == "error":
                    self.felt.failed.append(f"the spoken call: {event['error']['message']}")
        except ConnectionClosed:
            pass  # the sending side sees it too


@asynccontextmanager
async def bystanders(target: Target) -> AsyncIterator[Bystanders]:
    """Both are in their calls, and each has had its first turn, when the block begins."""
    users = Bystanders(target)
    async with asyncio.TaskGroup() as group:
        group.create_task(users.write())
        group.create_task(users.speak())
        try:
            await users.turns(2)
            yield users
        finally:
            users.stop()


def append(pcm: bytes) -> str:
    """An `input_audio_buffer.append`."""
    return f'{{"type":"input_audio_buffer.append","audio":"{pybase64.b64encode_as_string(pcm)}"}}'


def spoken_pcm() -> bytes:
    """Return a user's "no", and then silence; int16 at 24 kHz."""
    spoken = read_sound(SPEECH, RATE_HZ)[: SPOKEN_MS * RATE_HZ // 1_000]
    return to_pcm(np.concatenate([spoken, np.zeros(PAUSE_MS * RATE_HZ // 1_000, dtype=np.int16)]))


def spoken_frames(frame_ms: int = FRAME_MS) -> list[str]:
    """The same in events of `frame_ms`."""
    pcm, step = spoken_pcm(), 2 * RATE_HZ * frame_ms // 1_000
    return [append(pcm[at : at + step]) for at in range(0, len(pcm), step)]
