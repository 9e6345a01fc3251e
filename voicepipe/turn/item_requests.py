"""The client's item events: add, retrieve, truncate and delete items."""

from __future__ import annotations

from voicepipe.errors import ProtocolError
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn import responses
from voicepipe.turn.agent import AgentSide
from voicepipe.turn.context import TurnContext
from voicepipe.turn.conversation import ApprovalAnswer, FunctionOutput
from voicepipe.turn.server_tools import ServerTools
from voicepipe.turn.user import UserSide
from voicepipe.values import replace


class ItemRequests:
    """Handle the client's item events; each refusal names the event that caused it."""

    def __init__(self, context: TurnContext, user: UserSide, agent: AgentSide, tools: ServerTools) -> None:
        self._tools = tools
        self._context = context
        self._user = user
        self._agent = agent

    def create_requested(self, event: e.ItemCreateRequested, now_ms: int) -> None:
        """Add an item, and notify the client."""
        item = event.item if event.item.id else replace(event.item, id=self._context.new_id("item"))
        try:
            if isinstance(item, ApprovalAnswer):
                self._tools.check_approval(item)
            self._context.core.conversation.refuse_item(self._context.conversation, item)
            if event.after is None and not len(self._context.conversation):
                responses.place_first(self._context, self._context.replies.of_conversation)
            previous = self._context.conversation.add(item, after=event.after)
        except ProtocolError as why:
            self._refuse(event.event_id, why)
        else:
            self._context.replies.item_added(item.id, previous, last=event.after is None)
            self._context.notify(a.ItemAdded(item, previous))
            if event.recording_ms:
                self._user.utterances.record(item.id, event.recording_ms, now_ms)
            if isinstance(item, FunctionOutput) and (turn := self._context.turns.awaits_tools) is not None:
                turn.record_result(item.call_id, now_ms)
            elif isinstance(item, ApprovalAnswer):
                self._tools.approval_answered(item, now_ms)

    def retrieve_requested(self, event: e.ItemRetrieveRequested) -> None:
        """Send an item to the client as it is."""
        self._agent.write_down()
        try:
            self._context.notify(a.ItemRetrieved(self._context.conversation.take(event.item_id)))
        except ProtocolError as why:
            self._refuse(event.event_id, why)

    def deleted(self, event: e.ItemDeleteRequested) -> None:
        """Delete an item."""
        try:
            self._context.conversation.delete(event.item_id)
        except ProtocolError as why:
            self._refuse(event.event_id, why)
        else:
            self._context.replies.item_deleted(event.item_id)
            self._context.turns.approvals.pop(event.item_id, None)
            self._user.utterances.item_deleted(event.item_id)
            self._context.notify(a.ItemDeleted(event.item_id))

    def truncated(self, event: e.ItemTruncateRequested, now_ms: int) -> None:
        """Cut an audio reply to what the client reports as played."""
        self._agent.write_down()
        try:
            cut_ms = self._context.conversation.truncate(
                event.item_id, content_index=event.content_index, audio_end_ms=event.audio_end_ms
            )
        except ProtocolError as why:
            self._refuse(event.event_id, why)
            return
        turn = self._context.replies.remembered(event.item_id)
        if turn is not None and event.item_id not in turn.deleted_items:
            self._agent.truncated(turn, cut_ms, now_ms)
        self._context.notify(a.ItemTruncated(event.item_id, event.content_index, event.audio_end_ms))

    def _refuse(self, event_id: str | None, why: ProtocolError) -> None:
        self._context.refuse(event_id, why.code, why.why, why.field)
