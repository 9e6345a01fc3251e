"""The extensions that a session may have beyond the published events, once its client requests them.

The client opts in with `session.providerData.voicepipe` in a `session.update`. From the `session.updated` that answers
it on, and never before, the server may send the events of this module, and the client may send its own.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from voicepipe.protocol.json_fields import MAX_ECHOED_CHARS, JsonObject, flag, one_of, record
from voicepipe.protocol.metadata import read_metadata
from voicepipe.turn.notifications import DismissReason, InterruptReason
from voicepipe.turn.settings import InterruptionMode

OPT_IN: Final = "providerData"
"""The key of the session under which a client requests `voicepipe`, and the server echoes it."""

_NAMES: Final = ("binary_audio", "playback_reports", "turn_events", "resume", "ducking")

INTERRUPTION_MODES: Final = ("confirmed", "immediate")


class Extensions(msgspec.Struct, frozen=True, kw_only=True):
    """The extensions of a session. All are off until the client requests them."""

    binary_audio: bool = False
    """Audio is sent in binary frames, both ways; see `binary`."""

    playback_reports: bool = False
    """The client reports what it has played, with `voicepipe.playback`."""

    turn_events: bool = False
    """The client gets each turn's marks, verdicts and actions as they happen, and its record at the end."""

    resume: bool = False
    """A connection that is lost may be replaced by another."""

    ducking: bool = False
    """The client is notified when to lower the agent's volume, when to restore it, and when the agent has yielded."""

    interruption: InterruptionMode = "confirmed"
    """When the client is notified of speech over the agent's: once it is an interruption, or at once."""

    metadata: tuple[tuple[str, str], ...] = ()
    """Names and values that routing rules for the LLM read."""

    def to_wire(self) -> dict[str, Any]:
        """Return the echo: `providerData.voicepipe` of the session object."""
        echoed: dict[str, Any] = {name: getattr(self, name) for name in (*_NAMES, "interruption")}
        return echoed | {"metadata": dict(self.metadata)} if self.metadata else echoed


OptInChange = bool | str | tuple[tuple[str, str], ...] | None
"""The new value of one name of an opt-in."""


def read_extensions(value: object, path: str) -> dict[str, OptInChange] | None:
    """Return what an opt-in changes, by name; None, for a null or `false`, turns all of it off.

    A null at a name turns that one off, or back to the agent's value. Unknown names change nothing: they may belong to
    a later version.

    Raises:
        ProtocolError: it is no object, or a known name has a value that it cannot have.
    """
    if value is None or value is False:
        return None
    requested = record(value, path)
    changed: dict[str, OptInChange] = {
        name: requested[name] is not None and flag(requested[name], f"{path}.{name}")
        for name in _NAMES
        if name in requested
    }
    if "interruption" in requested:
        echoed = requested["interruption"]
        changed["interruption"] = None if echoed is None else one_of(echoed, f"{path}.interruption", INTERRUPTION_MODES)
    if "metadata" in requested:
        pairs = requested["metadata"]
        changed["metadata"] = () if pairs is None else read_metadata(pairs, f"{path}.metadata")
    return changed


# --- client events ----------------------------------------------------------------------------

MAX_NAMED: Final = 16
"""Limit of the events, and of the items, that a client names when it resumes."""

_Id = Annotated[str, msgspec.Meta(max_length=512)]
_Far = msgspec.Meta(ge=-(2**53), le=2**53)
_Ms = Annotated[int, _Far] | Annotated[float, _Far]


class ClientExtension(msgspec.Struct, tag_field="type", kw_only=True, frozen=True):
    """An event that only an opted-in client sends."""

    event_id: _Id | None = None


class Playback(ClientExtension, tag="voicepipe.playback", frozen=True):
    """The client's playback of one output item, at an instant."""

    item_id: _Id
    played_ms: _Ms
    """How much of the item's audio was played, from its beginning, in ms."""

    buffered_ms: _Ms
    """Received and not played yet, in ms."""

    input_ms: _Ms
    """How much audio the client's microphone had captured at that instant, since the session began, in ms."""

    response_id: _Id | None = None
    carrier_estimated_ms: _Ms | None = None
    """How long this audio was on its way to a phone carrier and its report on the way back, as estimated, in ms."""


class ReceivedItem(msgspec.Struct, frozen=True):
    """An item of the agent's that came as a whole."""

    item_id: _Id
    text: Annotated[str, msgspec.Meta(max_length=MAX_ECHOED_CHARS)]
    ms: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """How much audio it has, in ms; None: it has none."""


class Resume(ClientExtension, tag="voicepipe.resume", frozen=True):
    """The first and only message on a connection that is to replace another."""

    session_id: _Id
    secret: _Id
    last_event_id: _Id | None = None
    """The latest event that came. None: no event came."""

    received_item_id: _Id | None = None
    """The item of the last output that came. Needed only if another node goes on with the session."""

    received_ms: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """How much of this item's audio came, in ms."""

    received_text: Annotated[str, msgspec.Meta(max_length=MAX_ECHOED_CHARS)] | None = None
    """The words that begin in it, as `voicepipe.output_audio.words` timed them; of an item that is complete, all."""

    received_done: bool = False
    """The item is complete."""

    received_items: Annotated[tuple[ReceivedItem, ...], msgspec.Meta(max_length=MAX_NAMED)] = ()
    """The latest items that came as a whole, in order, without the one of the last output."""

    sent: Annotated[tuple[msgspec.Raw, ...], msgspec.Meta(max_length=MAX_NAMED)] = ()
    """The latest events of the client's that another node may not have, in order: each `conversation.item.create`, and
    each `response.create` whose answer has not come as a whole. That node takes over those that it does not have."""


_RESUME_DECODER: Final = msgspec.json.Decoder(Resume)


def read_resume(raw: str | bytes) -> Resume | None:
    """Return the first message on a connection that is to replace another; None when it is a different message, or
    none.
    """
    try:
        return _RESUME_DECODER.decode(raw)
    except ValueError:  # not JSON, not UTF-8, or of another shape
        return None


# --- server events ----------------------------------------------------------------------------


class ServerExtension(msgspec.Struct, tag_field="type", kw_only=True, frozen=True, forbid_unknown_fields=True):
    """An event that only an opted-in client gets."""

    event_id: str


class OutputAudioStarted(ServerExtension, tag="voicepipe.output_audio.started", frozen=True):
    """The audio of this part comes in binary frames with this stream number, in place of its deltas."""

    response_id: str
    item_id: str
    output_index: int
    content_index: int
    stream: int


class OutputAudioWords(ServerExtension, tag="voicepipe.output_audio.words", frozen=True):
    """Words of an item, and where they begin in its audio. The client names those that it received when it resumes."""

    response_id: str
    item_id: str
    words: tuple[str, ...]
    starts_ms: tuple[int, ...]


class TurnMark(ServerExtension, tag="voicepipe.turn.mark", frozen=True):
    """A mark of a running turn. A mark that is known more exactly later is sent again."""

    turn_id: str
    revision: int
    mark: str
    at_ms: int
    """Time since the session began, in ms."""


class TurnStage(ServerExtension, tag="voicepipe.turn.stage", frozen=True):
    """A stage of a running turn, judged against its limit."""

    turn_id: str
    revision: int
    stage: str
    duration_ms: int
    limit_ms: int
    verdict: Literal["within", "over"]
    owner: str
    """The component that could make it shorter."""


class TurnAction(ServerExtension, tag="voicepipe.turn.action", frozen=True):
    """An action was taken to save the budget of a running turn."""

    turn_id: str
    revision: int
    action: str


class AgentDucked(ServerExtension, tag="voicepipe.agent.ducked", frozen=True):
    """The user speaks over this item of the agent's: play it at a lower volume until the verdict."""

    turn_id: str
    item_id: str


class AgentUnducked(ServerExtension, tag="voicepipe.agent.unducked", frozen=True):
    """There was no interruption: back to full volume."""

    turn_id: str
    item_id: str
    reason: DismissReason
    after_ms: int
    """Time since the volume was lowered, in ms."""


class AgentInterrupted(ServerExtension, tag="voicepipe.agent.interrupted", frozen=True):
    """The user interrupted: the rest of this item must not be played."""

    turn_id: str
    item_id: str
    reason: InterruptReason
    after_ms: int
    """Time since the volume was lowered for the last time, in ms."""


class AgentHandedOver(ServerExtension, tag="voicepipe.agent.handed_over", frozen=True):
    """Another agent goes on with the call, from the next response on."""

    agent: str
    """Its name."""


class TurnOver(ServerExtension, tag="voicepipe.turn.record", frozen=True):
    """A turn has ended, or more is known of an ended turn: its record, as `GET /v1/turns/{id}` shows it."""

    record: dict[str, Any]


class Resumed(ServerExtension, tag="voicepipe.resumed", frozen=True):
    """The connection has replaced another. This event comes first; then come the events that the client has missed.

    Its `event_id` is not one to resume after: until the next event comes, the latest event before it remains the one to
    resume after.
    """

    session_id: str
    secret: str
    """The secret for the next resumption: the used secret is no longer valid."""

    input_received_ms: int
    """How much of the user's audio has come, in ms: the client sends it again from here."""

    window_ms: int
    """How long the session waits for its client when the connection is lost again, in ms."""

    moved: bool = False
    """Another node goes on with the session. Events that were missed do not come; the open response is over, and what
    was not heard of it comes in another one."""

    answer_follows: bool = False
    """This node answers by itself: the rest of an answer, or one that was due. Otherwise a client whose request for an
    answer has come to nothing requests it again."""

    answers: int = 0
    """The number of these answers: the client's latest requests are answered by them, those named in `sent` too."""


class GoingAway(ServerExtension, tag="voicepipe.going_away", frozen=True):
    """The node is about to stop: resume the session on another connection, which leads to another node."""

    within_ms: int
    """How long the session can still go on here, in ms."""


ServerEvent = (
    OutputAudioStarted
    | OutputAudioWords
    | TurnMark
    | TurnStage
    | TurnAction
    | AgentDucked
    | AgentUnducked
    | AgentInterrupted
    | AgentHandedOver
    | TurnOver
    | Resumed
    | GoingAway
)
_SERVER_DECODER: Final[msgspec.json.Decoder[ServerEvent]] = msgspec.json.Decoder(ServerEvent)
SERVER_EVENTS: Final = frozenset(str(kind.__struct_config__.tag) for kind in (get_args(ServerEvent) or (ServerEvent,)))
"""The types of all events that only opted-in clients get."""


def read_server_event(raw: str | bytes) -> ServerEvent:
    """Return one of the server's extension events, typed: for clients, and to check what is sent.

    Raises:
        msgspec.ValidationError: it is no such event, or has another shape.
    """
    return _SERVER_DECODER.decode(raw)


def echo(session: JsonObject, extensions: Extensions | None, **more: object) -> JsonObject:
    """Return a session object with the extensions that it has, and `more` values that its client needs for them."""
    if extensions is None:
        return session
    return {**session, OPT_IN: {"voicepipe": {**extensions.to_wire(), **more}}}
