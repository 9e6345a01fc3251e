"""The snapshot of a session, from which another process goes on with it: items, the open reply, the client's settings.

A process writes it at each change, off the critical path; the latest state wins. It has no audio.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec

from voicepipe.telemetry.journal.plain import stored_names, typed
from voicepipe.turn import record_builder
from voicepipe.turn.context import TurnContext
from voicepipe.turn.conversation import Item
from voicepipe.turn.core import Core
from voicepipe.turn.record.arm import Arm
from voicepipe.turn.record.values import Cause, TurnRecord
from voicepipe.turn.turn import Turn

MAX_BYTES: Final = 1_000_000
"""Maximum size of a session's snapshot. A session with a larger one can't be resumed at another node."""

LEFT: Final = "its process ended, and its client did not come back"
"""The reason of a turn that no process has gone on with."""

MOVED: Final = "its process ended while the answer played, and the session went on in another one"
"""The reason of a turn whose end the client alone has seen."""

LIFE_S: Final = 120
"""How long the snapshot is stored after the latest write."""

_QUEUED: Final = "owed"
"""The name of the queued replies in the store. It never changes: nodes of an older version read and write it."""


class OpenReply(msgspec.Struct, frozen=True, kw_only=True):
    """The reply that was generated or played."""

    item_id: str
    response_id: str
    is_generated: bool
    """The LLM had finished."""

    is_synthesized: bool
    """All of its audio had come."""


class OpenTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that was not over, as far as its record needs it elsewhere."""

    id: str
    cause: Cause
    user_text: str
    played_text: str
    """The words of its earlier replies, and of the processes before."""


class EarlierReply(msgspec.Struct, frozen=True, kw_only=True):
    """A reply that was whole and still played when the next one had begun."""

    reply: OpenReply
    turn: OpenTurn | None


class QueuedReply(msgspec.Struct, frozen=True, kw_only=True):
    """A reply that was due and had not begun."""

    turn: OpenTurn | None = None
    response_id: str = ""
    """Its response, if the client was sent the start of it."""

    later_items: tuple[str, ...] = ()
    """Ids of the items behind what it answers."""


class SettingsSent(msgspec.Struct, frozen=True, tag="update"):
    """The client has sent a `session.update`."""

    session: msgspec.Raw


class VariablesSet(msgspec.Struct, frozen=True, tag="variables"):
    """The hook at the beginning of a session has returned."""

    values: dict[str, str]


class AgentChanged(msgspec.Struct, frozen=True, tag="agent"):
    """The call was handed over to another agent."""

    agent: str


SettingsChange = SettingsSent | VariablesSet | AgentChanged
"""What has changed the settings of a session since it began."""


class SessionSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshot of one session."""

    items: tuple[msgspec.Raw, ...]
    counts: dict[str, int]
    changes: tuple[SettingsChange, ...] = ()
    """In order."""

    generation: int = 0
    """How often the session has moved to another process."""

    input_received_ms: int = 0
    """The user's audio up to there is in the items: the client sends the rest again."""

    reply: OpenReply | None = None
    earlier: tuple[EarlierReply, ...] = ()
    """Those before `reply`, in order."""

    queued: tuple[QueuedReply, ...] = msgspec.field(default=(), name=_QUEUED)
    """Those behind `reply`, in order."""

    requests: tuple[str, ...] = ()
    """The `event_id` of the latest requests for a reply that the process had accepted."""

    turn: OpenTurn | None = None
    """That of `reply`, or the one that waited for functions."""

    open_records: tuple[msgspec.Raw, ...] = ()
    """Records of turns that were not closed: of one whose answer was whole and still played, or whose functions had not
    returned."""

    running_records: tuple[msgspec.Raw, ...] = ()
    """Records of the other turns that were not closed: their last ones if no process goes on with the session."""

    closed_records: tuple[msgspec.Raw, ...] = ()
    """The latest records that were closed: the process may have ended before it had stored them."""

    began_unix_ms: int = 0
    """When the session's clock was 0, by which the records' marks are counted."""


class ItemCodec:
    """Encodes items, each once as long as it does not change."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Item, msgspec.Raw]] = {}  # bounded: the items of the conversation

    def encoded(self, items: list[Item]) -> tuple[msgspec.Raw, ...]:
        """Return each item as JSON."""
        known = {}
        for item in items:
            before = self._known.get(item.id)
            known[item.id] = before if before is not None and before[0] == item else (item, _raw(item))
        self._known = known
        return tuple(raw for _, raw in known.values())


def _raw(item: Item) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(_plain(item)))


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, str | int | float):
        return value
    kind: type = type(value)
    names = stored_names(kind) or ()
    return {"is": kind.__name__} | {stored: _plain(getattr(value, name)) for name, stored in names}


def read_items(state: SessionSnapshot) -> tuple[Item, ...]:
    """Return the items of a state.

    Raises:
        ValueError: one is of another shape: a newer voicepipe wrote it.
    """
    return tuple(typed(msgspec.json.decode(raw), Item) for raw in state.items)


def snapshot_of(core: Core, codec: ItemCodec, now_ms: int, **more: Any) -> SessionSnapshot:
    """Return the snapshot of a session as it is now; `more`: the fields that the core does not have."""
    context = core.context
    running = [turn for turn in context.replies.of_conversation if turn.settings.in_conversation]
    live: dict[str, Item] = {turn.reply.item_id: turn.message() for turn in running if turn.reply.item_id}
    items = [live.get(item.id, item) for item in context.conversation.items]
    ids = {item.id for item in items}
    begun = [turn for turn in running if turn.reply.item_id in ids]
    replies = [_open_reply(turn) for turn in begun]
    others = [*running, *core.queued]
    queued = [turn for turn in others if turn not in begun]
    waiting = [turn for turn in (context.turns.awaits_tools, *context.turns.soft.values()) if turn is not None]
    whole = [turn for turn, reply in zip(begun, replies, strict=True) if reply.is_generated]
    unclosed = {turn.id: turn for turn in (*waiting, *whole)}
    return SessionSnapshot(
        items=codec.encoded(items),
        counts=dict(context.counts),
        reply=replies[-1] if replies else None,
        earlier=tuple(
            EarlierReply(reply=reply, turn=_open_turn([turn]))
            for turn, reply in zip(begun[:-1], replies[:-1], strict=True)
        ),
        queued=tuple(map(_queued_reply, queued)),
        requests=tuple(context.requests),
        turn=_open_turn(begun[-1:] or waiting),
        open_records=_records(context, unclosed.values(), now_ms),
        running_records=_records(context, [turn for turn in others if turn.id not in unclosed], now_ms),
        **more,
    )


def _queued_reply(turn: Turn) -> QueuedReply:
    later = tuple(sorted(turn.reply.later_items))
    return QueuedReply(turn=_open_turn([turn]), response_id=_open_response(turn), later_items=later)


def _open_response(turn: Turn) -> str:
    return turn.reply.response_id if turn.reply.response_open else ""


def _open_reply(turn: Turn) -> OpenReply:
    reply = turn.reply
    return OpenReply(
        item_id=reply.item_id,
        response_id=_open_response(turn),
        is_generated=bool(reply.finish_reason) or not reply.response_open,
        is_synthesized=reply.voice_done,
    )


def _open_turn(turns: list[Turn]) -> OpenTurn | None:
    if not turns:
        return None
    turn = turns[-1]
    first = turn.replies[0]
    elsewhere = first.elsewhere
    earlier = [] if elsewhere is None else [elsewhere.played_text]
    return OpenTurn(
        id=turn.id,
        cause=first.cause if elsewhere is None else elsewhere.cause,
        user_text=" ".join(filter(None, (turn.question.text, turn.question.typed))),
        played_text=" ".join(filter(None, (*earlier, *(each.reply.text for each in turn.replies[:-1])))),
    )


def _records(context: TurnContext, turns: Iterable[Turn], now_ms: int) -> tuple[msgspec.Raw, ...]:
    return tuple(encoded_record(record_builder.record_of(context, turn, now_ms)) for turn in turns)


def encoded_record(record: TurnRecord) -> msgspec.Raw:
    """Return a record as JSON, with its arm as a text: a node of an older version reads it so."""
    plain = msgspec.to_builtins(record) | {"arm": str(record.arm)}
    return msgspec.Raw(msgspec.json.encode(plain))


def read_records(found: tuple[msgspec.Raw, ...]) -> Iterator[TurnRecord]:
    """Yield the records, without those that a newer version wrote."""
    for raw in found:
        with suppress(msgspec.MsgspecError):
            plain = msgspec.json.decode(raw, type=dict[str, Any])
            yield msgspec.convert(plain | {"arm": Arm.read(str(plain.get("arm", "")))}, TurnRecord)
