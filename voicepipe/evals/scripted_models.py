"""Scripted models behind OpenAI's APIs on a loopback port: an LLM with answers from the scenario, an STT that returns
what the user says, and a TTS that is a tone.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
import wave
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
from aiohttp import BodyPartReader, web

from voicepipe import clock
from voicepipe.audio.samples import Samples, to_pcm
from voicepipe.evals.scenario import Scripted, ScriptedAnswer
from voicepipe.evals.speech import StepSpeech, Words

RATE_HZ: Final = 24_000
CHAR_MS: Final = 60
"""Length of the tone for a character of text."""

TONE_HZ: Final = 220
AMPLITUDE: Final = 6_000
LEAD_MS: Final = 400
"""The transcriber's audio begins up to this time before the voice: the server pads utterances."""

HOP_MS: Final = 10
MAX_LATE_MS: Final = 5_000
"""The audio of a server that requests its text later is not found."""

BETTER: Final = 1.1
"""How much better the levels must fit an earlier time than the present one."""

UPLOAD_BYTES: Final = 16 << 20

Levels = npt.NDArray[np.float64]
"""Of each `HOP_MS`."""


class ScriptedModels:
    """A vendor for all three stages, whose answers are those of one scenario at a time."""

    def __init__(self, script: Scripted | None = None, *, names_unmatched: bool = False) -> None:
        """`names_unmatched`: the LLM answers that no answer fits; else the request is refused."""
        self.script = script or Scripted()
        self._names_unmatched = names_unmatched
        self.base_url = ""
        self._spoken: list[Words] = []
        """What the user says, by this machine's monotonic clock."""

        self._voice: list[tuple[int, Levels]] = []
        """(monotonic ms at which it starts, levels) of each utterance."""

    def begin(self, script: Scripted) -> None:
        """Use the answers of a scenario, whose next run begins."""
        self.script = script
        self._spoken.clear()
        self._voice.clear()

    def record(self, utterance: StepSpeech, start_ms: int) -> None:
        """Record an utterance of the user that starts at `start_ms` of this machine's monotonic clock."""
        self._spoken += [Words(each.text, start_ms + each.start_ms, start_ms + each.end_ms) for each in utterance.words]
        self._voice.append((start_ms, levels_of(utterance.samples, RATE_HZ)))

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Listen on a free port of this machine; `base_url` has the address."""
        app = web.Application(client_max_size=UPLOAD_BYTES)
        app.router.add_post("/v1/chat/completions", self._answer)
        app.router.add_post("/v1/audio/transcriptions", self._transcribe)
        app.router.add_post("/v1/audio/speech", self._speak)
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
            yield
        finally:
            await runner.cleanup()

    # --- LLM ----------------------------------------------------------------------------------

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        query: dict[str, Any] = msgspec.json.decode(await request.read())
        newest = _newest_text(query["messages"])
        answer = next((each for each in self.script.answers if re.search(each.pattern, newest, re.IGNORECASE)), None)
        message = f"no scripted answer has an `if` that is found in {newest!r}"
        if answer is None and self._names_unmatched:
            answer = ScriptedAnswer(text=f"{message[0].upper()}{message[1:]}.")
        if answer is None:
            return web.json_response({"error": {"message": message, "type": "script"}}, status=400)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await asyncio.sleep(answer.after_ms / 1_000)
        for n, delta in enumerate(_deltas(answer)):
            await asyncio.sleep(answer.token_ms / 1_000 if n else 0)
            await response.write(_chunk(delta))
        await response.write(_chunk({}, "tool_calls" if answer.calls else "stop") + b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    # --- STT ----------------------------------------------------------------------------------

    async def _transcribe(self, request: web.Request) -> web.StreamResponse:
        until_ms = clock.monotonic_ms()
        sound = np.zeros(0)
        async for part in await request.multipart():
            if isinstance(part, BodyPartReader) and part.name == "file":
                sound = _wav_levels(bytes(await part.read()))
        until_ms -= late_ms(sound, self._voice, until_ms)
        await asyncio.sleep(self.script.stt_ms / 1_000)
        since_ms = until_ms - len(sound) * HOP_MS - LEAD_MS
        return web.json_response({"text": " ".join(self._words(since_ms, until_ms))})

    def _words(self, since_ms: int, until_ms: int) -> Iterator[str]:
        """Yield the words whose middle was said in that time."""
        for each in self._spoken:
            words = each.text.split()
            step_ms = (each.end_ms - each.start_ms) / max(1, len(words))
            for n, word in enumerate(words):
                if since_ms <= each.start_ms + (n + 0.5) * step_ms <= until_ms:
                    yield word

    # --- TTS ----------------------------------------------------------------------------------

    async def _speak(self, request: web.Request) -> web.StreamResponse:
        query: dict[str, Any] = msgspec.json.decode(await request.read())
        response = web.StreamResponse(headers={"Content-Type": "audio/pcm"})
        await response.prepare(request)
        await asyncio.sleep(self.script.tts_ms / 1_000)
        await response.write(to_pcm(_tone(len(query["input"]) * CHAR_MS)))
        await response.write_eof()
        return response


def _newest_text(messages: list[dict[str, Any]]) -> str:
    """Return the text of the newest message, without those of the system: an agent's hook may add one at the end."""
    conversation = [each for each in messages if each.get("role") not in ("system", "developer")]
    content = conversation[-1].get("content") or "" if conversation else ""
    if isinstance(content, str):
        return content
    return " ".join(part.get("text", "") for part in content)


def _deltas(answer: ScriptedAnswer) -> Iterator[dict[str, Any]]:
    for token in re.findall(r"\s*\S+", answer.text):
        yield {"content": token}
    for index, call in enumerate(answer.calls):
        function = {"name": call.name, "arguments": json.dumps(call.arguments)}
        call_id = f"call_{index}_{clock.monotonic_us()}"
        yield {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    whole = {
        "id": "scripted",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "scripted",
        "choices": [choice],
    }
    return b"data: " + msgspec.json.encode(whole) + b"\n\n"


def _wav_levels(file: bytes) -> Levels:
    with wave.open(io.BytesIO(file)) as reader:
        samples = np.frombuffer(reader.readframes(reader.getnframes()), dtype="<i2")
        return levels_of(samples, reader.getframerate())


def levels_of(samples: Samples, rate_hz: int) -> Levels:
    """Return the level of each `HOP_MS`, (n_hops,)."""
    n_step = rate_hz * HOP_MS // 1_000
    whole = samples[: len(samples) // n_step * n_step].reshape(-1, n_step)
    levels: Levels = np.sqrt((whole.astype(np.float64) ** 2).mean(axis=1))
    return levels


def late_ms(sound: Levels, voice: list[tuple[int, Levels]], until_ms: int) -> int:
    """Return how long before `until_ms` the sound ended, in ms: a busy server requests late.

    It is found by the levels of what the user says. Where they don't clearly fit another time better, it is 0.
    """
    n_hops, n_late = len(sound), MAX_LATE_MS // HOP_MS
    conversation = np.zeros(n_hops + n_late)
    first_ms = until_ms - len(conversation) * HOP_MS
    for start_ms, levels in voice:
        at = (start_ms - first_ms) // HOP_MS
        part = levels[max(0, -at) : max(0, len(conversation) - at)]
        conversation[max(0, at) : max(0, at) + len(part)] += part
    if not sound.any():
        return 0
    windows = np.lib.stride_tricks.sliding_window_view(conversation, n_hops)[::-1]
    norms = np.linalg.norm(windows, axis=1) * np.linalg.norm(sound)
    fits = (windows @ sound) / np.maximum(norms, 1.0)
    best = int(fits.argmax())
    return best * HOP_MS if fits[best] > BETTER * fits[0] else 0


def _tone(duration_ms: int) -> Samples:
    at_s = np.arange(duration_ms * RATE_HZ // 1_000) / RATE_HZ
    tone: Samples = (AMPLITUDE * np.sin(2 * np.pi * TONE_HZ * at_s)).astype(np.int16)
    return tone
