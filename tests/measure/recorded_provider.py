"""A provider for the bench: its LLM sends one sentence, its TTS a recording, its STT a given text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import msgspec
from aiohttp import web

from voicepipe.audio.samples import Samples, to_pcm
from voicepipe.client import RATE_HZ

SENTENCE: Final = "I will read to you for a while."

_PIECE_MS: Final = 200
_PACE: Final = 20
"""Speed as a multiple of real time, as of a hosted TTS; faster audio would all be sent at once."""


class RecordedProvider:
    """OpenAI's wire, as far as voicepipe uses it."""

    def __init__(self, speech: Samples) -> None:
        """`speech`: the TTS's audio for any text, int16, (n_samples,), 24 kHz."""
        self._speech = speech
        self.transcript = ""
        """The STT's text for any audio."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Answer on a free local port; yield the base URL, up to and with `/v1`."""
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/v1/audio/speech", self._speak)
        app.router.add_post("/v1/audio/transcriptions", self._transcribe)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        finally:
            await runner.cleanup()

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        await answer.write(_chunk({"role": "assistant", "content": SENTENCE}, None))
        await answer.write(_chunk({}, "stop") + b"data: [DONE]\n\n")
        return answer

    async def _speak(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        answer = web.StreamResponse(headers={"Content-Type": "audio/pcm"})
        await answer.prepare(request)
        n_piece = _PIECE_MS * RATE_HZ // 1_000
        with suppress(ConnectionError):  # the server disconnects when its agent is stopped
            for first in range(0, len(self._speech), n_piece):
                await answer.write(to_pcm(self._speech[first : first + n_piece]))
                await asyncio.sleep(_PIECE_MS / _PACE / 1_000)
        return answer

    async def _transcribe(self, request: web.Request) -> web.Response:
        await request.read()
        return web.json_response({"text": self.transcript})


def _chunk(delta: dict[str, Any], finish_reason: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    chunk = {"id": "bench", "object": "chat.completion.chunk", "choices": [choice]}
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"
