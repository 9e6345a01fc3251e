"""The fake vendor's transcriptions and translations: the cue has the text."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web
from aiohttp.multipart import BodyPartReader

from voicepipe.testing.fakes.cues import CuePoints, Cut, Garbage, InBandError, Malformed, NoEnd, SttCue
from voicepipe.testing.fakes.http_answer import HttpAnswer
from voicepipe.testing.fakes.script import ReceivedRequest
from voicepipe.testing.fakes.tone import read_wav


async def read(request: web.Request) -> ReceivedRequest:
    """Read the form; its file must be a readable WAV file."""
    fields: dict[str, str] = {}
    sound = b""
    async for part in await request.multipart():
        assert isinstance(part, BodyPartReader)
        assert part.name is not None
        if part.name == "file":
            sound = bytes(await part.read())
        else:
            fields[part.name] = await part.text()
    received = ReceivedRequest(fields, headers=request.headers)
    received.path = request.path
    received.samples = read_wav(sound)
    return received


async def answer(request: web.Request, received: ReceivedRequest, cue: SttCue) -> web.StreamResponse:
    """Answer one file as `cue` requires."""
    await asyncio.sleep(cue.delay_ms / 1_000)
    wire = await HttpAnswer.begin(request, received, content_type="application/json")
    body = _body(cue, received.question)
    cue_points = CuePoints(cue.fault, cue.hold)
    for position in sorted({0, *_marks(cue, len(body))}):
        match await cue_points.reach(position):
            case Cut():
                await wire.cut()
            case NoEnd():
                return await wire.end()
        end = min((m for m in _marks(cue, len(body)) if m > position), default=len(body))
        await wire.send(body[position:end])
    return await wire.end()


def _marks(cue: SttCue, n_bytes: int) -> set[int]:
    """Return the cuts of the body, so that each position of the cue falls between two pieces."""
    places = {cue.hold.after} if cue.hold is not None else set()
    if cue.fault is not None and hasattr(cue.fault, "after"):
        places.add(cue.fault.after)
    return {min(place, n_bytes) for place in places}


def _body(cue: SttCue, fields: dict[str, str]) -> bytes:
    if cue.raw is not None:
        return cue.raw
    match cue.fault:
        case Malformed():
            return b'{"text": '
        case Garbage():
            return b"\x00\xff\xfe\x80"
        case InBandError(message=message, code=code):
            return json.dumps({"error": {"message": message, "type": "fake_error", "code": code}}).encode()
    language = {"language": cue.language} if cue.language else {}
    answer: dict[str, Any] = {"text": cue.text} | language
    if fields.get("timestamp_granularities[]") == "word" and fields["response_format"] == "verbose_json":
        words = cue.text.split()
        answer["words"] = [{"word": word, "start": n / 4, "end": (n + 1) / 4} for n, word in enumerate(words)]
    return json.dumps(answer).encode()
