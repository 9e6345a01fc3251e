"""The answers of `POST /v1/chat/completions`, whole or as server-sent events. No I/O.

Source: OpenAI API reference, "The chat completion object" and "The chat completion chunk object". Beside what is
published the last chunk, and a whole answer, hold `voicepipe`: who answered, how soon, and what it cost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from voicepipe.protocol.fields import JsonObject

DONE: Final = b"data: [DONE]\n\n"

_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Completion:
    """What all pieces of one answer say of it."""

    id: str
    created_s: int
    model: str
    """As it was asked for."""


@dataclass(frozen=True, slots=True)
class MadeCall:
    """A function call of an answer, whole."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class TokensUsed:
    """What an answer took, in tokens."""

    input: int
    output: int
    cached: int

    def to_wire(self) -> JsonObject:
        """The published `usage`."""
        return {
            "prompt_tokens": self.input,
            "completion_tokens": self.output,
            "total_tokens": self.input + self.output,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }


def whole_answer(
    answer: Completion, *, text: str, calls: Iterable[MadeCall], reason: str, used: TokensUsed, ours: JsonObject
) -> bytes:
    """The answer in one piece of JSON. `reason` is its `finish_reason`."""
    made = [
        {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]
    message: JsonObject = {"role": "assistant", "content": text or (None if made else ""), "refusal": None}
    if made:
        message["tool_calls"] = made
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    body: JsonObject = {**_head(answer, "chat.completion"), "choices": [choice], "usage": used.to_wire()}
    return _encode(body | {"voicepipe": ours})


class ChunkWriter:
    """Writes an answer's chunks, each as one server-sent event. The first bears the role as well."""

    def __init__(self, answer: Completion, *, with_usage: bool) -> None:
        # A delta stands between two texts that are the same in all chunks: they are encoded once.
        self._shape = _head(answer, "chat.completion.chunk")
        self._usage: JsonObject = {"usage": None} if with_usage else {}
        before, _, after = _encode(self._shape | {"choices": [_choice("@", None)], **self._usage}).rpartition(b'"@"')
        self._before, self._after = b"data: " + before, after + b"\n\n"
        self._role: JsonObject = {"role": "assistant"}

    def text(self, text: str) -> bytes:
        """More of the text."""
        return self._delta({"content": text})

    def call(self, index: int, call_id: str, name: str, arguments: str) -> bytes:
        """More of a function call: the first of each `index` bears `call_id` and `name`."""
        function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
        named = {"id": call_id, "type": "function"} if call_id else {}
        return self._delta({"tool_calls": [{"index": index, **named, "function": function}]})

    def finish(self, reason: str, ours: JsonObject) -> bytes:
        """The answer is complete."""
        delta, self._role = self._role, {}
        return _event(self._shape | {"choices": [_choice(delta, reason)], **self._usage, "voicepipe": ours})

    def usage(self, used: TokensUsed, ours: JsonObject) -> bytes:
        """The chunk without a choice that ends an answer with `stream_options.include_usage`."""
        return _event(self._shape | {"choices": [], "usage": used.to_wire(), "voicepipe": ours})

    def _delta(self, delta: JsonObject) -> bytes:
        if self._role:
            delta, self._role = self._role | delta, {}
        return self._before + _encode(delta) + self._after


def failed(error: bytes) -> bytes:
    """The event that ends an answer which failed in the middle: the JSON of an error, as SDKs look for it."""
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
