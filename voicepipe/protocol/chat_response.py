"""The answers of `POST /v1/chat/completions`, whole or as server-sent events. No I/O.

Source: OpenAI API reference, "The chat completion object" and "The chat completion chunk object". In addition to the
published fields the last chunk, and a whole answer, hold `voicepipe`: which LLM answered, how soon, and what it cost.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from voicepipe.protocol.json_fields import JsonObject

DONE: Final = b"data: [DONE]\n\n"

_encode: Final = msgspec.json.Encoder().encode


class Completion(msgspec.Struct, frozen=True):
    """The values that all pieces of one answer share."""

    id: str
    created_s: int
    model: str
    """The model name from the request."""


class MadeCall(msgspec.Struct, frozen=True):
    """A complete function call of an answer."""

    call_id: str
    name: str
    arguments: str


class TokensUsed(msgspec.Struct, frozen=True):
    """The tokens of an answer."""

    input: int
    output: int
    cached: int
    cache_write: int = 0

    def to_wire(self) -> JsonObject:
        """Return the published `usage`."""
        return {
            "prompt_tokens": self.input,
            "completion_tokens": self.output,
            "total_tokens": self.input + self.output,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }


def whole_answer(
    answer: Completion, *, text: str, calls: Iterable[MadeCall], reason: str, used: TokensUsed, extension: JsonObject
) -> bytes:
    """Return the answer in one piece of JSON. `reason` is its `finish_reason`."""
    made = [
        {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]
    message: JsonObject = {"role": "assistant", "content": text or (None if made else ""), "refusal": None}
    if made:
        message["tool_calls"] = made
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    body: JsonObject = {**_head(answer, "chat.completion"), "choices": [choice], "usage": used.to_wire()}
    return _encode(body | {"voicepipe": extension})


class ChunkWriter:
    """Write an answer's chunks, each as one server-sent event. The first chunk also has the role."""

    def __init__(self, answer: Completion, *, with_usage: bool) -> None:
        # The text before and after a delta is the same in all chunks: it is encoded once.
        self._shape = _head(answer, "chat.completion.chunk")
        self._usage: JsonObject = {"usage": None} if with_usage else {}
        before, _, after = _encode(self._shape | {"choices": [_choice("@", None)], **self._usage}).rpartition(b'"@"')
        self._before, self._after = b"data: " + before, after + b"\n\n"
        self._role: JsonObject = {"role": "assistant"}

    def text(self, text: str) -> bytes:
        """Return a chunk with more of the text."""
        return self._delta({"content": text})

    def call(self, index: int, call_id: str, name: str, arguments: str) -> bytes:
        """Return a chunk with more of a function call: the first of each `index` has `call_id` and `name`."""
        function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
        named = {"id": call_id, "type": "function"} if call_id else {}
        return self._delta({"tool_calls": [{"index": index, **named, "function": function}]})

    def finish(self, reason: str, extension: JsonObject) -> bytes:
        """Return the chunk that completes the answer."""
        delta, self._role = self._role, {}
        return _event(self._shape | {"choices": [_choice(delta, reason)], **self._usage, "voicepipe": extension})

    def usage(self, used: TokensUsed, extension: JsonObject) -> bytes:
        """Return the chunk without a choice that ends an answer with `stream_options.include_usage`."""
        return _event(self._shape | {"choices": [], "usage": used.to_wire(), "voicepipe": extension})

    def _delta(self, delta: JsonObject) -> bytes:
        if self._role:
            delta, self._role = self._role | delta, {}
        return self._before + _encode(delta) + self._after


def failed(error: bytes) -> bytes:
    """Return the event that ends an answer that failed midway: the JSON of an error, as SDKs expect it."""
    return b"data: " + error + b"\n\n"


def _head(answer: Completion, kind: str) -> JsonObject:
    return {
        "id": answer.id,
        "object": kind,
        "created": answer.created_s,
        "model": answer.model,
        "system_fingerprint": None,
    }


def _choice(delta: Any, reason: str | None) -> JsonObject:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}


def _event(fields: JsonObject) -> bytes:
    return b"data: " + _encode(fields) + b"\n\n"
