"""The idle timeout: after a long silence on both sides the agent speaks."""

from __future__ import annotations

from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.agent import AgentSide
from voicepipe.turn.commands import CommitSilence, EndSession
from voicepipe.turn.context import Due, Timer, TurnContext
from voicepipe.turn.conversation import InputAudio, Message
from voicepipe.turn.reply_queue import Answers
from voicepipe.turn.states import AgentState, UserState
from voicepipe.turn.user import UserSide


class Idle:
    """A timer from when the agent's last words were played; any speech or request restarts it."""

    def __init__(self, context: TurnContext, user: UserSide, agent: AgentSide, answers: Answers) -> None:
        self._context, self._user, self._agent, self._answers = context, user, agent, answers
        self._prompt = 0
        """The number of the latest turn in which the agent has spoken up."""

    def update(self, now_ms: int) -> None:
        """Update after an event: set the deadline while both sides are silent, and only then.

        A user is not prompted before the agent has spoken first.
        """
        timers, timeout_ms = self._context.timers, self._context.settings.idle_timeout_ms
        if timeout_ms is None or not self._agent.has_spoken or not self._all_silent():
            timers.clear(Timer(Due.IDLE))
        elif Timer(Due.IDLE) not in timers.due:
            timers.set(Timer(Due.IDLE), now_ms + timeout_ms)

    def overdue(self) -> None:
        """Commit the silence: the timeout has passed. Or end the session, if the user was silent before."""
        if self._context.settings.idle_ends and self._prompt == self._context.counts.get("turn"):
            self._context.issue(EndSession())
            return
        self._agent.has_spoken = False
        self._context.issue(CommitSilence())

    def silence_committed(self, event: e.SilenceCommitted, now_ms: int) -> None:
        """Make the silence an item, and start a reply to it."""
        timeout_ms = self._context.settings.idle_timeout_ms
        if timeout_ms is None or not self._all_silent():
            return
        item = Message(self._context.new_id("item"), "user", (InputAudio(None),))
        start_ms = max(0, event.audio_end_ms - timeout_ms)
        self._context.notify(a.SilenceTimedOut(item.id, start_ms, event.audio_end_ms))
        previous = self._context.join(item)
        self._context.notify(a.AudioCommitted(item.id, previous))
        self._context.notify(a.ItemAdded(item, previous))
        turn = self._context.new_turn("idle")
        self._prompt = turn.number
        self._answers.reply_to(turn, self._context.settings.reply, now_ms)

    def _all_silent(self) -> bool:
        settings = self._context.settings
        enabled = settings.detection == "vad" and settings.create_response
        silent = self._user.state is UserState.QUIET and self._agent.state is AgentState.IDLE
        return enabled and silent and not any(self._answers.n_queued) and not self._context.turns.calls
