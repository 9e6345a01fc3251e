"""The client's item events: add, retrieve, truncate and delete items."""

from __future__ import annotations

from dataclasses import replace

from voicepipe.errors import ProtocolError
from voicepipe.turn import announcements as a
from voicepipe.turn import events as e
from voicepipe.turn.agent import AgentSide
from voicepipe.turn.caller import CallerSide
from voicepipe.turn.floor import Floor


class History:
    """Handle the client's item events; each refusal names the event that caused it."""

    def __init__(self, floor: Floor, caller: CallerSide, agent: AgentSide) -> None:
        self._floor = floor
        self._caller = caller
        self._agent = agent

    def offered(self, fact: e.ItemOffered) -> None:
        """Add an item, and notify the client."""
        item = fact.item if fact.item.id else replace(fact.item, id=self._floor.new_id("item"))
        try:
            self._floor.core.conversation.refuse_item(self._floor.conversation, item)
            previous = self._floor.conversation.add(item, after=fact.after)
        except ProtocolError as why:
            self._refuse(fact.event_id, why)
        else:
            self._floor.say(a.ItemAdded(item, previous))

    def wanted(self, fact: e.ItemWanted) -> None:
        """Send an item to the client as it is."""
        self._agent.write_down()
        try:
            self._floor.say(a.ItemShown(self._floor.conversation.take(fact.item_id)))
        except ProtocolError as why:
            self._refuse(fact.event_id, why)

    def deleted(self, fact: e.ItemDeleted) -> None:
        """Delete an item."""
        try:
            self._floor.conversation.delete(fact.item_id)
        except ProtocolError as why:
            self._refuse(fact.event_id, why)
        else:
            self._agent.item_deleted(fact.item_id)
            self._caller.utterances.item_deleted(fact.item_id)
            self._floor.say(a.ItemForgotten(fact.item_id))

    def truncated(self, fact: e.ItemTruncated, now_ms: int) -> None:
        """Cut an audio reply to what the client reports as heard."""
        self._agent.write_down()
        try:
            cut_ms = self._floor.conversation.truncate(
                fact.item_id, content_index=fact.content_index, audio_end_ms=fact.audio_end_ms
            )
        except ProtocolError as why:
            self._refuse(fact.event_id, why)
            return
        turn = self._agent.remembered(fact.item_id)
        if turn is not None and fact.item_id not in turn.deleted_items:
            self._agent.truncated(turn, cut_ms, now_ms)
        self._floor.say(a.ItemCut(fact.item_id, fact.content_index, fact.audio_end_ms))

    def _refuse(self, event_id: str | None, why: ProtocolError) -> None:
        self._floor.refuse(event_id, why.code, why.why, why.field)
