"""What a session may have beyond the published events, once its client asks for it.

The client opts in with `session.providerData.voicepipe` in a `session.update`; from the `session.updated` that answers
it on, and never before, the events of this module may come, and the client may send its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from voicepipe.protocol.fields import JsonObject, flag, one_of, record
from voicepipe.protocol.metadata import read_metadata
from voicepipe.turn.announcements import KeptBy, TakenBy
from voicepipe.turn.settings import Announce

OPT_IN: Final = "providerData"
"""The key of the session under which `voicepipe` is asked for, and echoed."""

_NAMES: Final = ("binary_audio", "playback_reports", "turn_events", "resume", "ducking")

ANNOUNCE: Final = ("verdict", "immediate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Extensions:
    """Which extensions a session has. All are off until its client asks."""

    binary_audio: bool = False
    """Audio travels in binary frames, both ways; see `binary`."""

    playback_reports: bool = False
    """The client says what it has played, with `voicepipe.playback`."""

    turn_events: bool = False
    """The client is told each turn's marks, verdicts and actions as they happen, and its record at the end."""

    resume: bool = False
    """A line that breaks may be replaced by another one."""

    ducking: bool = False
    """The client is told when to lower the agent's voice, when to raise it again, and when the agent has yielded."""

    announce: Announce = "verdict"
    """When the client hears of a voice over the agent's: once it has the floor, or at once."""

    metadata: tuple[tuple[str, str], ...] = ()
    """Names and values that rules about the model look at."""

    def to_wire(self) -> dict[str, Any]:
        """The echo: `providerData.voicepipe` of the session object."""
        told: dict[str, Any] = {name: getattr(self, name) for name in (*_NAMES, "announce")}
        return told | {"metadata": dict(self.metadata)} if self.metadata else told


Change = bool | str | tuple[tuple[str, str], ...] | None
"""What one name of an opt-in becomes."""


def read_extensions(value: object, path: str) -> dict[str, Change] | None:
    """What an opt-in changes, by name; None, for a null or `false`, turns all of it off.

    A null at a name turns that one off, or back to what the agent has. What is unknown changes nothing: it may be a
    later version's.

    Raises:
        ProtocolError: it is no object, or a known name has a value that it can't have.
    """
    if value is None or value is False:
        return None
    asked = record(value, path)
    changed: dict[str, Change] = {
        name: asked[name] is not None and flag(asked[name], f"{path}.{name}") for name in _NAMES if name in asked
    }
    if "announce" in asked:
        told = asked["announce"]
        changed["announce"] = None if told is None else one_of(told, f"{path}.announce", ANNOUNCE)
    if "metadata" in asked:
        pairs = asked["metadata"]
        changed["metadata"] = () if pairs is None else read_metadata(pairs, f"{path}.metadata")
    return changed


# --- from the client --------------------------------------------------------------------------

_Id = Annotated[str, msgspec.Meta(max_length=512)]
_Far = msgspec.Meta(ge=-(2**53), le=2**53)
_Ms = Annotated[int, _Far] | Annotated[float, _Far]


class ClientExtension(msgspec.Struct, tag_field="type", kw_only=True, frozen=True):
    """An event that only an opted-in client sends."""

    event_id: _Id | None = None


class Playback(ClientExtension, tag="voicepipe.playback", frozen=True):
    """What the client's loudspeaker has done of one output item, at an instant."""

    item_id: _Id
    played_ms: _Ms
    """Of the item's sound, counted from its beginning."""

    buffered_ms: _Ms
    """Received and not played yet."""

    input_ms: _Ms
    """How much audio the client's microphone had captured at that instant, since the session began."""

    response_id: _Id | None = None


class Resume(ClientExtension, tag="voicepipe.resume", frozen=True):
    """The first and only word on a line that is to replace another."""

    session_id: _Id
    secret: _Id
    last_event_id: _Id | None = None
    """The latest event that came. None: none did."""


_RESUME_DECODER: Final = msgspec.json.Decoder(Resume)


def read_resume(raw: str | bytes) -> Resume | None:
    """The first word on a line that is to replace another; None when it is another one, or none at all."""
    try:
        return _RESUME_DECODER.decode(raw)
    except ValueError:  # not JSON, not UTF-8, or not of its shape
        return None


# --- from the server --------------------------------------------------------------------------


class ServerExtension(msgspec.Struct, tag_field="type", kw_only=True, frozen=True, forbid_unknown_fields=True):
    """An event that only an opted-in client is sent."""

    event_id: str


class OutputAudioStarted(ServerExtension, tag="voicepipe.output_audio.started", frozen=True):
    """The sound of this part comes in binary frames with this stream number, in place of its deltas."""

    response_id: str
    item_id: str
    output_index: int
    content_index: int
    stream: int


class TurnMark(ServerExtension, tag="voicepipe.turn.mark", frozen=True):
    """An instant of a running turn. One that is known better later comes again."""

    turn_id: str
    revision: int
    mark: str
    at_ms: int
    """Since the session began."""


class TurnVerdict(ServerExtension, tag="voicepipe.turn.verdict", frozen=True):
    """A stage of a running turn, held against its limit."""

    turn_id: str
    revision: int
    stage: str
    duration_ms: int
    limit_ms: int
    verdict: Literal["within", "over"]
    owner: str
    """Who could make it shorter."""


class TurnAction(ServerExtension, tag="voicepipe.turn.action", frozen=True):
    """Something was done to save the budget of a running turn."""

    turn_id: str
    revision: int
    action: str


class AgentDucked(ServerExtension, tag="voicepipe.agent.ducked", frozen=True):
    """Somebody speaks over this item of the agent's: play it at a lower volume until the verdict."""

    turn_id: str
    item_id: str


class AgentRestored(ServerExtension, tag="voicepipe.agent.restored", frozen=True):
    """They have not taken the floor: back to full volume."""

    turn_id: str
    item_id: str
    reason: KeptBy
    after_ms: int
    """Since the volume was lowered."""


class AgentYielded(ServerExtension, tag="voicepipe.agent.yielded", frozen=True):
    """They have it: the rest of this item is not to be played."""

    turn_id: str
    item_id: str
    reason: TakenBy
    after_ms: int
    """Since the volume was lowered for the last time."""


class TurnOver(ServerExtension, tag="voicepipe.turn.record", frozen=True):
    """A turn has ended, or more is known of one that has: its record, as `GET /v1/turns/{id}` shows it."""

    record: dict[str, Any]


class Resumed(ServerExtension, tag="voicepipe.resumed", frozen=True):
    """The line has taken the place of another. It comes first; then comes what the client has missed.

    Its `event_id` is not one to resume after: the latest event that came before it stays that, until the next comes.
    """

    session_id: str
    secret: str
    """For the next time: the one that was used is worth nothing any more."""

    input_received_ms: int
    """How much of the caller's audio has come: the client sends it again from here."""

    window_ms: int
    """How long the session waits for its client when the line breaks again."""


ServerEvent = (
    OutputAudioStarted
    | TurnMark
    | TurnVerdict
    | TurnAction
    | AgentDucked
    | AgentRestored
    | AgentYielded
    | TurnOver
    | Resumed
)
_SERVER_DECODER: Final[msgspec.json.Decoder[ServerEvent]] = msgspec.json.Decoder(ServerEvent)
SERVER_EVENTS: Final = frozenset(str(kind.__struct_config__.tag) for kind in (get_args(ServerEvent) or (ServerEvent,)))
"""The types of all events that only opted-in clients are sent."""


def read_server_event(raw: str | bytes) -> ServerEvent:
    """One of the server's extension events, typed: for clients, and to check what is sent.

    Raises:
        msgspec.ValidationError: it is none, or not of its shape.
    """
    return _SERVER_DECODER.decode(raw)


def echo(session: JsonObject, extensions: Extensions | None, **more: object) -> JsonObject:
    """A session object with the extensions that it has, and `more` of what its client must know of them."""
    if extensions is None:
        return session
    return {**session, OPT_IN: {"voicepipe": {**extensions.to_wire(), **more}}}
