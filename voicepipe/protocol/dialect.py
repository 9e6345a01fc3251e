"""The differences between the published events (GA) and the older ones (beta): names and shapes, not the order."""

from __future__ import annotations

from typing import Literal, Protocol

from msgspec import Struct

from voicepipe.protocol.json_fields import JsonObject
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.protocol.session_types import AudioFormat
from voicepipe.turn.conversation import Item
from voicepipe.turn.settings import ReplySettings

ResponseState = Literal["in_progress", "completed", "cancelled", "incomplete", "failed"]


class ResponseUsage(Struct, frozen=True, kw_only=True):
    """The tokens of a response. Only text is counted: the LLM of a cascade has no audio input or output."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int


class ResponseView(Struct, frozen=True, kw_only=True):
    """A response at an instant, independent of any dialect."""

    id: str
    status: ResponseState
    details: JsonObject | None
    """`status_details`: None for a completed response."""

    output: tuple[Item, ...]
    conversation_id: str | None
    """None: out of band."""

    reply: ReplySettings
    output_format: AudioFormat
    usage: ResponseUsage | None
    metadata: dict[str, str]


class Dialect(Protocol):
    """One set of names and shapes. Stateless."""

    announces_conversation: bool
    """Whether `conversation.created` follows `session.created`."""

    has_server_calls: bool
    """Whether it has events for calls that the server runs."""

    def event(self, kind: str, fields: JsonObject) -> JsonObject | None:
        """Return the event of the published name `kind` without its `event_id`; None when this dialect has no such
        event.
        """
        ...

    def session(self, config: SessionConfig) -> JsonObject:
        """Return the complete `session` object."""
        ...

    def item(self, item: Item) -> JsonObject:
        """Return an item of the conversation, without the bytes of its audio."""
        ...

    def response(self, view: ResponseView) -> JsonObject:
        """Return the `response` object of `response.created` and `response.done`."""
        ...
