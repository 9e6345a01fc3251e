"""The events with which a session goes on that another process had: its conversation, and the replies that are due."""

from __future__ import annotations

from msgspec import Struct

from voicepipe.turn.conversation import Item
from voicepipe.turn.record.values import TurnElsewhere
from voicepipe.turn.settings import ReplySettings


class ConversationRestored(Struct, frozen=True):
    """Another process had the session until now: its conversation goes on here. It comes before any turn."""

    items: tuple[Item, ...]
    counts: tuple[tuple[str, int], ...]
    """Kind of ID -> the number of the latest one."""

    skipped: int = 0
    """Numbers that IDs of all other kinds skip: that process may have given some that are not known here."""

    requests: tuple[str, ...] = ()
    """The `event_id` of the latest requests for a reply that were accepted there."""


class ReplyRestored(Struct, frozen=True):
    """Another process had begun this reply, or was requested to make it. Of several the first one comes first; each
    waits until no other reply of the conversation is made."""

    reply: ReplySettings
    words: str = ""
    """Its text; empty: the LLM decides."""

    goes_on: TurnElsewhere | None = None
    """The turn that it goes on with; None: the other process had none."""

    user_text: str = ""
    """What the user has typed, of a turn that the other process did not have."""

    later_items: tuple[str, ...] = ()
    """Ids of the items behind what it answers: its LLM does not read them, and its output stands before them."""

    event_id: str | None = None
    """Of the client's request for it."""
