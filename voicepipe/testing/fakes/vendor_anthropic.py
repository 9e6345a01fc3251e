"""The fake vendor's Messages: Anthropic's server-sent events."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from aiohttp import web

from voicepipe.testing.fakes.cues import CuePoints, Cut, Fault, Garbage, InBandError, LlmCue, Malformed
from voicepipe.testing.fakes.http_answer import HttpAnswer
from voicepipe.testing.fakes.request_rules import RequestRules, VendorDialect, check_fields
from voicepipe.testing.fakes.script import ReceivedRequest
from voicepipe.testing.fakes.vendor_llm import NOISE

NOT_JSON = b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{\n\n'
TYPES = {400: "invalid_request_error", 429: "rate_limit_error", 529: "overloaded_error"}
SentEvent = dict[str, Any]


async def answer(request: web.Request, received: ReceivedRequest, cue: LlmCue) -> web.StreamResponse:
    """Answer one request as `cue` requires."""
    wire = await HttpAnswer.begin(request, received, content_type=cue.content_type, chunk_bytes=cue.chunk_bytes)
    await asyncio.sleep(cue.ttft_ms / 1_000)
    cue_points = CuePoints(cue.fault, cue.hold)
    if cue.raw is not None:
        for position, piece in enumerate(cue.raw):
            if await _fails(wire, await cue_points.reach(position)):
                return await wire.end()
            await wire.send(piece)
        return await wire.end()
    await wire.send(b"".join(map(_event, _before(cue))))
    position = 0
    for group in _groups(cue):
        if await _fails(wire, await cue_points.reach(position)):
            return await wire.end()
        await wire.send(_event({"type": "ping"}) * cue.keep_alives + b"".join(map(_event, group)))
        await asyncio.sleep(cue.gap_ms / 1_000)
        position += 1
    if await _fails(wire, await cue_points.reach(position)) or cue_points.fault is not None:
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


def _before(cue: LlmCue) -> Iterator[SentEvent]:
    usage = {
        "input_tokens": cue.input_tokens - cue.cached_tokens,
        "cache_read_input_tokens": cue.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": 1,
    }
    message: SentEvent = {"id": "msg_fake", "type": "message", "role": "assistant", "content": [], "stop_reason": None}
    yield {"type": "message_start", "message": message | {"usage": usage}}
    yield {"type": "ping"}
    for index in range(cue.role_only):  # here: blocks of thinking, which are not spoken
        yield {"type": "content_block_start", "index": index, "content_block": {"type": "thinking", "thinking": ""}}
        thought = {"type": "thinking_delta", "thinking": "what would they like to hear"}
        yield {"type": "content_block_delta", "index": index, "delta": thought}
        yield {"type": "content_block_stop", "index": index}


def _groups(cue: LlmCue) -> Iterator[list[SentEvent]]:
    """Yield the events of each position: a token, or a piece of a call."""
    index = cue.role_only
    start: SentEvent = {"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}}
    for place, token in enumerate(cue.sent_tokens):
        delta = {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": token}}
        yield [start, delta] if place == 0 else [delta]
    for at, call in enumerate(cue.calls, index + bool(cue.sent_tokens)):
        block = {"type": "tool_use", "id": call.call_id, "name": call.name, "input": {}}
        yield [{"type": "content_block_start", "index": at, "content_block": block}]
        for piece in ("", *call.arguments):
            part = {"type": "input_json_delta", "partial_json": piece}
            yield [{"type": "content_block_delta", "index": at, "delta": part}]


def _after(cue: LlmCue) -> Iterator[SentEvent]:
    for at in range(cue.role_only, cue.role_only + max(1, bool(cue.sent_tokens) + len(cue.calls))):
        yield {"type": "content_block_stop", "index": at}
    reason = "tool_use" if cue.calls else {"stop": "end_turn", "length": "max_tokens"}.get(cue.finish, cue.finish)
    usage = {"output_tokens": len(cue.tokens)}
    yield {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
    yield {"type": "message_stop"}


def _event(event: SentEvent) -> bytes:
    name = str(event["type"]).encode()
    return b"event: " + name + b"\ndata: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n"


def _messages(rules: RequestRules, body: Mapping[str, Any]) -> str | None:
    before, open_calls = "assistant", set[str]()
    for message in body["messages"]:
        if message["role"] == before or message["role"] not in ("user", "assistant"):
            return "roles must alternate between user and assistant, beginning with user"
        before = message["role"]
        results = {block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"}
        if results != open_calls:
            return "tool_use ids were found without tool_result blocks immediately after"
        if any(block["type"] == "text" and not block["text"].strip() for block in message["content"]):
            return "text content blocks must be non-empty"
        open_calls = {block["id"] for block in message["content"] if block["type"] == "tool_use"}
        if any(not re.fullmatch("[A-Za-z0-9_-]+", each) for each in open_calls):
            return "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
    return None


def _fields(rules: RequestRules, body: Mapping[str, Any]) -> str | None:
    known = {"model", "max_tokens", "messages", "stream", "system", "tools", "tool_choice", "temperature", "thinking"}
    if unknown := body.keys() - known - {"output_config"}:
        return f"{min(unknown)}: Extra inputs are not permitted"
    form = body.get("output_config", {}).get("format")
    if form is not None and (form["type"] != "json_schema" or "schema" not in form):
        return "output_config.format: expected a JSON schema"
    if form is not None and body["messages"][-1]["role"] == "assistant":
        return "output_config.format: prefilling is not supported with a format"
    marks = str(body).count("'cache_control'")
    if marks > 4:
        return f"A maximum of 4 blocks with cache_control may be provided. Found {marks}."
    return "temperature: range: 0..1" if not 0 <= body.get("temperature", 0) <= 1 else None


DIALECT: Final = VendorDialect(
    path="/v1/messages",
    answer=answer,
    body_rules=(check_fields, _fields, _messages),
    refusals=("roles out of turn", "a call without its result", "a fifth cache mark", "blank text"),
)

RULES: Final = RequestRules(
    model="claude-haiku-4-5",
    dialect=DIALECT,
    key_header="x-api-key",
    key_prefix="",
    headers={"anthropic-version": "2023-06-01"},
    needs=frozenset({"max_tokens", "messages", "model"}),
)
"""Source: Anthropic API reference: Messages, versioning, prompt caching, tool use."""
