"""One user of the soak: speaks, writes, has a tool called, interrupts, is cut off, hangs up, and calls again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from voicepipe import clock

Event = dict[str, Any]

ANSWER_TIMEOUT_S: Final = 60.0
"""No answer within this is counted; a busy machine takes seconds."""

FRAME_S: Final = 0.05
"""From one frame of 100 ms to the next: twice as fast as real time."""

TOOL: Final = {"type": "function", "name": "look_up", "parameters": {"type": "object", "properties": {}}}
ACTIONS: Final = ("speak", "speak", "write", "interrupt", "tool")


@dataclass(slots=True)
class Totals:
    """What all users did and received."""

    counts: Counter[str] = field(default_factory=Counter)
    turns: set[str] = field(default_factory=set)
    """Ids of the turns whose end a user was notified of."""


@dataclass(slots=True, kw_only=True)
class User:
    """Calls again and again. `frames` are whole messages: a sentence, and the silence after it."""

    url: str
    http: aiohttp.ClientSession
    frames: list[str]
    chance: random.Random
    totals: Totals
    think_s: float
    """From one turn to the next, on average."""

    _ended: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)  # bounded by the turns of one call
    _sound: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, until_ms: int) -> None:
        """Call until then."""
        while clock.monotonic_ms() < until_ms:
            try:
                await self._call(until_ms)
            except (aiohttp.ClientError, ConnectionError) as why:
                self.totals.counts[f"broke: {type(why).__name__}"] += 1
                await asyncio.sleep(1)

    async def _call(self, until_ms: int) -> None:
        async with self.http.ws_connect(self.url, max_msg_size=0) as line, asyncio.TaskGroup() as group:
            self.totals.counts["calls"] += 1
            self._ended = asyncio.Queue()
            listening = group.create_task(self._listen(line), name="listen")
            await self._talk(line, until_ms)
            await asyncio.sleep(0)
            listening.cancel()

    async def _talk(self, line: aiohttp.ClientWebSocketResponse, until_ms: int) -> None:
        extensions = {"turn_events": True, "resume": self.chance.random() < 0.5}
        session = {"type": "realtime", "tools": [TOOL], "tool_choice": "none"}
        await self._send(line, "session.update", session=session | {"providerData": {"voicepipe": extensions}})
        for _ in range(self.chance.randrange(1, 6)):
            await self._turn(line, self.chance.choice(ACTIONS))
            if self.chance.random() < 0.08:
                self.totals.counts["dropped"] += 1
                return _cut(line)
            if line.closed or clock.monotonic_ms() > until_ms:
                break
            await asyncio.sleep(self.chance.expovariate(1 / self.think_s))
        return None

    async def _turn(self, line: aiohttp.ClientWebSocketResponse, action: str) -> None:
        self.totals.counts[action] += 1
        self._sound.clear()
        if action in ("speak", "interrupt"):
            await self._speak(line)
        else:
            await self._write(line, tool=action == "tool")
        if action == "interrupt":
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    await self._sound.wait()
            await self._speak(line)
        await self._answer(line, action)

    async def _answer(self, line: aiohttp.ClientWebSocketResponse, action: str) -> None:
        """Wait for the turn's end; run its tool, and wait for what is said to that."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                event = await self._end()
        except TimeoutError:
            self.totals.counts[f"no answer: {action}"] += 1
            return
        if event["type"] == "error":
            self.totals.counts[f"error: {event['error']['code']}"] += 1
            return
        self.totals.counts[event["response"]["status"]] += 1
        for item in event["response"]["output"]:
            if item["type"] == "function_call":
                self.totals.counts["tool results"] += 1
                output = {"type": "function_call_output", "call_id": item["call_id"], "output": "{}"}
                await self._send(line, "conversation.item.create", item=output)
                await self._send(line, "response.create")
                await self._answer(line, action)

    async def _end(self) -> Event:
        """What ends the turn: an answer that gave way to the user's voice is followed by another."""
        while True:
            event = await self._ended.get()
            if event["type"] == "error" or event["response"]["status"] != "cancelled":
                return event
            self.totals.counts["cancelled"] += 1

    async def _speak(self, line: aiohttp.ClientWebSocketResponse) -> None:
        for frame in self.frames:
            await line.send_str(frame)
            await asyncio.sleep(FRAME_S)

    async def _write(self, line: aiohttp.ClientWebSocketResponse, *, tool: bool) -> None:
        content = [{"type": "input_text", "text": "Where is number 7?"}]
        await self._send(line, "conversation.item.create", item={"type": "message", "role": "user", "content": content})
        await self._send(line, "response.create", response={"tool_choice": "auto" if tool else "none"})

    async def _send(self, line: aiohttp.ClientWebSocketResponse, kind: str, **fields: object) -> None:
        await line.send_str(json.dumps({"type": kind, **fields}))

    async def _listen(self, line: aiohttp.ClientWebSocketResponse) -> None:
        async for message in line:
            if message.type is aiohttp.WSMsgType.TEXT:
                self._take(message.data)

    def _take(self, text: str) -> None:
        if 'audio.delta"' in text[:400]:  # the sound itself is of no interest
            self._sound.set()
            return
        event: Event = json.loads(text)
        match event["type"]:
            case "response.done" | "error":
                self._ended.put_nowait(event)
            case "voicepipe.turn.record" if event["record"]["outcome"]:
                self.totals.turns.add(event["record"]["id"])
                self.totals.counts[f"turns {event['record']['outcome']}"] += 1


def _cut(line: aiohttp.ClientWebSocketResponse) -> None:
    """Lose the connection without a word of the protocol."""
    with contextlib.suppress(OSError):
        line.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
