"""The last resort: end work for which no deadline is set.

Deadlines keep turns from getting stuck, and tests check that every state has one. What the watchdog finds is therefore
a bug of ours: it is counted and logged, and the session goes on.
"""

from __future__ import annotations

from typing import Final

from voicepipe.turn.agent import AgentSide
from voicepipe.turn.commands import ReportStuck
from voicepipe.turn.context import Due, Timer, TurnContext
from voicepipe.turn.reply_queue import Answers
from voicepipe.turn.states import AgentState, UserState
from voicepipe.turn.user import UserSide

_TIMEOUT_MS: Final = 15_000
"""Longer than any step may take, in ms, so that the watchdog never acts before a deadline."""


class Watchdog:
    """Check after each event whether work would wait forever."""

    def __init__(self, context: TurnContext, user: UserSide, agent: AgentSide, answers: Answers) -> None:
        self._context, self._user, self._agent, self._answers = context, user, agent, answers
        self.n_stuck = 0
        """How often the watchdog had to act; more than 0 is a bug of ours."""

    def update(self, now_ms: int) -> None:
        """Update the watchdog's deadline after the latest event."""
        under_way = (
            self._user.state is not UserState.QUIET
            or self._agent.state is not AgentState.IDLE
            or any(self._answers.n_queued)
            or self._context.replies.n_out_of_band
        )
        timers, watchdog = self._context.timers, Timer(Due.WATCHDOG)
        if not under_way or timers.end_work:
            timers.clear(watchdog)
        elif watchdog not in timers.due:
            timers.set(watchdog, now_ms + _TIMEOUT_MS)

    def overdue(self, now_ms: int) -> None:
        """End the user's turn, or all replies that are being made: nothing has moved."""
        self.n_stuck += 1
        self._context.issue(ReportStuck(self._user.state.value, self._agent.state.value))
        if self._user.state in (UserState.SPEAKING, UserState.HOLDING):
            self._user.end(now_ms)
            return
        self._agent.hang_up("stuck", now_ms)
        self._answers.interrupt(now_ms)
        if self._user.turn is not None:
            self._answers.drop(self._user.turn, "stuck", now_ms)
