"""The text of a session, from which another process goes on with it: items, the open reply, the client's settings.

A process writes it at each change, off the critical path; the latest state wins. It has no audio.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

import msgspec

from voicepipe.telemetry.journal.plain import typed
from voicepipe.turn.conversation import Item
from voicepipe.turn.core import Core

MAX_BYTES: Final = 1_000_000
"""Limit of a session's text. A session with more can't be resumed at another node."""

LIFE_S: Final = 120
"""How long the text is kept after the latest write."""


class OpenReply(msgspec.Struct, frozen=True, kw_only=True):
    """The reply that was generated or played."""

    item_id: str
    response_id: str
    is_generated: bool
    """The LLM had finished."""

    is_synthesized: bool
    """All of its audio had come."""


class TextState(msgspec.Struct, frozen=True, kw_only=True):
    """The text of one session."""

    items: tuple[msgspec.Raw, ...]
    counts: dict[str, int]
    updates: tuple[msgspec.Raw, ...] = ()
    """The `session` of each `session.update`, in order."""

    generation: int = 0
    """How often the session has moved to another process."""

    input_received_ms: int = 0
    """The user's audio up to there is in the items: the client sends the rest again."""

    reply: OpenReply | None = None
    is_owed: bool = False
    """A reply was due and had not begun."""


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
    kind = type(value)
    return {"is": kind.__name__} | {each.name: _plain(getattr(value, each.name)) for each in fields(kind)}


def read_items(state: TextState) -> tuple[Item, ...]:
    """Return the items of a state.

    Raises:
        ValueError: one is of another shape: a newer voicepipe wrote it.
    """
    return tuple(typed(msgspec.json.decode(raw), Item) for raw in state.items)


def text_of(core: Core, codec: ItemCodec, **more: Any) -> TextState:
    """Return the text of a session as it is now; `more`: the fields that the core does not have."""
    context = core.context
    running = [turn for turn in context.replies.of_conversation if turn.settings.in_conversation]
    live: dict[str, Item] = {turn.reply.item_id: turn.message() for turn in running if turn.reply.item_id}
    items = [live.get(item.id, item) for item in context.conversation.items]
    ids = {item.id for item in items}
    begun = [turn for turn in running if turn.reply.item_id in ids]
    reply = None
    if begun:
        last = begun[-1].reply
        reply = OpenReply(
            item_id=last.item_id,
            response_id=last.response_id if last.response_open else "",
            is_generated=bool(last.finish_reason) or not last.response_open,
            is_synthesized=last.voice_done,
        )
    is_owed = len(running) > len(begun)
    return TextState(items=codec.encoded(items), counts=dict(context.counts), reply=reply, is_owed=is_owed, **more)
