"""The effects of a turn: its function calls and its outcome wait until a soft end is certain.

Calls of the client's functions wait until the client has received that the user stopped.
"""

from __future__ import annotations

from voicepipe.turn.context import Due, Timer, TurnContext
from voicepipe.turn.record import attribution
from voicepipe.turn.turn import Turn


def hold(context: TurnContext, turn: Turn, effects_ms: int | None, now_ms: int) -> None:
    """Hold the effects until `effects_ms` after the last word, as the strategy has decided, unless that is over and
    nothing holds them. Calls of the client's functions wait at least `calls_wait_ms` after the end.
    """
    until_ms = turn.marks[attribution.VOICED_LAST] + (effects_ms or 0)
    if context.settings.reply.tools and attribution.ENDED in turn.marks:
        until_ms = max(until_ms, turn.marks[attribution.ENDED] + context.core.calls_wait_ms)
    if until_ms > now_ms or turn.question.effects_at_ms is not None:
        _hold(context, turn, until_ms)


def _hold(context: TurnContext, turn: Turn, until_ms: int) -> None:
    context.turns.soft[turn.number] = turn
    turn.question.effects_at_ms = until_ms
    context.timers.set(Timer(Due.EFFECTS, turn.number), until_ms)


def reopen(context: TurnContext, turn: Turn) -> None:
    """Hold nothing: the end of the turn is taken back, so that it will end again."""
    turn.question.reversible_ms, turn.question.effects_at_ms = 0, None
    context.timers.clear(Timer(Due.EFFECTS, turn.number))
    context.turns.soft.pop(turn.number, None)


def restore(context: TurnContext, turn: Turn, reversible_ms: int, effects_at_ms: int | None) -> None:
    """Restore the end of a turn as it was before `reopen`."""
    turn.question.reversible_ms = reversible_ms
    if effects_at_ms is not None:
        _hold(context, turn, effects_at_ms)
