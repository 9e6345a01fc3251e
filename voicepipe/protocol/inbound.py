"""Read a client's messages: any bytes become a typed value, or `Unreadable`. Nothing raises.

Most values are events of the turn core as they are; the few that the session handles have a small type here.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Final

import msgspec
import numpy as np
import pybase64

from voicepipe.errors import ProtocolError, validation_place
from voicepipe.protocol import binary
from voicepipe.protocol.extensions import Extensions, Playback
from voicepipe.protocol.items import Find, found_nothing, read_item, recordings
from voicepipe.protocol.json_fields import JsonObject, displayed, refuse_depth
from voicepipe.protocol.reply_request import read_reply, unserved_of_reply
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.turn.events import (
    CancelRequested,
    ItemCreateRequested,
    ItemDeleteRequested,
    ItemRetrieveRequested,
    ItemTruncateRequested,
    PlaybackReported,
    ReplyRequested,
)

MAX_EVENT_ID_CHARS: Final = 512
"""The published limit. An error echoes the id, so its length must be limited."""

_MAX_REREAD_BYTES: Final = 65_536
"""A broken message larger than this is not read a second time for its `event_id`: that would block the event loop."""

MAX_VALUES: Final = 20_000
"""About how many values one event may hold: commas and brackets are counted. A long string is cheap to read, an array
of a million values is not, and one client must not delay the others. Tools and histories of real clients stay under
2000.
"""

_COUNTED_CHARS: Final = 1 << 17
"""Number of characters counted in one step: they stay in the processor's cache."""

_UNCOUNTED_CHARS: Final = 65_536
"""A message up to this length cannot hold enough values to matter: it is not counted."""


class AudioAppended(msgspec.Struct, frozen=True):
    """More of the user's audio, in the session's input format. May end in the middle of a sample."""

    audio: bytes


class RecordingCreated(msgspec.Struct, frozen=True):
    """The client adds an item with recordings: they are transcribed."""

    request: ItemCreateRequested
    audio: bytes
    """The recordings of the item, end to end, in the session's input format."""


class InputCommit(msgspec.Struct, frozen=True):
    """The client ends the user's turn; the session counts how much audio there is."""

    event_id: str | None


class InputClear(msgspec.Struct, frozen=True):
    """The client clears the audio that is not committed."""

    event_id: str | None


class SessionUpdate(msgspec.Struct, frozen=True):
    """The client requests other settings: merge `update` into the session with `SessionConfig.merged`."""

    event_id: str | None
    update: JsonObject
    listening_only: bool = False
    """It came as `transcription_session.update`, whose name states the kind of session."""


class Nothing(msgspec.Struct, frozen=True):
    """An event that has no effect over a WebSocket."""


class PartlyServed(msgspec.Struct, frozen=True):
    """A request for a reply with fields that are accepted and have no effect: (path, why)."""

    request: ReplyRequested
    fields: tuple[tuple[str, str], ...]


class Unreadable(msgspec.Struct, frozen=True):
    """A message that cannot be read; the session goes on and sends an error."""

    event_id: str | None
    code: str
    message: str
    field: str | None = None
    """The dotted path of what was wrong, or None when the whole message was wrong."""

    @classmethod
    def because(cls, error: ProtocolError, event_id: str | None) -> Unreadable:
        """Return the same refusal as a value, with the event that caused it."""
        return cls(event_id, error.code, error.why, error.field)


ClientEvent = (
    AudioAppended
    | RecordingCreated
    | InputCommit
    | InputClear
    | SessionUpdate
    | ReplyRequested
    | PartlyServed
    | CancelRequested
    | ItemCreateRequested
    | ItemTruncateRequested
    | ItemDeleteRequested
    | ItemRetrieveRequested
    | PlaybackReported
    | Nothing
    | Unreadable
)

_EventId = Annotated[str, msgspec.Meta(max_length=MAX_EVENT_ID_CHARS)] | None
_Id = Annotated[str, msgspec.Meta(max_length=MAX_EVENT_ID_CHARS)]
_Index = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
_Bound = msgspec.Meta(ge=-(2**53), le=2**53)
_Ms = Annotated[int, _Bound] | Annotated[float, _Bound]


class _Event(msgspec.Struct, tag_field="type", kw_only=True):
    event_id: _EventId = None


class _SessionUpdate(_Event, tag="session.update"):
    session: JsonObject


class _TranscriptionSessionUpdate(_Event, tag="transcription_session.update"):
    session: JsonObject


class _Append(_Event, tag="input_audio_buffer.append"):
    audio: str


class _Commit(_Event, tag="input_audio_buffer.commit"):
    pass


class _Clear(_Event, tag="input_audio_buffer.clear"):
    pass


class _ItemCreate(_Event, tag="conversation.item.create"):
    item: JsonObject
    previous_item_id: _Id | None = None


class _ItemTruncate(_Event, tag="conversation.item.truncate"):
    item_id: _Id
    content_index: _Index
    audio_end_ms: _Ms


class _ItemRetrieve(_Event, tag="conversation.item.retrieve"):
    item_id: _Id


class _ItemDelete(_Event, tag="conversation.item.delete"):
    item_id: _Id


class _ResponseCreate(_Event, tag="response.create"):
    response: JsonObject | None = None


class _ResponseCancel(_Event, tag="response.cancel"):
    response_id: _Id | None = None


class _OutputClear(_Event, tag="output_audio_buffer.clear"):
    pass


_AnyEvent = (
    _Append
    | _SessionUpdate
    | _TranscriptionSessionUpdate
    | _Commit
    | _Clear
    | _ItemCreate
    | _ItemTruncate
    | _ItemRetrieve
    | _ItemDelete
    | _ResponseCreate
    | _ResponseCancel
    | _OutputClear
    | Playback
)
_DECODER: Final = msgspec.json.Decoder(_AnyEvent)


def read(raw: str | bytes, config: SessionConfig, find: Find = found_nothing) -> ClientEvent:
    """Return what a client's message requests.

    Args:
        raw: one message, UTF-8 JSON, or a binary frame if the session takes them.
        config: the session as it is now; a reply uses it for what its request leaves open.
        find: looks up items that a `response.create` refers to in its `input`.

    Returns:
        An event for the turn core, one of this module's types, or `Unreadable`. Never raises.
    """
    extensions = config.extensions
    if extensions and extensions.binary_audio and isinstance(raw, bytes) and binary.is_binary(raw):
        return _binary(raw)
    if len(raw) > _UNCOUNTED_CHARS and _n_values(raw) > MAX_VALUES:
        return Unreadable(None, "invalid_value", f"expected at most about {MAX_VALUES} values in an event, got more")
    try:
        event = _DECODER.decode(raw)
    except (ValueError, RecursionError) as why:
        return _unreadable(raw, why)
    if type(event) is _Append:
        return _append(event)
    try:
        if isinstance(event, Playback):
            return _extension(event, extensions)
        return _client_event(event, config, find)
    except ProtocolError as why:
        return Unreadable.because(why, event.event_id)


def _n_values(raw: str | bytes) -> int:
    """Count the values until the result is certain; 16 MB without any take 5 ms."""
    chars = np.frombuffer(raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw, dtype=np.uint8)
    n_values = 0
    for first in range(0, len(chars), _COUNTED_CHARS):
        some = chars[first : first + _COUNTED_CHARS]
        n_values += sum(int(np.count_nonzero(some == mark)) for mark in b",[{")
        if n_values > MAX_VALUES:
            break
    return n_values


def _append(event: _Append) -> AudioAppended | Unreadable:
    try:
        return AudioAppended(pybase64.b64decode(event.audio, validate=True))
    except ValueError:  # characters outside the alphabet, or padding that does not fit
        why = f"audio: expected base64 with padding, got {displayed(event.audio)}"
        return Unreadable(event.event_id, "invalid_value", why, "audio")


def _binary(raw: bytes) -> AudioAppended | Unreadable:
    try:
        return AudioAppended(binary.user_audio(raw))
    except ProtocolError as why:
        return Unreadable.because(why, None)


def _extension(event: Playback, extensions: Extensions | None) -> PlaybackReported:
    if extensions is None or not extensions.playback_reports:
        why = "type: expected a client event's, or providerData.voicepipe.playback_reports, got voicepipe.playback"
        raise ProtocolError(why, field="type", code="invalid_value")
    played, buffered, captured = map(round, (event.played_ms, event.buffered_ms, event.input_ms))
    estimated = event.carrier_estimated_ms
    return PlaybackReported(event.item_id, played, buffered, captured, None if estimated is None else round(estimated))


def _client_event(event: _Event, config: SessionConfig, find: Find) -> ClientEvent:
    match event:
        case _SessionUpdate():
            return SessionUpdate(event.event_id, event.session)
        case _TranscriptionSessionUpdate():
            return SessionUpdate(event.event_id, event.session, listening_only=True)
        case _Commit():
            return InputCommit(event.event_id)
        case _Clear():
            return InputClear(event.event_id)
        case _ItemCreate():
            refuse_depth(event.item, "item")
            item = read_item(event.item, "item")
            request = ItemCreateRequested(event.event_id, item, event.previous_item_id or None)
            audio = recordings(event.item, "item")
            return RecordingCreated(request, audio) if audio else request
        case _ItemTruncate():
            return ItemTruncateRequested(event.event_id, event.item_id, event.content_index, round(event.audio_end_ms))
        case _ItemRetrieve():
            return ItemRetrieveRequested(event.event_id, event.item_id)
        case _ItemDelete():
            return ItemDeleteRequested(event.event_id, event.item_id)
        case _ResponseCreate():
            _refuse_answers(config)
            reply = read_reply(event.response, config.reply_settings(), find, config.mcp)
            unserved = unserved_of_reply(event.response, config.output_format.name)
            requested = ReplyRequested(event.event_id, reply)
            return PartlyServed(requested, unserved) if unserved else requested
        case _ResponseCancel():
            return CancelRequested(event.event_id, event.response_id)
        case _:
            return Nothing()


def _refuse_answers(config: SessionConfig) -> None:
    if config.kind == "transcription":
        why = "type: expected an event for a session that only listens, got a request for a response"
        raise ProtocolError(why, field="type", code="invalid_value")


# --- unreadable messages ----------------------------------------------------------------------

_MISSING: Final = re.compile(r"missing required field `(?P<name>\w+)`")


def _unreadable(raw: str | bytes, why: Exception) -> Unreadable:
    readable = _tolerantly_read(raw)
    event_id = _echoable(readable.get("event_id"))
    if not isinstance(why, msgspec.ValidationError):
        return Unreadable(event_id, "invalid_event", f"expected a JSON object in UTF-8, got {_reason(why)}")
    return _invalid(event_id, why, displayed(readable["type"]) if "type" in readable else "another")


def _invalid(event_id: str | None, why: Exception, kind: str) -> Unreadable:
    """Return the decoder's message ("Expected `str`, got `int` - at `$.item_id`") as code, field and message."""
    what, path = validation_place(why)
    if path == "type":
        return Unreadable(event_id, "invalid_value", f"type: expected a client event's, got {kind}", "type")
    if lacking := _MISSING.search(what):
        name = lacking["name"]
        code = "invalid_event" if name == "type" else "missing_required_parameter"
        return Unreadable(event_id, code, f"{name}: expected a value, got nothing", name)
    problem = what.replace("`", "").replace("Expected", "expected", 1)
    if "out of range" in problem:
        problem = "expected a number below 1e308"
    if not path:
        return Unreadable(event_id, "invalid_event", f"{problem}: an event is a JSON object")
    code = "invalid_type" if ", got " in problem else "invalid_value"
    return Unreadable(event_id, code, f"{path}: {problem}", path)


def _echoable(event_id: object) -> str | None:
    """Return the id if it can be sent back: a short string without the lone surrogates that JSON can contain."""
    if not isinstance(event_id, str) or len(event_id) > MAX_EVENT_ID_CHARS:
        return None
    return None if any("\ud800" <= char <= "\udfff" for char in event_id) else event_id


def _reason(why: Exception) -> str:
    match why:
        case RecursionError():
            return "one that nests too deeply"
        case UnicodeError():
            return "text that is not"
        case _:
            return str(why)


def _tolerantly_read(raw: str | bytes) -> JsonObject:
    """Read a refused message with a more tolerant reader, to find its `event_id`."""
    if len(raw) > _MAX_REREAD_BYTES:
        return {}
    try:
        whole = raw if isinstance(raw, str) else raw.decode("utf-8", "replace")
        found = json.loads(whole)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
