"""A test client on a real socket that checks every received event: shape, order, IDs."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import numpy as np

from voicepipe import clock
from voicepipe.audio.samples import to_pcm
from voicepipe.ports.transcriber import Samples
from voicepipe.protocol import binary
from voicepipe.testing.strict_events import problems
from voicepipe.testing.waiting import WAIT_S
from voicepipe.testing.wire_checker import WireChecker

WireEvent = dict[str, Any]

WIRE_HZ = 24_000
BINARY = "binary"
"""The event type of a received binary frame."""


class User:
    """One session as its client receives it. `events` has the events; `problems` has their faults."""

    def __init__(self, line: aiohttp.ClientWebSocketResponse) -> None:
        self.line = line
        self.events: list[WireEvent] = []
        self.checker = WireChecker()
        self.faults: list[str] = []
        self.close_code: int | None = None

    async def send(self, kind: str, **fields: object) -> None:
        """Send one event."""
        event = {"type": kind, **fields}
        self.checker.sent(event)
        await self.line.send_str(json.dumps(event))

    async def speak(self, samples: Samples, *, then_silence_ms: int = 0) -> None:
        """Send speech, int16 at 24 kHz, in one append, faster than real time; followed by silence if requested."""
        silence = np.zeros(then_silence_ms * WIRE_HZ // 1_000, dtype=np.int16)
        pcm = np.concatenate((samples, silence)).tobytes()
        await self.send("input_audio_buffer.append", audio=base64.b64encode(pcm).decode())

    async def speak_binary(self, samples: Samples) -> None:
        """Send speech in one binary frame, in a session that enabled binary frames."""
        await self.line.send_bytes(binary.user_frame(to_pcm(samples)))

    async def speak_in_real_time(self, samples: Samples) -> None:
        """Send speech as a microphone does: 20 ms at a time, in real time."""
        n_frame, started_ms = WIRE_HZ // 50, clock.monotonic_ms()
        for first in range(0, len(samples), n_frame):
            due_ms = started_ms + first * 1_000 // WIRE_HZ
            await asyncio.sleep(max(0, due_ms - clock.monotonic_ms()) / 1_000)
            await self.speak(samples[first : first + n_frame])

    async def next(self) -> WireEvent:
        """Return the next event, checked. A binary frame is returned as an event of type `BINARY`.

        Raises:
            ConnectionError: the connection was closed; `close_code` has the code.
        """
        async with asyncio.timeout(WAIT_S):
            message = await self.line.receive()
        if message.type is aiohttp.WSMsgType.BINARY:
            return self._take_binary(message.data)
        if message.type is not aiohttp.WSMsgType.TEXT:
            # aiohttp reports 1006 once its own answer to the close frame finds the connection closed
            self.close_code = message.data if message.type is aiohttp.WSMsgType.CLOSE else self.line.close_code
            raise ConnectionError(f"the line was closed with {self.close_code}")
        event: WireEvent = json.loads(message.data)
        self.events.append(event)
        self.checker.see(event)
        shape = problems(event, dialect=self.checker.dialect, extended=self.checker.extended)
        self.faults += [f"{event['type']}: {fault}" for fault in shape]
        return event

    def _take_binary(self, frame: bytes) -> WireEvent:
        sound = binary.agent_sound(frame)
        event: WireEvent = {"type": BINARY, "stream": sound.stream, "number": sound.number, "audio": sound.audio}
        self.events.append(event)
        if not self.checker.extended:
            self.faults.append("a binary frame in a session that did not request them")
        return event

    async def until(self, kind: str, where: Callable[[WireEvent], bool] = lambda event: True) -> WireEvent:
        """Return the next event of that type (and kind), skipping others."""
        while True:
            event = await self.next()
            if event["type"] == kind and where(event):
                return event

    async def prompt(self, text: str) -> str:
        """Send a text, request a response, and return the answer, after the calls that the server runs for it."""
        content = [{"type": "input_text", "text": text}]
        await self.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
        await self.send("response.create")
        return await self.answer()

    async def answer(self) -> str:
        """Return the next answer, after the calls that the server runs for it."""
        while True:
            output = (await self.until("response.done"))["response"]["output"]
            if not output or output[-1]["type"] != "mcp_call":
                parts = [part for item in output if item["type"] == "message" for part in item["content"]]
                return "".join(part.get("transcript") or part.get("text") or "" for part in parts)

    def kinds(self) -> list[str]:
        """Return the types of all events so far, consecutive deltas once."""
        kinds = [event["type"] for event in self.events]
        return [k for i, k in enumerate(kinds) if not (k.endswith(".delta") and i and kinds[i - 1] == k)]

    def sound(self) -> Samples:
        """Return all received audio, int16 at 24 kHz."""
        deltas = (_audio(event) for event in self.events)
        return np.frombuffer(b"".join(deltas), dtype="<i2")

    def require_sound_wire(self) -> None:
        """Fail with every fault of the events."""
        assert self.faults == []
        assert self.checker.problems == []


def _audio(event: WireEvent) -> bytes:
    match event:
        case {"type": "response.output_audio.delta", "delta": delta}:
            return base64.b64decode(delta)
        case {"audio": bytes(audio)}:
            return audio
        case _:
            return b""


@asynccontextmanager
async def calling(
    base_url: str, *, session: dict[str, Any] | None = None, query: str = "", **more: Any
) -> AsyncIterator[User]:
    """Connect to the server at `http://HOST:PORT`, and change the session to `session` first; check all events at the
    end.

    `query` follows the question mark of the URL.
    """
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(f"{base_url}/v1/realtime?{query}", max_msg_size=0, **more) as line,
    ):
        user = User(line)
        await user.until("session.created")
        if session is not None:
            await user.send("session.update", session={"type": "realtime", **session})
            await user.until("session.updated")
        yield user
        user.require_sound_wire()
