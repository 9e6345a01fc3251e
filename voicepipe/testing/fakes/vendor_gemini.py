"""The fake vendor's `streamGenerateContent`: Gemini's server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from aiohttp import web

from voicepipe.testing.fakes.cues import CuePoints, Cut, Fault, Garbage, InBandError, LlmCue, Malformed
from voicepipe.testing.fakes.http_answer import HttpAnswer
from voicepipe.testing.fakes.request_rules import RequestRules, VendorDialect
from voicepipe.testing.fakes.script import ReceivedRequest
from voicepipe.testing.fakes.vendor_llm import NOISE

NOT_JSON = b'data: {"candidates":[{"content":{"parts":[\n\n'
SIGNATURE = "c2lnbmVk"
"""The thought signature of every first call."""


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
    for _ in range(cue.role_only):
        await wire.send(_chunk(cue, [{"text": "what would they like to hear", "thought": True}]))
    position = 0
    for part in _parts(cue):
        if await _fails(wire, await cue_points.reach(position)):
            return await wire.end()
        await wire.send(_chunk(cue, None) * cue.keep_alives + _chunk(cue, [part]))
        await asyncio.sleep(cue.gap_ms / 1_000)
        position += 1
    if await _fails(wire, await cue_points.reach(position)) or cue_points.fault is not None:
        return await wire.end()
    reason = {"stop": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}.get(cue.finish, cue.finish)
    await wire.send(_chunk(cue, [{"text": ""}], finish=reason))
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
            error = {"message": message, "status": "UNAVAILABLE"} | ({"code": code} if code is not None else {})
            await wire.send(b"data: " + json.dumps({"error": error}).encode() + b"\n\n")
    return True


def _parts(cue: LlmCue) -> Iterator[dict[str, Any]]:
    for token in cue.sent_tokens:
        yield {"text": token}
    for place, call in enumerate(cue.calls):
        made = {"name": call.name, "args": json.loads("".join(call.arguments)), "id": call.call_id}
        yield {"functionCall": made} | ({"thoughtSignature": SIGNATURE} if place == 0 else {})


def _chunk(cue: LlmCue, parts: list[dict[str, Any]] | None, *, finish: str | None = None) -> bytes:
    usage: dict[str, Any] = {"promptTokenCount": cue.input_tokens, "totalTokenCount": cue.input_tokens}
    chunk: dict[str, Any] = {"usageMetadata": usage, "modelVersion": "fake", "responseId": "fake"}
    if parts is not None:
        candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
        chunk["candidates"] = [candidate | ({"finishReason": finish} if finish else {})]
    if finish:
        usage |= {"candidatesTokenCount": len(cue.tokens), "cachedContentTokenCount": cue.cached_tokens}
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\r\n\r\n"


def _fields(rules: RequestRules, body: Mapping[str, Any]) -> str | None:
    known = {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig"}
    if unknown := body.keys() - known:
        return f'Invalid JSON payload received. Unknown name "{min(unknown)}"'
    if refused := rules.refuses & body.get("generationConfig", {}).keys():
        return f"{min(refused)} is not supported"
    return None


def _contents(rules: RequestRules, body: Mapping[str, Any]) -> str | None:
    before, calls = "model", list[str]()
    for content in body["contents"]:
        if content["role"] == before or content["role"] not in ("user", "model"):
            return "Please ensure that multiturn requests alternate between user and model."
        before = content["role"]
        back = [part["functionResponse"]["name"] for part in content["parts"] if "functionResponse" in part]
        if back != calls:
            return "the number of function response parts must equal that of the function call parts"
        steps = [part for part in content["parts"] if "functionCall" in part]
        if rules.model.startswith("gemini-3") and steps and "thoughtSignature" not in steps[0]:
            return "Function call is missing a thought_signature in functionCall parts."
        calls = [part["functionCall"]["name"] for part in steps]
    return None


DIALECT: Final = VendorDialect(
    path="/v1/models/{model}:streamGenerateContent",
    answer=answer,
    body_rules=(_fields, _contents),
    refusals=("roles out of turn", "a call without its result", "a step without signature (3.x)"),
    listed=lambda names: {"models": [{"name": f"models/{name}"} for name in names]},
)

RULES: Final = RequestRules(
    model="gemini-2.5-flash",
    dialect=DIALECT,
    key_header="x-goog-api-key",
    key_prefix="",
    quiet={"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}},
)
"""Source: Gemini API reference: generateContent, thinking, thought signatures."""
