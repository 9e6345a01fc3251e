"""The answers of `POST /v1/responses`, whole or as server-sent events. No I/O.

Source: OpenAI API reference, "The response object" and "Streaming events". In addition to the published fields the
finished response holds `voicepipe`: which LLM answered, how soon, and what it cost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from voicepipe.protocol.chat_response import TokensUsed
from voicepipe.protocol.json_fields import JsonObject

_encode: Final = msgspec.json.Encoder().encode

Reason = Literal["stop", "length", "tool_calls", "content_filter"]

_INCOMPLETE: Final[dict[Reason, str]] = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Why a response is incomplete, by the reason of the model's port."""

ItemKind = Literal["message", "function_call", "input"]
ITEM_PREFIXES: Final[dict[ItemKind, str]] = {"message": "msg", "function_call": "fc", "input": "in"}


def item_id(response_id: str, kind: ItemKind, position: int) -> str:
    """Return the id of an item of a response, or of its request. `response_of` finds the response by it."""
    return f"{ITEM_PREFIXES[kind]}_{response_id.removeprefix('resp_')}_{position}"


def response_of(item: str) -> str | None:
    """Return the id of the response that an item belongs to; None: it is no id of `item_id`."""
    prefix, _, rest = item.partition("_")
    own, _, position = rest.rpartition("_")
    return f"resp_{own}" if prefix in ITEM_PREFIXES.values() and own and position.isdigit() else None


@dataclass(slots=True)
class _Open:
    """An item of the output that is still written."""

    position: int
    wire: JsonObject
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class ResponseWriter:
    """Collects an answer, and makes the events of its stream. Each method returns events, encoded as they are sent."""

    def __init__(self, response_id: str, model: str, created_s: int, echo: JsonObject) -> None:
        """`echo`: the request's own fields, as the response repeats them."""
        self._body: JsonObject = {
            "id": response_id,
            "object": "response",
            "created_at": created_s,
            "completed_at": None,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "model": model,
            "output": [],
            "usage": None,
            **echo,
        }
        self._n_events = 0
        self._message: _Open | None = None
        self._calls = dict[int, _Open]()
        self._output: list[JsonObject] = self._body["output"]

    @property
    def body(self) -> JsonObject:
        """Return the response as far as it is written."""
        return self._body

    def begin(self) -> bytes:
        """Begin the stream."""
        return self._lifecycle("response.created") + self._lifecycle("response.in_progress")

    def text(self, text: str) -> bytes:
        """Add text of the answer."""
        events = b""
        if self._message is None:
            self._message, events = self._begin_message()
        self._message.pieces.append(text)
        return events + self._part_event("output_text.delta", self._message, delta=text, logprobs=[])

    def call(self, index: int, call_id: str, name: str, arguments: str) -> bytes:
        """Add to a function call: the first piece of each `index` has `call_id` and `name`."""
        events = b""
        if index not in self._calls:
            events = self._end_message("completed")
            self._calls[index], begun = self._begin_item(
                "function_call", {"call_id": call_id, "name": name, "arguments": ""}
            )
            events += begun
        if not arguments:
            return events
        call = self._calls[index]
        call.pieces.append(arguments)
        return events + self._item_event("function_call_arguments.delta", call, delta=arguments)

    def end_items(self, reason: Reason) -> bytes:
        """End the items of the answer, which has ended for `reason`."""
        status = "incomplete" if reason in _INCOMPLETE else "completed"
        events = self._end_message(status)
        for call in self._calls.values():
            call.wire |= {"arguments": call.text, "status": status}
            events += self._item_event(
                "function_call_arguments.done", call, arguments=call.text, name=call.wire["name"]
            )
            events += self._event("response.output_item.done", output_index=call.position, item=call.wire)
        self._calls.clear()
        why = _INCOMPLETE.get(reason)
        self._body |= {"status": status, "incomplete_details": None if why is None else {"reason": why}}
        return events

    def finish(self, used: TokensUsed, extension: JsonObject, completed_s: int) -> None:
        """Complete the response, whose items have ended."""
        if self._body["status"] == "completed":
            self._body["completed_at"] = completed_s
        self._body |= {"usage": _usage(used), "voicepipe": extension}

    def end(self) -> bytes:
        """End the stream with the whole response."""
        return self._lifecycle(f"response.{self._body['status']}")

    def fail(self, error: JsonObject) -> bytes:
        """End the response with an error, in the shape of a refused request."""
        code = "rate_limit_exceeded" if error["code"] == "rate_limit_exceeded" else "server_error"
        self._body |= {"status": "failed", "error": {"code": code, "message": error["message"]}}
        return self._lifecycle("response.failed")

    def _begin_message(self) -> tuple[_Open, bytes]:
        message, events = self._begin_item("message", {"role": "assistant", "content": []})
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        return message, events + self._part_event("content_part.added", message, part=part)

    def _end_message(self, status: str) -> bytes:
        message, self._message = self._message, None
        if message is None:
            return b""
        part = {"type": "output_text", "text": message.text, "annotations": [], "logprobs": []}
        events = self._part_event("output_text.done", message, text=message.text, logprobs=[])
        events += self._part_event("content_part.done", message, part=part)
        message.wire |= {"content": [part], "status": status}
        return events + self._event("response.output_item.done", output_index=message.position, item=message.wire)

    def _begin_item(self, kind: ItemKind, fields: JsonObject) -> tuple[_Open, bytes]:
        position = len(self._output)
        id_ = item_id(self._body["id"], kind, position)
        wire: JsonObject = {"id": id_, "type": kind, "status": "in_progress", **fields}
        self._output.append(wire)
        return _Open(position, wire), self._event("response.output_item.added", output_index=position, item=wire)

    def _part_event(self, kind: str, item: _Open, **fields: object) -> bytes:
        return self._item_event(kind, item, content_index=0, **fields)

    def _item_event(self, kind: str, item: _Open, **fields: object) -> bytes:
        return self._event(f"response.{kind}", item_id=item.wire["id"], output_index=item.position, **fields)

    def _lifecycle(self, kind: str) -> bytes:
        return self._event(kind, response=self._body)

    def _event(self, kind: str, **fields: object) -> bytes:
        body = _encode({"type": kind, "sequence_number": self._n_events, **fields})
        self._n_events += 1
        return b"event: " + kind.encode() + b"\ndata: " + body + b"\n\n"


def _usage(used: TokensUsed) -> JsonObject:
    return {
        "input_tokens": used.input,
        "input_tokens_details": {"cached_tokens": used.cached, "cache_write_tokens": used.cache_write},
        "output_tokens": used.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": used.input + used.output,
    }
