"""The fake vendor's speech: a tone as headerless PCM, as WAV, or as the cue requires."""

from __future__ import annotations

import asyncio
import json

from aiohttp import web

from voicepipe.testing.fakes.cues import CuePoints, Cut, Garbage, InBandError, Malformed, NoEnd, TtsCue
from voicepipe.testing.fakes.http_answer import HttpAnswer
from voicepipe.testing.fakes.script import ReceivedRequest
from voicepipe.testing.fakes.tone import tone, wav_header

MP3 = b"ID3\x04\x00\x00\x00\x00\x00\x00\xff\xfb\x90\x64"
"""The start of a file in a format that was not requested."""


async def answer(request: web.Request, received: ReceivedRequest, cue: TtsCue) -> web.StreamResponse:
    """Synthesize one clause as `cue` requires."""
    if isinstance(cue.fault, InBandError):
        error = {"message": cue.fault.message, "type": "fake_error", "code": cue.fault.code}
        return web.Response(body=json.dumps({"error": error}), content_type="application/json")
    wire = await HttpAnswer.begin(request, received, content_type=cue.content_type or _content_type(cue))
    await asyncio.sleep(cue.ttfb_ms / 1_000)
    body = _body(str(received.question["input"]), cue)
    cue_points = CuePoints(cue.fault, cue.hold)
    begins = places(cue, len(body))
    for begin, end in zip(begins, [*begins[1:], len(body)], strict=True):
        match await cue_points.reach(begin):
            case Cut():
                await wire.cut()
            case NoEnd():
                return await wire.end()
        await wire.send(body[begin:end])
        await asyncio.sleep(cue.gap_ms / 1_000)
    return await wire.end()


def places(cue: TtsCue, n_bytes: int) -> list[int]:
    """Return the starts of pieces, including the cue's positions; the last may be the body's end."""
    found = {0, *range(0, n_bytes, cue.chunk_bytes)}
    if cue.hold is not None:
        found.add(cue.hold.after)
    if cue.fault is not None and hasattr(cue.fault, "after"):
        found.add(cue.fault.after)
    return sorted({min(place, n_bytes) for place in found})


def _content_type(cue: TtsCue) -> str:
    return "audio/wav" if cue.wav else "audio/pcm"


def _body(text: str, cue: TtsCue) -> bytes:
    if cue.raw is not None:
        return cue.raw
    if isinstance(cue.fault, Malformed | Garbage):
        return MP3
    sound = tone(text, ms_per_char=cue.ms_per_char, rate_hz=cue.rate_hz).astype("<i2").tobytes()
    return wav_header(cue.rate_hz) + sound if cue.wav else sound
