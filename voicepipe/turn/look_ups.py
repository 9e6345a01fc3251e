"""Look-ups: calls of functions that change nothing. They run before the end of the turn is certain.

A look-up starts once its reply has requested it whole, also if the reply is speculative or began softly. Its result
waits until the reply's calls may leave, and is used as if the function had been called then. If the user goes on, the
look-up is cancelled, or its result dropped, with the reply.
"""

from __future__ import annotations

from voicepipe.turn import responses
from voicepipe.turn.commands import CancelTool, RunTool
from voicepipe.turn.context import TurnContext
from voicepipe.turn.conversation import FunctionCall
from voicepipe.turn.reply import LookUp
from voicepipe.turn.turn import Turn


def start(context: TurnContext, turn: Turn, now_ms: int) -> None:
    """Run the look-ups of a reply whose calls are complete."""
    if responses.cut_short_by(turn):
        return  # its calls never leave
    for call in turn.reply.calls.values():
        tool = turn.settings.server_tool(call.name)
        if tool is None or not tool.runs_early or tool.needs_approval or call.call_id in turn.reply.look_ups:
            continue
        look_up = LookUp(turn.reply.revision, now_ms)
        turn.reply.look_ups[call.call_id] = look_up
        context.turns.look_ups[turn.number, look_up.revision, call.call_id] = look_up
        arguments = responses.whole_arguments(call)
        context.issue(RunTool(turn.number, call.call_id, call.name, arguments, look_up.revision))


def take(turn: Turn, call: FunctionCall) -> LookUp | None:
    """Return the look-up that runs, or has run, for a call that may leave now."""
    look_up = turn.reply.look_ups.get(call.call_id)
    if look_up is not None:
        look_up.taken = True
    return look_up


def cancel(context: TurnContext, turn: Turn, call_id: str) -> None:
    """Cancel the function of a call, which may have started as a look-up."""
    look_up = turn.reply.look_ups.get(call_id)
    revision = None if look_up is None else look_up.revision
    if revision is not None:
        context.turns.look_ups.pop((turn.number, revision, call_id), None)
    context.issue(CancelTool(turn.number, call_id, revision))


def drop(context: TurnContext, turn: Turn) -> None:
    """Drop the look-ups of a reply whose calls have not left, and never will."""
    dropped = [call_id for call_id, look_up in turn.reply.look_ups.items() if not look_up.taken]
    for call_id in dropped:
        if turn.reply.look_ups[call_id].output is None:
            cancel(context, turn, call_id)
        del turn.reply.look_ups[call_id]
