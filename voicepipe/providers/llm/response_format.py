"""The required format of an answer, for vendors with another name for OpenAI's `response_format`.

Source: OpenAI API reference, "Create chat completion", `response_format`.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from voicepipe.ports.model import ModelRequest
from voicepipe.providers.llm.extra_params import refused
from voicepipe.providers.net.address import ProviderAddress

NAME: Final = "response_format"
SEEN: Final = frozenset({NAME})


class _Schema(msgspec.Struct):
    schema: msgspec.Raw = msgspec.Raw()


class ResponseFormat(msgspec.Struct):
    """A response format, one of three."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: _Schema | None = None

    @property
    def schema(self) -> msgspec.Raw | None:
        """The JSON schema of the answer; None: any JSON, or any text."""
        if self.type != "json_schema" or self.json_schema is None:
            return None
        schema = self.json_schema.schema
        return None if bytes(schema) in (b"", b"null") else schema

    @property
    def is_json(self) -> bool:
        """Whether the answer must be JSON."""
        return self.type != "text"


_TEXT: Final = ResponseFormat("text")


def response_format_of(address: ProviderAddress, request: ModelRequest) -> ResponseFormat:
    """Return the format that the request requires; text by default.

    Raises:
        StageRefused: `response_format` is malformed.
    """
    written = dict(request.passed).get(NAME)
    if written is None:
        return _TEXT
    try:
        return msgspec.json.decode(written, type=ResponseFormat)
    except msgspec.DecodeError as problem:
        raise refused(address, f"{NAME}: {problem}") from None
