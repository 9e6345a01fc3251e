"""A provider for the bench whose delays can be set while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
import numpy as np
from aiohttp import web

from voicepipe.audio.samples import to_pcm
from voicepipe.client import RATE_HZ

StageName = Literal["stt", "llm", "tts"]

TOKENS: Final = ("It", " stands", " right", " by", " the", " old", " bridge", ".")
"""One clause: the TTS gets no text before its last token, or before the server cuts it."""


CALL_ID: Final = "call_clock"

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """The delay of each stage, in ms."""

    stt_ms: int = 20
    llm_ms: int = 50
    token_ms: int = 0
    """Between two tokens."""

    tts_ms: int = 30


class DelayedProvider:
    """OpenAI's wire, as far as voicepipe uses it."""

    def __init__(self, sound_ms: int) -> None:
        """`sound_ms`: length of the answer's audio."""
        self._tone = 8_000 * np.sin(2 * np.pi * 220 / RATE_HZ * np.arange(sound_ms * RATE_HZ // 1_000))
        self.delays = Delays()
        self.calls = False
        """Whether the LLM calls a function before it answers."""

        self.hangs = False
        """Whether what is under `/hanging` sends nothing until the server closes the request; else it answers."""

        self.on_request: Callable[[StageName], None] = _ignore
        """Called at each request; its answer is sent afterwards."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Answer on a free local port; yield the base URL, up to and with `/v1`."""
        app = web.Application(client_max_size=64 << 20)
        handlers = {
            "chat/completions": self._complete,
            "audio/speech": self._speak,
            "audio/transcriptions": self._transcribe,
        }
        for path, answer in handlers.items():
            app.router.add_post(f"/v1/{path}", answer)
            app.router.add_post(f"/hanging/v1/{path}", self._hanging(answer))
        app.router.add_post("/failing/v1/{path:.*}", self._fail)
        runner = web.AppRunner(app, handler_cancellation=True)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        finally:
            await runner.cleanup()

    async def _transcribe(self, request: web.Request) -> web.Response:
        await self._take(request, "stt", self.delays.stt_ms)
        return web.json_response({"text": "Where is the house?"})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        await self._take(request, "llm", self.delays.llm_ms)
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        messages = msgspec.json.decode(await request.read())["messages"]
        with suppress(ConnectionError):
            if self.calls and messages[-1]["role"] != "tool":
                call = {"index": 0, "id": CALL_ID, "function": {"name": "clock", "arguments": "{}"}}
                await answer.write(_chunk({"tool_calls": [call]}, None))
                await answer.write(_chunk({}, "tool_calls") + b"data: [DONE]\n\n")
                return answer
            for token in TOKENS:
                await answer.write(_chunk({"content": token}, None))
                await asyncio.sleep(self.delays.token_ms / 1_000)
            await answer.write(_chunk({}, "stop") + b"data: [DONE]\n\n")
        return answer

    async def _speak(self, request: web.Request) -> web.Response:
        await self._take(request, "tts", self.delays.tts_ms)
        return web.Response(body=to_pcm(self._tone.astype(np.int16)), content_type="audio/pcm")

    def _hanging(self, answer: Answer) -> Answer:
        async def hang(request: web.Request) -> web.StreamResponse:
            await request.read()
            if self.hangs:
                await asyncio.Event().wait()
            return await answer(request)

        return hang

    async def _fail(self, request: web.Request) -> web.Response:
        await request.read()
        return web.Response(status=503)

    async def _take(self, request: web.Request, stage: StageName, delay_ms: int) -> None:
        await request.read()
        self.on_request(stage)
        await asyncio.sleep(delay_ms / 1_000)


def _ignore(stage: StageName) -> None:
    """Do nothing."""


def _chunk(delta: dict[str, Any], finish_reason: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    chunk = {"id": "bench", "object": "chat.completion.chunk", "choices": [choice]}
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"
