"""A response that is being sent to the client: which items were begun, and what was sent so far."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pybase64

from voicepipe.protocol.dialect import ResponseState, ResponseUsage, ResponseView
from voicepipe.protocol.json_fields import JsonObject
from voicepipe.protocol.output_codec import OutputCodec
from voicepipe.protocol.session_types import AudioFormat
from voicepipe.turn import notifications as notices
from voicepipe.turn.conversation import ApprovalState, FunctionCall, Item, ItemStatus, Message, OutputAudio, OutputText

TURN_KEY = "voicepipe_turn"
"""The key in `response.metadata` that names the turn, to look it up."""


@dataclass(slots=True)
class OpenMessage:
    """The agent's message while its text and its audio are coming."""

    item_id: str
    response_id: str
    output_index: int
    previous_item_id: str | None
    audible: bool
    codec: OutputCodec
    audio_head: bytes = b""
    """The first part of an audio delta's frame, up to its event id."""

    stream: int = 0
    """The number of its binary frames; 0 when its audio is sent as base64 in deltas."""

    texts: list[str] = field(default_factory=list)
    closed: bool = False
    """The client was notified that it is complete, while the response goes on."""

    deleted: bool = False
    """The client has deleted its item from the conversation; it remains an output of its response."""

    def ids(self) -> JsonObject:
        """Return the ids that every event of this message's one part has."""
        return {
            "response_id": self.response_id,
            "item_id": self.item_id,
            "output_index": self.output_index,
            "content_index": 0,
        }

    def audio_delta(self, coded: bytes, event_id: str) -> bytes:
        """Return an event with this audio as base64."""
        # Encoded without the JSON encoder, which takes several times as long: this is half of all sent data.
        return b"".join((self.audio_head, event_id.encode(), b'","delta":"', pybase64.b64encode(coded), b'"}'))

    def words(self) -> str:
        """Return all text so far."""
        return "".join(self.texts)

    def part(self) -> JsonObject:
        """Return the part as `response.content_part.*` shows it: `audio` or `text` in every dialect."""
        return {"type": "audio", "transcript": self.words()} if self.audible else {"type": "text", "text": self.words()}

    def item(self, status: ItemStatus) -> Message:
        """Return the message with its text so far."""
        part = OutputAudio(self.words()) if self.audible else OutputText(self.words())
        return Message(self.item_id, "assistant", (part,), status)


@dataclass(slots=True)
class OpenCall:
    """A function call while its arguments are coming."""

    item_id: str
    response_id: str
    output_index: int
    previous_item_id: str | None
    call_id: str
    name: str
    server_label: str = ""
    """As in `FunctionCall`."""

    approval: ApprovalState = ""
    """As in `FunctionCall`."""

    pieces: list[str] = field(default_factory=list)
    deleted: bool = False
    """As in `OpenMessage`."""

    @classmethod
    def of(
        cls, call: FunctionCall, item_id: str, response_id: str, output_index: int, previous: str | None
    ) -> OpenCall:
        """Return a call without arguments as yet."""
        place = (item_id, response_id, output_index, previous)
        return cls(*place, call.call_id, call.name, call.server_label, call.approval)

    def ids(self) -> JsonObject:
        """Return the ids that every event of this call's arguments has."""
        ids = {"response_id": self.response_id, "item_id": self.item_id, "output_index": self.output_index}
        return ids if self.server_label else {**ids, "call_id": self.call_id}

    def arguments(self) -> str:
        """Return all arguments so far."""
        return "".join(self.pieces)

    @property
    def runs_here(self) -> bool:
        """Return whether the server runs it as soon as it is whole."""
        return bool(self.server_label) and not self.approval

    def is_whole(self) -> bool:
        """Return whether the arguments are a JSON object, as clients assume when they run a call."""
        try:
            return isinstance(json.loads(self.arguments()), dict)
        except (ValueError, RecursionError):
            return False

    def item(self, status: ItemStatus) -> FunctionCall:
        """Return the call with the arguments so far."""
        return FunctionCall(
            self.item_id,
            self.call_id,
            self.name,
            self.arguments(),
            status,
            server_label=self.server_label,
            approval=self.approval,
        )


@dataclass(slots=True)
class OpenResponse:
    """One response between `response.created` and `response.done`."""

    started: notices.ResponseStarted
    conversation_id: str | None
    output_format: AudioFormat
    """The session's format when the response began: an update during the response must not change its bytes."""

    outputs: list[OpenMessage | OpenCall] = field(default_factory=list)
    message: OpenMessage | None = None
    """The message that text and audio belong to: the last message begun."""

    def call(self, item_id: str) -> OpenCall | None:
        """Return the call of that id."""
        calls = (output for output in self.outputs if isinstance(output, OpenCall))
        return next((call for call in calls if call.item_id == item_id), None)

    def begin(self, item: Message | FunctionCall, previous_item_id: str | None) -> OpenMessage | OpenCall:
        """Add an output item, empty as yet."""
        place = (item.id, self.started.response_id, len(self.outputs), previous_item_id)
        opened: OpenMessage | OpenCall
        if isinstance(item, Message):
            opened = OpenMessage(*place, audible=self.started.reply.audible, codec=OutputCodec(self.output_format))
            self.message = opened
        else:
            opened = OpenCall.of(item, *place)
        self.outputs.append(opened)
        return opened

    def view(
        self,
        status: ResponseState = "in_progress",
        *,
        details: JsonObject | None = None,
        output: tuple[Item, ...] = (),
        usage: ResponseUsage | None = None,
    ) -> ResponseView:
        """Return this response for a dialect to render."""
        started = self.started
        turn = {TURN_KEY: started.turn_id} if started.turn_id else {}
        return ResponseView(
            id=started.response_id,
            status=status,
            details=details,
            output=output,
            conversation_id=self.conversation_id,
            reply=started.reply,
            output_format=self.output_format,
            usage=usage,
            metadata={**dict(started.reply.metadata), **turn},
        )


def ended_details(ended: notices.ResponseEnded) -> JsonObject | None:
    """Return `status_details`: why a response did not complete; None if it completed."""
    match ended.status:
        case "completed":
            return None
        case "failed":
            error = {"type": "server_error", "code": ended.reason or "server_error", "message": ended.message}
            return {"type": "failed", "error": error}
        case "cancelled" | "incomplete":
            return {"type": ended.status, **({"reason": ended.reason} if ended.reason else {})}
