"""Parse an answer of Gemini's `streamGenerateContent`, chunk by chunk, into the port's events. No I/O."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from voicepipe.ports.model import CallDelta, Finished, ModelEvent, TextDelta, Usage
from voicepipe.providers.google.thought_signatures import ThoughtSignatures
from voicepipe.providers.llm.token_usage import Fields, added, fields_of, lenient, usage_of
from voicepipe.providers.net import failures
from voicepipe.providers.net.address import ProviderAddress

Reason = Literal["stop", "length", "tool_calls", "content_filter"]

_REASONS: dict[str, Reason] = {
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "LANGUAGE": "content_filter",
}
"""Vendor's finish reason -> the port's. `STOP` and `OTHER` mean `stop`. Source: Gemini API reference,
`FinishReason`."""

_FAILED_REASONS: Final = frozenset(
    {
        "MALFORMED_FUNCTION_CALL",
        "MALFORMED_RESPONSE",
        "MISSING_THOUGHT_SIGNATURE",
        "TOO_MANY_TOOL_CALLS",
        "UNEXPECTED_TOOL_CALL",
    }
)
"""Finish reasons of answers that cannot be used."""


class _Call(msgspec.Struct, rename="camel"):
    name: str = ""
    args: dict[str, Any] | None = None
    id: str | None = None


class _Part(msgspec.Struct, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: _Call | None = None


class _Content(msgspec.Struct, rename="camel"):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None
    index: int | None = 0


class _Feedback(msgspec.Struct, rename="camel"):
    block_reason: str | None = None


class _Chunk(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: _Feedback | None = None
    usage_metadata: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


_decode = lenient(msgspec.json.Decoder(_Chunk).decode)
_decode_many = lenient(msgspec.json.Decoder(list[_Chunk]).decode)


class AnswerReader:
    """Parses the data of each server-sent event; `take` returns the resulting events of the port."""

    def __init__(self, address: ProviderAddress, signatures: ThoughtSignatures) -> None:
        self._address, self._signatures = address, signatures
        self._made: list[ModelEvent] = []
        self._calls = 0
        self._usage: Fields = {}
        self.finished = False
        self.done = False  # there is no end marker: the stream just ends

    def take(self) -> Sequence[ModelEvent]:
        """Return the events made since the last call."""
        made, self._made = self._made, []
        return made

    def data(self, data: bytes) -> None:
        """Read one event's data.

        Raises:
            StageError: the vendor sent an error, or data that is not a chunk of an answer.
        """
        try:
            chunk = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            quoted = failures.quote(self._address, data[:80].decode(errors="replace"))
            raise failures.broken(self._address, f"expected a chunk of an answer, got {quoted!r}") from None
        self._read(chunk, data)

    def whole(self, body: bytes) -> None:
        """Read an answer that came in one piece of JSON: one object, or a list of chunks.

        Raises:
            StageError: as in `data`.
        """
        try:
            chunks = _decode_many(body) if body.lstrip().startswith(b"[") else [_decode(body)]
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise failures.in_band(self._address, body) from None
        for chunk in chunks:
            self._read(chunk, body)
        if not self.finished:
            raise failures.in_band(self._address, body)
        self.end()

    def end(self) -> None:
        """Handle the end of the stream.

        Raises:
            StageBroken: the vendor sent no finish reason.
        """
        if not self.finished:
            raise failures.broken(self._address, "the answer ended without a finishReason")
        if usage := _usage(self._usage):
            self._made.append(usage)

    def _read(self, chunk: _Chunk, data: bytes) -> None:
        if len(chunk.error) and bytes(chunk.error) != b"null":
            raise failures.in_band(self._address, data)
        self._usage = fields_of(chunk.usage_metadata) or self._usage
        for candidate in chunk.candidates or ():
            if not candidate.index:  # one answer was requested
                self._candidate(candidate)
        if chunk.prompt_feedback and chunk.prompt_feedback.block_reason and not self.finished:
            self._finish("SAFETY")  # the prompt itself was blocked: there is no candidate

    def _candidate(self, candidate: _Candidate) -> None:
        for part in (candidate.content.parts if candidate.content else None) or ():
            if part.thought:
                continue
            if part.text:
                self._made.append(TextDelta(part.text))
            if part.function_call is not None:
                self._call(part.function_call, part.thought_signature)
        if candidate.finish_reason and not self.finished:
            self._finish(candidate.finish_reason)

    def _call(self, call: _Call, signature: str | None) -> None:
        if not call.name:
            raise failures.broken(self._address, "expected a function call with a name, got one without")
        call_id = call.id or f"call_{secrets.token_hex(12)}"
        if signature:
            self._signatures.keep(call_id, signature)
        arguments = msgspec.json.encode(call.args or {}).decode()
        self._made.append(CallDelta(self._calls, call_id, call.name, arguments))
        self._calls += 1

    def _finish(self, reason: str) -> None:
        if reason in _FAILED_REASONS:
            raise failures.broken(self._address, f"the vendor ended its answer with finishReason {reason!r}")
        meant = _REASONS.get(reason, "stop")
        self.finished = True
        self._made.append(Finished("tool_calls" if meant == "stop" and self._calls else meant))


def _usage(counts: Fields) -> Usage | None:
    written = added(counts.get("candidatesTokenCount"), counts.get("thoughtsTokenCount"))
    cached = counts.get("cachedContentTokenCount")
    return usage_of(input=counts.get("promptTokenCount"), output=written, cached=cached)
