"""The fake vendor's chat completions: server-sent events, or one piece of JSON without streaming."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

from aiohttp import web

from voicepipe.testing.fakes.cues import CuePoints, Cut, Fault, Garbage, InBandError, LlmCue, Malformed
from voicepipe.testing.fakes.http_answer import HttpAnswer
from voicepipe.testing.fakes.request_rules import RequestRules
from voicepipe.testing.fakes.script import ReceivedRequest

DONE = b"data: [DONE]\n\n"
NOT_JSON = b'data: {"choices":[{"delta":{"content":\n\n'
NOISE = b"\x00\xff\xfe\x80noise\n\r\n\x9d"


async def answer(
    request: web.Request, received: ReceivedRequest, cue: LlmCue, rules: RequestRules | None = None
) -> web.StreamResponse:
    """Answer one request as `cue` requires, and count tokens as the vendor of `rules` does."""
    if not received.question.get("stream"):
        return web.json_response(_whole(cue))
    wire = await HttpAnswer.begin(request, received, content_type=cue.content_type, chunk_bytes=cue.chunk_bytes)
    await asyncio.sleep(cue.ttft_ms / 1_000)
    if cue.raw is not None:
        return await _raw(wire, cue.raw, CuePoints(cue.fault, cue.hold))
    return await _stream(wire, received, cue, rules)


async def _stream(
    wire: HttpAnswer, received: ReceivedRequest, cue: LlmCue, rules: RequestRules | None
) -> web.StreamResponse:
    cue_points = CuePoints(cue.fault, cue.hold)
    for _ in range(cue.role_only):
        await wire.send(_chunk({"role": "assistant", "content": ""}))
    position = 0
    for delta in _deltas(cue):
        if await _fails(wire, await cue_points.reach(position)):
            return await wire.end()
        await wire.send(b": keep-alive\n\n" * cue.keep_alives + _chunk(delta))
        await asyncio.sleep(cue.gap_ms / 1_000)
        position += 1
    if await _fails(wire, await cue_points.reach(position)) or cue_points.fault is not None:
        return await wire.end()
    await wire.send(_chunk({}, finish="tool_calls" if cue.calls else cue.finish))
    if _counts(received, rules):
        await wire.send(_event({"choices": [], "usage": _usage(cue, rules)}))
    await wire.send(DONE)
    return await wire.end()


async def _raw(wire: HttpAnswer, pieces: tuple[bytes, ...], cue_points: CuePoints) -> web.StreamResponse:
    for position, piece in enumerate(pieces):
        if await _fails(wire, await cue_points.reach(position)):
            return await wire.end()
        await wire.send(piece)
    await _fails(wire, await cue_points.reach(len(pieces)))
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
            await wire.send(_event({"error": {"message": message, "type": "fake_error", "code": code}}))
    return True


def _deltas(cue: LlmCue) -> Iterator[dict[str, Any]]:
    for token in cue.sent_tokens:
        yield {"content": token}
    for index, call in enumerate(cue.calls):
        function = {"name": call.name, "arguments": ""}
        yield {"tool_calls": [{"index": index, "id": call.call_id, "type": "function", "function": function}]}
        for piece in call.arguments:
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _chunk(delta: dict[str, Any], *, finish: str | None = None) -> bytes:
    return _event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _event(fields: dict[str, Any]) -> bytes:
    known = {"id": "chatcmpl-fake", "object": "chat.completion.chunk", "created": 0, "model": "fake"}
    # Some text beyond ASCII stays unescaped, as vendors send it.
    return b"data: " + json.dumps(known | fields, ensure_ascii=False).encode() + b"\n\n"


def _counts(received: ReceivedRequest, rules: RequestRules | None) -> bool:
    if rules is not None and rules.usage != "requested":
        return rules.usage == "always"
    return bool((received.question.get("stream_options") or {}).get("include_usage"))


def _usage(cue: LlmCue, rules: RequestRules | None = None) -> dict[str, Any]:
    counts = {
        "prompt_tokens": cue.input_tokens,
        "completion_tokens": len(cue.tokens),
        "total_tokens": cue.input_tokens + len(cue.tokens),
    }
    match rules.cached_at if rules is not None else "details":
        case "details":
            return {**counts, "prompt_tokens_details": {"cached_tokens": cue.cached_tokens}}
        case "deepseek":
            missed = cue.input_tokens - cue.cached_tokens
            return {**counts, "prompt_cache_hit_tokens": cue.cached_tokens, "prompt_cache_miss_tokens": missed}
        case "flat":
            return {**counts, "cached_tokens": cue.cached_tokens}
        case "nowhere":
            return {**counts}


def _whole(cue: LlmCue) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "".join(cue.sent_tokens) or (None if cue.calls else "")}
    if cue.calls:
        message["tool_calls"] = [
            {"id": c.call_id, "type": "function", "function": {"name": c.name, "arguments": "".join(c.arguments)}}
            for c in cue.calls
        ]
    finish = "tool_calls" if cue.calls else cue.finish
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {"id": "chatcmpl-fake", "object": "chat.completion", "choices": [choice], "usage": _usage(cue)}
