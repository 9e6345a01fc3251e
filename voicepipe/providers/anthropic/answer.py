"""Parse an answer of Anthropic's Messages, event by event, into the port's events. No I/O.

Only text and function calls are returned. `ping`, thinking, signatures and unknown events are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from voicepipe.errors import StageError
from voicepipe.ports.model import CallDelta, Finished, ModelEvent, TextDelta, Usage
from voicepipe.providers.llm.token_usage import Fields, added, fields_of, lenient, usage_of
from voicepipe.providers.net import failures
from voicepipe.providers.net.address import ProviderAddress

Reason = Literal["stop", "length", "tool_calls", "content_filter"]

_REASONS: dict[str, Reason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
"""Vendor's stop reason -> the port's. `end_turn`, `stop_sequence` and `pause_turn` mean `stop`."""

_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "overloaded_error": 529,
}
"""The HTTP status that matches an error inside an answer. Source: Anthropic API reference, "Errors"."""


class _Message(msgspec.Struct):
    usage: msgspec.Raw = msgspec.Raw()
    content: list[_Block] | None = None
    stop_reason: str | None = None


class _Block(msgspec.Struct):
    type: str = ""
    text: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None


class _Delta(msgspec.Struct):
    type: str = ""
    text: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Error(msgspec.Struct):
    type: str = ""
    message: str = ""


class _Event(msgspec.Struct):
    type: str
    index: int = 0
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: msgspec.Raw = msgspec.Raw()
    error: _Error | None = None


_decode = lenient(msgspec.json.Decoder(_Event).decode)
_decode_whole = lenient(msgspec.json.Decoder(_Message).decode)


class AnswerReader:
    """Parses the data of each server-sent event; `take` returns the resulting events of the port."""

    def __init__(self, address: ProviderAddress) -> None:
        self._address = address
        self._made: list[ModelEvent] = []
        self._calls: dict[int, int] = {}  # the block's index -> the call's index
        self._bare: set[int] = set()  # calls whose arguments have not arrived yet
        self._usage: Fields = {}
        self.finished = False
        self.done = False

    def take(self) -> Sequence[ModelEvent]:
        """Return the events made since the last call."""
        made, self._made = self._made, []
        return made

    def data(self, data: bytes) -> None:
        """Read one event's data.

        Raises:
            StageError: the vendor sent an error, or data that is not an event of an answer.
        """
        try:
            event = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            quoted = failures.quote(self._address, data[:80].decode(errors="replace"))
            raise failures.broken(self._address, f"expected an event of an answer, got {quoted!r}") from None
        match event.type:
            case "message_start":
                self._count(event.message.usage if event.message else msgspec.Raw())
            case "content_block_start":
                self._begin(event.index, event.content_block or _Block())
            case "content_block_delta":
                self._go_on(event.index, event.delta or _Delta())
            case "content_block_stop":
                self._stop(event.index)
            case "message_delta":
                self._count(event.usage)
                self._finish(event.delta.stop_reason if event.delta else None)
            case "message_stop":
                self.done = True
            case "error":
                raise self._failure(event.error or _Error(), data)

    def whole(self, body: bytes) -> None:
        """Read an answer that came in one piece of JSON.

        Raises:
            StageError: as in `data`.
        """
        try:
            message = _decode_whole(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            message = _Message()
        if message.stop_reason is None:
            raise failures.in_band(self._address, body)
        for index, block in enumerate(message.content or ()):
            self._begin(index, block)
            if block.input:
                self._go_on(index, _Delta("input_json_delta", partial_json=msgspec.json.encode(block.input).decode()))
            self._stop(index)
        self._count(message.usage)
        self._finish(message.stop_reason)
        self.end()

    def end(self) -> None:
        """Handle the end of the stream.

        Raises:
            StageBroken: the vendor sent no stop reason.
        """
        if not self.finished:
            raise failures.broken(self._address, "the answer ended without a stop_reason")
        if usage := _usage(self._usage):
            self._made.append(usage)

    def _begin(self, index: int, block: _Block) -> None:
        if block.type == "text" and block.text:
            self._made.append(TextDelta(block.text))
        elif block.type == "tool_use":
            if not (block.id and block.name):
                raise failures.broken(self._address, "expected a function call with an id and a name, got one without")
            call = self._calls[index] = len(self._calls)
            self._bare.add(call)
            self._made.append(CallDelta(call, block.id, block.name, ""))

    def _go_on(self, index: int, delta: _Delta) -> None:
        if delta.type == "text_delta" and delta.text:
            self._made.append(TextDelta(delta.text))
        elif delta.type == "input_json_delta" and delta.partial_json and index in self._calls:
            self._bare.discard(self._calls[index])
            self._made.append(CallDelta(self._calls[index], "", "", delta.partial_json))

    def _stop(self, index: int) -> None:
        call = self._calls.get(index)
        if call in self._bare:  # a function without arguments
            self._bare.discard(call)
            self._made.append(CallDelta(call, "", "", "{}"))

    def _finish(self, reason: str | None) -> None:
        if reason and not self.finished:
            self.finished = True
            self._made.append(Finished(_REASONS.get(reason, "stop")))

    def _count(self, usage: msgspec.Raw) -> None:
        """Merge a usage report, later values over earlier ones: the counts of `message_delta` are those of the whole
        answer."""
        self._usage |= {name: value for name, value in fields_of(usage).items() if value is not None}

    def _failure(self, error: _Error, data: bytes) -> StageError:
        status = _STATUS.get(error.type)
        return failures.refused(self._address, status, data) if status else failures.in_band(self._address, data)


def _usage(counts: Fields) -> Usage | None:
    cached, written = counts.get("cache_read_input_tokens"), counts.get("cache_creation_input_tokens")
    # Their input count excludes cache reads and writes; the port's includes them.
    read = added(counts.get("input_tokens"), cached, written)
    return usage_of(input=read, output=counts.get("output_tokens"), cached=cached, written=written)
