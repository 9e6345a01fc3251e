"""The fake vendor's Messages: Anthropic's server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

from aiohttp import web

from voicepipe.testing.fakes.cues import Course, Cut, Fault, Garbage, InBandError, LlmCue, Malformed
from voicepipe.testing.fakes.http_answer import HttpAnswer
from voicepipe.testing.fakes.script import ReceivedRequest
from voicepipe.testing.fakes.vendor_llm import NOISE

NOT_JSON = b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{\n\n'
TYPES = {400: "invalid_request_error", 429: "rate_limit_error", 529: "overloaded_error"}
Event = dict[str, Any]


async def answer(request: web.Request, received: ReceivedRequest, cue: LlmCue) -> web.StreamResponse:
    """Answer one request as `cue` requires."""
    wire = await HttpAnswer.begin(request, received, content_type=cue.content_type, chunk_bytes=cue.chunk_bytes)
    await asyncio.sleep(cue.ttft_ms / 1_000)
    course = Course(cue.fault, cue.hold)
    if cue.raw is not None:
        for position, piece in enumerate(cue.raw):
            if await _fails(wire, await course.reach(position)):
                return await wire.end()
            await wire.send(piece)
        return await wire.end()
    await wire.send(b"".join(map(_event, _before(cue))))
    position = 0
    for group in _groups(cue):
        if await _fails(wire, await course.reach(position)):
            return await wire.end()
        await wire.send(_event({"type": "ping"}) * cue.keep_alives + b"".join(map(_event, group)))
        await asyncio.sleep(cue.gap_ms / 1_000)
        position += 1
    if await _fails(wire, await course.reach(position)) or course.fault is not None:
        return await wire.end()
    await wire.send(b"".join(map(_event, _after(cue))))
    return await wire.end()


async def _fails(wire: HttpAnswer, fault: Fault | None) -> bool:
    """Apply a fault; True when the answer ends with it."""
    match fault:
        case None:
            return False
        case Cut():
            await wire.cut()
        case Malformed():
            await wire.send(NOT_JSON)
            return False
        case Garbage():
            await wire.send(NOISE)
        case InBandError(message=message, code=code):
            kind = TYPES.get(code or 0, "api_error")
            await wire.send(_event({"type": "error", "error": {"type": kind, "message": message}}))
    return True


def _before(cue: LlmCue) -> Iterator[Event]:
    usage = {
        "input_tokens": cue.input_tokens - cue.cached_tokens,
        "cache_read_input_tokens": cue.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": 1,
    }
    message: Event = {"id": "msg_fake", "type": "message", "role": "assistant", "content": [], "stop_reason": None}
    yield {"type": "message_start", "message": message | {"usage": usage}}
    yield {"type": "ping"}
    for index in range(cue.role_only):  # here: blocks of thinking, which are not spoken
        yield {"type": "content_block_start", "index": index, "content_block": {"type": "thinking", "thinking": ""}}
        thought = {"type": "thinking_delta", "thinking": "what would they like to hear"}
        yield {"type": "content_block_delta", "index": index, "delta": thought}
        yield {"type": "content_block_stop", "index": index}


def _groups(cue: LlmCue) -> Iterator[list[Event]]:
    """Yield the events of each position: a token, or a piece of a call."""
    index = cue.role_only
    if not cue.calls:
        start: Event = {"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}}
        for place, token in enumerate(cue.tokens):
            delta = {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": token}}
            yield [start, delta] if place == 0 else [delta]
    for at, call in enumerate(cue.calls, index):
        block = {"type": "tool_use", "id": call.call_id, "name": call.name, "input": {}}
        yield [{"type": "content_block_start", "index": at, "content_block": block}]
        for piece in ("", *call.arguments):
            part = {"type": "input_json_delta", "partial_json": piece}
            yield [{"type": "content_block_delta", "index": at, "delta": part}]


def _after(cue: LlmCue) -> Iterator[Event]:
    for at in range(cue.role_only, cue.role_only + max(1, len(cue.calls))):
        yield {"type": "content_block_stop", "index": at}
    reason = "tool_use" if cue.calls else {"stop": "end_turn", "length": "max_tokens"}.get(cue.finish, cue.finish)
    usage = {"output_tokens": len(cue.tokens)}
    yield {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
    yield {"type": "message_stop"}


def _event(event: Event) -> bytes:
    name = str(event["type"]).encode()
    return b"event: " + name + b"\ndata: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n"
