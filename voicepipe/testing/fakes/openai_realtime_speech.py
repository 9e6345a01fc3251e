"""OpenAI's Realtime API for speech to speech on a local socket.

async with FakeRealtimeSpeech(SpeechCue(text="It is noon.")) as vendor:
    ...                                      # open the model at vendor.base_url

Events are written from OpenAI's API reference, "Realtime", as its own Python package types them. The conversation is
kept as the vendor keeps it, and what the vendor would refuse is answered with its error.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from typing import Any

from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed

from voicepipe.testing.fakes.cues import InBandError, Status
from voicepipe.testing.fakes.speech_model import PIECE_MS, RATE_HZ, Ended, FakeSpeechVendor, SpeechCall, SpeechCue

KEY = "sk-test-0123456789"
"""The only valid key."""

MIN_MS = 100
"""The shortest audio that may be committed."""

CODES = {401: "invalid_api_key", 402: "insufficient_quota", 429: "rate_limit_exceeded"}


class FakeRealtimeSpeech(FakeSpeechVendor):
    """OpenAI."""

    base_path = "/v1"

    def refusal_of(self, path: str, query: Mapping[str, str], headers: Headers) -> Status | None:
        if headers.get("Authorization") != f"Bearer {KEY}":
            return Status(401, f"Incorrect API key provided: {KEY[:6]}***.")
        if path != "/v1/realtime" or not query.get("model"):
            return Status(404, "expected another address")
        return None

    def error_of(self, status: Status | InBandError) -> str:
        code = status.status if isinstance(status, Status) else status.code
        error = {"type": "fake", "code": CODES.get(code or 0), "message": status.message, "param": None}
        return json.dumps({"type": "error", "event_id": "event_fake", "error": error})

    async def greet(self, call: SpeechCall) -> None:
        await self._send(call, "session.created", session={"type": "realtime", "id": "sess_fake"})

    async def take(self, call: SpeechCall, message: str | bytes) -> None:
        assert isinstance(message, str)
        event = json.loads(message)
        if event["type"] == "input_audio_buffer.append":
            call.audio_bytes += len(base64.b64decode(event["audio"]))
            return
        call.messages.append(event)
        match event["type"]:
            case "session.update":
                await self._update(call, event["session"])
            case "input_audio_buffer.commit":
                await self._commit(call)
            case "input_audio_buffer.clear":
                call.audio_bytes = 0
                await self._send(call, "input_audio_buffer.cleared")
            case "conversation.item.create":
                call.items.append(event["item"])
                await self._send(call, "conversation.item.added", item=event["item"], previous_item_id=None)
            case "conversation.item.delete":
                await self._delete(call, event["item_id"])
            case "conversation.item.truncate":
                await self._truncate(call, event)
            case "response.create":
                await self._request(call, event["response"])
            case "response.cancel":
                await self._cancel(call)
            case kind:
                await self._refuse(call, "unknown_event", f"there is no {kind}")

    # --- the conversation ---------------------------------------------------------------------

    def is_valid(self, session: dict[str, Any]) -> bool:
        """Return whether the server takes that session."""
        pcm = {"type": "audio/pcm", "rate": RATE_HZ}
        input_audio, output_audio = session["audio"]["input"], session["audio"]["output"]
        return (
            session["type"] == "realtime"
            and session["output_modalities"] == ["audio"]
            and input_audio["format"] == output_audio["format"] == pcm
            and input_audio["turn_detection"] is None
        )

    async def _update(self, call: SpeechCall, session: dict[str, Any]) -> None:
        if not self.is_valid(session):
            await self._refuse(call, "invalid_value", "Invalid session.")
        await self._send(call, "session.updated", session=session)

    async def _commit(self, call: SpeechCall) -> None:
        input_ms = call.audio_bytes * 500 // RATE_HZ
        if input_ms < MIN_MS:
            await self._refuse(call, "input_audio_buffer_commit_empty", f"buffer only has {input_ms} ms of audio")
            return
        call.audio_bytes = 0
        item = {"id": f"item_u{len(call.items)}_{call.n}", "type": "message", "role": "user", "input_ms": input_ms}
        call.items.append(item)
        await self._send(call, "input_audio_buffer.committed", item_id=item["id"], previous_item_id=None)

    async def _delete(self, call: SpeechCall, item_id: str) -> None:
        if not any(item["id"] == item_id for item in call.items):
            await self._refuse(call, "item_delete_invalid_item_id", f"there is no item {item_id}")
            return
        call.items = [item for item in call.items if item["id"] != item_id]
        await self._send(call, "conversation.item.deleted", item_id=item_id)

    async def _truncate(self, call: SpeechCall, event: dict[str, Any]) -> None:
        item = next((each for each in call.items if each["id"] == event["item_id"]), None)
        if item is None or item.get("audio_ms", 0) < event["audio_end_ms"]:
            await self._refuse(call, "item_truncate_invalid_item_id", "no such item, or not so long")
            return
        item["audio_ms"] = event["audio_end_ms"]
        item.pop("text", None)
        await self._send(call, "conversation.item.truncated", item_id=item["id"], content_index=0)

    async def _refuse(self, call: SpeechCall, code: str, words: str) -> None:
        error = {"type": "invalid_request_error", "code": code, "message": words, "param": None, "event_id": None}
        await self._send(call, "error", error=error)

    # --- an answer ----------------------------------------------------------------------------

    async def _request(self, call: SpeechCall, response: dict[str, Any]) -> None:
        if call.answering is not None and not call.answering.done():
            await self._refuse(call, "conversation_already_has_active_response", "one at a time")
            return
        call.n += 1
        call.answering = call.group.create_task(self._answer(call, self.next_cue(), f"resp_{call.n}"))

    async def _cancel(self, call: SpeechCall) -> None:
        if call.answering is None or call.answering.done():
            await self._refuse(call, "response_cancel_not_active", "Cancellation failed: no active response found")
            return
        call.answering.cancel()
        await asyncio.wait([call.answering])
        await self._done(call, f"resp_{call.n}", "cancelled", {"type": "cancelled", "reason": "client_cancelled"})

    async def _answer(self, call: SpeechCall, cue: SpeechCue, response: str) -> None:
        try:
            if isinstance(cue.fault, Status):
                await self._fail(call, response, cue.fault)
                return
            await self._send(call, "response.created", response={"id": response, "status": "in_progress"})
            if cue.text:
                await self._speak(call, cue, response)
            else:
                await self._pause(call, cue, 0)
            for n, each in enumerate(cue.calls):
                await self._call(call, response, n, each.name, each.call_id, "".join(each.arguments))
            await self._done(call, response, "completed", None)
        except (Ended, ConnectionClosed):
            pass

    async def _fail(self, call: SpeechCall, response: str, fault: Status) -> None:
        """Begin an answer, and report that it has failed."""
        await self._send(call, "response.created", response={"id": response, "status": "in_progress"})
        error = {"type": "server_error", "code": CODES.get(fault.status, "server_error"), "message": fault.message}
        await self._done(call, response, "failed", {"type": "failed", "error": error})

    async def _pause(self, call: SpeechCall, cue: SpeechCue, n_pieces: int) -> None:
        if cue.hold is not None and cue.hold.after == n_pieces:
            cue.hold.reached.set()
            await cue.hold.release.wait()
        await self.fault(call, cue.fault, n_pieces)

    async def _speak(self, call: SpeechCall, cue: SpeechCue, response: str) -> None:
        item: dict[str, Any] = {
            "id": f"item_a{call.n}",
            "type": "message",
            "role": "assistant",
            "text": "",
            "audio_ms": 0,
        }
        call.items.append(item)
        at = {"response_id": response, "item_id": item["id"], "output_index": 0, "content_index": 0}
        await self._send(call, "response.output_item.added", response_id=response, item=item)
        if cue.text_first:
            await self._write(call, cue, item, at)
        for n, pcm in enumerate(cue.pieces()):
            await self._pause(call, cue, n)
            item["audio_ms"] += PIECE_MS
            await self._send(call, "response.output_audio.delta", delta=base64.b64encode(pcm).decode(), **at)
        if not cue.text_first:
            await self._write(call, cue, item, at)
        await self._send(call, "response.output_item.done", response_id=response, item=item)

    async def _write(self, call: SpeechCall, cue: SpeechCue, item: dict[str, Any], at: dict[str, Any]) -> None:
        for word in cue.words():
            item["text"] += word
            await self._send(call, "response.output_audio_transcript.delta", delta=word, **at)
        await self._send(call, "response.output_audio_transcript.done", transcript=cue.text, **at)

    async def _call(self, call: SpeechCall, response: str, n: int, name: str, call_id: str, arguments: str) -> None:
        item = {"id": f"item_c{call.n}_{n}", "type": "function_call", "name": name, "call_id": call_id, "arguments": ""}
        call.items.append(item)
        await self._send(call, "response.output_item.added", response_id=response, item=item)
        item["arguments"] = arguments
        await self._send(call, "response.output_item.done", response_id=response, item=item)

    async def _done(self, call: SpeechCall, response: str, status: str, details: dict[str, Any] | None) -> None:
        usage = {
            "total_tokens": 350,
            "input_tokens": 200,
            "output_tokens": 150,
            "input_token_details": {
                "text_tokens": 120,
                "audio_tokens": 80,
                "cached_tokens": 64,
                "cached_tokens_details": {"text_tokens": 64, "audio_tokens": 0},
            },
            "output_token_details": {"text_tokens": 30, "audio_tokens": 120},
        }
        done = {"id": response, "status": status, "status_details": details, "usage": usage}
        await self._send(call, "response.done", response=done)

    async def _send(self, call: SpeechCall, kind: str, **fields: Any) -> None:
        await call.socket.send(json.dumps({"type": kind, "event_id": "event_fake", **fields}))
