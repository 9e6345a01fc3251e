"""The client's item events: add, retrieve, truncate and delete items."""

from __future__ import annotations

from dataclasses import replace

from voicepipe.errors import ProtocolError
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.agent import AgentSide
from voicepipe.turn.context import TurnContext
from voicepipe.turn.user import UserSide


class ItemRequests:
    """Handle the client's item events; each refusal names the event that caused it."""

    def __init__(self, context: TurnContext, user: UserSide, agent: AgentSide) -> None:
        self._context = context
        self._user = user
        self._agent = agent

    def create_requested(self, fact: e.ItemCreateRequested) -> None:
        """Add an item, and notify the client."""
        item = fact.item if fact.item.id else replace(fact.item, id=self._context.new_id("item"))
        try:
            self._context.core.conversation.refuse_item(self._context.conversation, item)
            previous = self._context.conversation.add(item, after=fact.after)
        except ProtocolError as why:
            self._refuse(fact.event_id, why)
        else:
            self._context.notify(a.ItemAdded(item, previous))

    def retrieve_requested(self, fact: e.ItemRetrieveRequested) -> None:
        """Send an item to the client as it is."""
        self._agent.write_down()
        try:
            self._context.notify(a.ItemRetrieved(self._context.conversation.take(fact.item_id)))
        except ProtocolError as why:
            self._refuse(fact.event_id, why)

    def deleted(self, fact: e.ItemDeleteRequested) -> None:
        """Delete an item."""
        try:
            self._context.conversation.delete(fact.item_id)
        except ProtocolError as why:
            self._refuse(fact.event_id, why)
        else:
            self._agent.item_deleted(fact.item_id)
            self._user.utterances.item_deleted(fact.item_id)
            self._context.notify(a.ItemDeleted(fact.item_id))

    def truncated(self, fact: e.ItemTruncateRequested, now_ms: int) -> None:
        """Cut an audio reply to what the client reports as played."""
        self._agent.write_down()
        try:
            cut_ms = self._context.conversation.truncate(
                fact.item_id, content_index=fact.content_index, audio_end_ms=fact.audio_end_ms
            )
        except ProtocolError as why:
            self._refuse(fact.event_id, why)
            return
        turn = self._agent.remembered(fact.item_id)
        if turn is not None and fact.item_id not in turn.deleted_items:
            self._agent.truncated(turn, cut_ms, now_ms)
        self._context.notify(a.ItemTruncated(fact.item_id, fact.content_index, fact.audio_end_ms))

    def _refuse(self, event_id: str | None, why: ProtocolError) -> None:
        self._context.refuse(event_id, why.code, why.why, why.field)
