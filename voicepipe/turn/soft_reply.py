"""A reply that began softly: whether it may be taken back, and how it is stopped, goes on, or becomes irrevocable."""

from __future__ import annotations

from voicepipe.turn import responses
from voicepipe.turn.commands import ContinueReply, SuspendReply
from voicepipe.turn.context import Due, Timer, TurnContext
from voicepipe.turn.conversation import Message
from voicepipe.turn.states import Gate
from voicepipe.turn.turn import Turn
from voicepipe.values import replace


def opening(context: TurnContext, turn: Turn, now_ms: int, *, current: bool) -> tuple[bool, bool]:
    """Return whether the reply, whose gate opens, may be taken back, and whether its function calls are held.

    Args:
        current: it is the conversation's own reply.
    """
    left_ms = turn.question.reversible_ms - turn.reply.earlier_ms
    reversible = left_ms > 0 and current
    if reversible:
        context.timers.set(Timer(Due.REVERSIBLE), now_ms + left_ms)
    return reversible, turn.question.effects_at_ms is not None


def may_take_back(turn: Turn, now_ms: int) -> bool:
    """Return whether the user's voice may take back the end of this turn, as far as its reply has come."""
    soon = turn.audible_played_ms(now_ms) < turn.question.reversible_ms
    played = turn.audio.played_ms(now_ms) >= turn.audio.arrived_ms  # as `responses.cut` counts
    over = turn.all_sent and played and turn.question.effects_at_ms is None
    return turn.reply.gate is Gate.OPEN and not turn.calls_left and soon and not over


def suspend(context: TurnContext, turn: Turn, now_ms: int) -> None:
    """Stop a reply at the point that the user heard. It may go on from there."""
    responses.cut(context, turn, turn.audio.played_ms(now_ms))
    if turn.audio.cut_ms is None and turn.reply.response_open:
        turn.audio.cut_ms = turn.audio.arrived_ms  # its words were played, and its function calls may still come
    if turn.audio.cut_ms is not None:  # otherwise it was played to its end
        context.issue(SuspendReply(turn.number, turn.reply.revision))
    context.timers.await_nothing(turn.number)
    context.timers.clear(Timer(Due.REVERSIBLE))
    responses.suspend_response(context, turn)
    turn.reply.gate = Gate.SUSPENDED
    turn.audio.plays_until_ms = min(turn.audio.plays_until_ms, now_ms)


def go_on(context: TurnContext, turn: Turn, now_ms: int, *, current: bool) -> None:
    """Go on with a suspended reply, from the word at which it was stopped; `current` as in `opening`.

    If nothing is left of it, it is over by the clock: words of the user end no reply that goes on.
    """
    if turn.audio.cut_ms is None:  # it was played to its end
        turn.reply.gate = Gate.OPEN
        return
    revision = turn.reply.revision
    played, from_ms = turn.continue_reply(context.new_id("item"))
    if not turn.audio.arrived_ms:
        turn.audio.plays_until_ms = now_ms + 1
    responses.put(context, turn, played)
    responses.start_response(context, turn)
    responses.start_items(context, turn)
    key = (turn.number, revision, turn.reply.revision)
    held = opening(context, turn, now_ms, current=current)
    context.issue(ContinueReply(*key, turn.reply.response_id, turn.reply.text, from_ms, *held))


def finalize(context: TurnContext, turn: Turn, now_ms: int) -> None:
    """Make a reply irrevocable, once the user has heard enough of it."""
    if turn.reply.gate is not Gate.OPEN or not turn.question.reversible_ms:
        return
    left_ms = turn.question.reversible_ms - turn.audible_played_ms(now_ms)
    if left_ms > 0:
        context.timers.set(Timer(Due.REVERSIBLE), now_ms + left_ms)
    else:
        responses.make_irrevocable(context, turn)


def take_back(context: TurnContext, turn: Turn) -> None:
    """Leave what was heard of a suspended reply to the client: the LLM reads none of it, and answers anew."""
    turn.question.taken_back_ms += turn.audible_played_ms(turn.audio.plays_until_ms)
    for item_id in (*turn.reply.earlier_items, turn.reply.item_id):
        item = context.conversation.find(item_id)
        if isinstance(item, Message):
            responses.put(context, turn, replace(item, hidden_from_llm=True))
