"""The response events of a reply, and its items in the conversation: both have the same content at every instant."""

from __future__ import annotations

from dataclasses import replace

from voicepipe.turn import notifications as a
from voicepipe.turn.context import TurnContext
from voicepipe.turn.conversation import ClauseSound, FunctionCall, ItemStatus, Message, OutputAudio
from voicepipe.turn.turn import Turn

_CUT_BY = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""An LLM's reason to finish early -> its name in `response.done`."""


def start_response(context: TurnContext, turn: Turn) -> None:
    """Notify the client that a response is being generated, once."""
    if not turn.reply.response_id:
        turn.reply.response_open, turn.reply.response_id = True, context.new_id("resp")
        context.notify(a.ResponseStarted(turn.reply.response_id, turn.settings, turn.id))


def start_items(context: TurnContext, turn: Turn) -> None:
    """Notify the client of each output item once it has content.

    The message begins with its first word, not with its first clause: words that reach the client's side of the gate
    before their item has begun would be lost.
    """
    if turn.reply.text.strip() and turn.reply.item_id not in turn.reply.started_items:
        _start_item(context, turn, replace(turn.message(), parts=(), status="in_progress"))
    for call in turn.reply.calls.values():
        if call.id not in turn.reply.started_items:
            _start_item(context, turn, replace(call, arguments=""))


def _start_item(context: TurnContext, turn: Turn, item: a.OutputItem) -> None:
    turn.reply.started_items.append(item.id)
    previous = context.join(item) if turn.settings.in_conversation else None
    context.notify(a.OutputStarted(turn.reply.response_id, item, previous))


def filler(turn: Turn) -> Message:
    """Return the filler said while the answer was awaited, as an item; as much of it has audio as was sent."""
    speech = OutputAudio(turn.filler.words, (ClauseSound(turn.filler.words, turn.filler.sent_ms),))
    return Message(turn.filler.item_id, "assistant", (speech,), aside=True)


def finish_response(context: TurnContext, turn: Turn) -> None:
    """Notify the client that the reply is complete, and whether the LLM was cut short."""
    cut_by = _CUT_BY.get(turn.reply.finish_reason)
    if cut_by is None:
        end_response(context, turn, "completed")
    else:
        end_response(context, turn, "incomplete", cut_by)


def end_response(
    context: TurnContext, turn: Turn, status: a.ResponseStatus, reason: str = "", message: str = ""
) -> None:
    """Notify the client that the response is over, if it is open."""
    if not turn.reply.response_open:
        return
    turn.reply.response_open = False
    done: ItemStatus = "completed" if status == "completed" else "incomplete"
    turn.reply.item_status = done
    turn.reply.calls = {i: _ended_call(call, done) for i, call in turn.reply.calls.items()}
    write_down(context, turn)
    t = turn.reply.tokens
    context.notify(a.ResponseEnded(turn.reply.response_id, status, reason, message, t.input, t.output, t.cached))


def _ended_call(call: FunctionCall, status: ItemStatus) -> FunctionCall:
    """Return the call with JSON arguments: an LLM may send none at all for a function without parameters."""
    return replace(call, status=status, arguments=call.arguments or "{}")


def write_down(context: TurnContext, turn: Turn) -> None:
    """Write what the reply has said into the conversation, unless the client has deleted the item."""
    if turn.settings.in_conversation:
        put(context, turn, turn.message())
        for call in turn.reply.calls.values():
            put(context, turn, call)


def put(context: TurnContext, turn: Turn, item: a.OutputItem) -> None:
    """Replace an output item of the turn in the conversation, unless the client has deleted it."""
    if item.id not in turn.deleted_items:
        context.conversation.put(item)
