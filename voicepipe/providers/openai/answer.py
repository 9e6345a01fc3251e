"""Parse an answer of OpenAI's chat completions, chunk by chunk, into the port's events. No I/O."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from voicepipe.ports.model import CallDelta, Finished, ModelEvent, TextDelta, Usage
from voicepipe.providers.llm.thinking import ThinkingFilter
from voicepipe.providers.llm.token_usage import Fields, fields_of, inner, lenient, usage_of
from voicepipe.providers.net import failures
from voicepipe.providers.net.address import ProviderAddress

Reason = Literal["stop", "length", "tool_calls", "content_filter"]

_REASONS: dict[str, Reason] = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "tool_use": "tool_calls",
    "content_filter": "content_filter",
    "safety": "content_filter",
}
"""Vendors' finish reasons; all others mean `stop`."""

_FAILED_REASONS = frozenset({"error", "abort", "network_error"})
"""Finish reasons of OpenRouter and vLLM for an answer that failed."""

_MAX_CALLS = 64
"""Maximum number of calls of one answer; more indicates a model error."""


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Part(msgspec.Struct):
    type: str = ""
    text: str | None = None


class _Delta(msgspec.Struct):
    content: str | list[_Part] | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    index: int | None = 0
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    object: str | None = None
    choices: list[_Choice] | None = None
    usage: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


_decode = lenient(msgspec.json.Decoder(_Chunk).decode)


@dataclass(slots=True)
class _OpenCall:
    index: int
    call_id: str
    vendor_id: str
    name: str = ""
    early_arguments: str = ""
    bare: bool = True
    old: bool = False


class AnswerReader:
    """Parses the data of each server-sent event; `take` returns the resulting events of the port."""

    def __init__(
        self, address: ProviderAddress, known_calls: Collection[str] = (), *, repeats_calls: bool = False
    ) -> None:
        """`known_calls`: IDs of the conversation's calls. `repeats_calls`: the vendor sends these again, as Mistral
        does; of any other vendor such a call is a new one, whose ID a simple server counts from 1 in each answer.
        """
        self._address = address
        self._known_calls, self._repeats_calls = known_calls, repeats_calls
        self._made: list[ModelEvent] = []
        self._thinking = ThinkingFilter()
        self._calls: list[_OpenCall] = []
        self._at: dict[int, _OpenCall] = {}
        self._usage: Fields = {}
        self._refused = False
        self.finished = False
        """Whether the vendor sent a finish reason."""

        self.done = False
        """Whether the vendor sent the end marker."""

    def take(self) -> Sequence[ModelEvent]:
        """Return the events made since the last call."""
        made, self._made = self._made, []
        return made

    def data(self, data: bytes) -> None:
        """Read one event's data.

        Raises:
            StageError: the vendor sent an error, or data that is not a chunk of an answer.
        """
        if data.strip() == b"[DONE]":
            self.done = True
            return
        chunk = self._chunk(data)
        self._usage = fields_of(chunk.usage) or self._usage
        for choice in chunk.choices or ():
            if not choice.index:  # one answer was requested
                self._choice(choice)

    def whole(self, body: bytes) -> None:
        """Read an answer that came in one piece of JSON.

        Raises:
            StageError: as in `data`.
        """
        self.data(body)
        if not self.finished:
            raise failures.in_band(self._address, body)
        self.end()

    def end(self) -> None:
        """Handle the end of the stream.

        Raises:
            StageBroken: the vendor did not mark the answer as complete.
        """
        if not (self.finished or self.done):
            raise failures.broken(self._address, "the answer ended without a finish_reason and without [DONE]")
        if not self.finished:
            self._finish("stop")
        if usage := _usage(self._usage):
            self._made.append(usage)

    def _chunk(self, data: bytes) -> _Chunk:
        try:
            chunk = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            quoted = failures.quote(self._address, data[:80].decode(errors="replace"))
            raise failures.broken(self._address, f"expected a chunk of an answer, got {quoted!r}") from None
        if (len(chunk.error) and bytes(chunk.error) != b"null") or chunk.object == "error":
            raise failures.in_band(self._address, data)
        return chunk

    def _choice(self, choice: _Choice) -> None:
        delta = choice.delta or choice.message
        if delta is not None:
            self._add_text(_text(delta.content))
            self._refused = self._refused or bool(delta.refusal)
            for position, call in enumerate(delta.tool_calls or ()):
                self._call(call, position)
        if choice.finish_reason and not self.finished:
            self._finish(choice.finish_reason)

    def _add_text(self, content: str) -> None:
        if content and (text := self._thinking.push(content)):
            self._made.append(TextDelta(text))

    def _finish(self, reason: str) -> None:
        if reason in _FAILED_REASONS:
            raise failures.broken(self._address, f"the vendor ended its answer with finish_reason {reason!r}")
        calls = [call for call in self._calls if not call.old]
        if any(not call.name for call in calls):
            raise failures.broken(self._address, "expected a function call with a name, got one without")
        if rest := self._thinking.finish():
            self._made.append(TextDelta(rest))
        # Some servers send no arguments for an empty object.
        self._made.extend(CallDelta(call.index, "", "", "{}") for call in calls if call.bare)
        meant = _REASONS.get(reason, "stop")
        if meant == "stop" and calls:  # Ollama and others send "stop" after a call too
            meant = "tool_calls"
        if meant == "stop" and self._refused:  # the model's own words of it are no answer
            meant = "content_filter"
        self.finished = True
        self._made.append(Finished(meant))

    def _call(self, call: _Call, position: int) -> None:
        function = call.function or _Function()
        now = self._which(call, function.name or "", position)
        if now.old:
            return
        arguments = _arguments(function)
        now.bare = now.bare and not arguments
        if now.name:
            if arguments:
                self._made.append(CallDelta(now.index, "", "", arguments))
            return
        now.early_arguments += arguments
        if function.name:
            now.name = function.name
            self._made.append(CallDelta(now.index, now.call_id, now.name, now.early_arguments))

    def _which(self, call: _Call, name: str, position: int) -> _OpenCall:
        """Return the call that this delta continues, or a new one.

        The key is `index` where there is one. But some servers send whole calls, all with index 0 and each with its own
        ID. Some send neither: there a name begins a call, and a delta without a name continues the last call.
        """
        if call.index is not None:
            known = self._at.get(call.index)
            other_id = known is not None and bool(call.id) and bool(known.vendor_id) and call.id != known.vendor_id
            if known is None or other_id:
                known = self._at[call.index] = self._new(call)
            return known
        last = self._calls[-1] if self._calls else None
        same_id = last is not None and bool(call.id) and call.id == last.vendor_id
        if last is None or (not same_id and (call.id or position or (name and last.name))):
            return self._new(call)
        return last

    def _new(self, call: _Call) -> _OpenCall:
        if len(self._calls) >= _MAX_CALLS:
            raise failures.broken(self._address, f"expected at most {_MAX_CALLS} function calls, got more")
        index, vendor_id = sum(not each.old for each in self._calls), call.id or ""
        known = vendor_id in self._known_calls
        # Without an ID of its own the call could not be paired with its result.
        taken = not vendor_id or known or any(vendor_id == each.call_id for each in self._calls)
        call_id = f"call_{secrets.token_hex(12)}" if taken else vendor_id
        opened = _OpenCall(index, call_id, vendor_id, old=known and self._repeats_calls)
        self._calls.append(opened)
        return opened


def _text(content: str | list[_Part] | None) -> str:
    if isinstance(content, list):  # Mistral's reasoning models send parts; reasoning parts are not text
        return "".join(part.text or "" for part in content if part.type == "text")
    return content or ""


def _arguments(function: _Function) -> str:
    if isinstance(function.arguments, dict):
        return msgspec.json.encode(function.arguments).decode()
    return function.arguments or ""


def _usage(counts: Fields) -> Usage | None:
    of_input = inner(counts, "prompt_tokens_details").get("cached_tokens")
    cached = of_input or counts.get("prompt_cache_hit_tokens") or counts.get("cached_tokens")  # DeepSeek's, Moonshot's
    return usage_of(input=counts.get("prompt_tokens"), output=counts.get("completion_tokens"), cached=cached)
