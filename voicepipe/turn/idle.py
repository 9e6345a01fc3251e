"""The idle timeout: after a long silence on both sides the agent speaks."""

from __future__ import annotations

from voicepipe.turn import announcements as a
from voicepipe.turn import events as e
from voicepipe.turn.agent import AgentSide
from voicepipe.turn.answers import Answers
from voicepipe.turn.caller import CallerSide
from voicepipe.turn.commands import CommitSilence
from voicepipe.turn.conversation import InputAudio, Message
from voicepipe.turn.floor import Floor
from voicepipe.turn.states import Agent, Caller
from voicepipe.turn.timers import Due, Timer


class Idle:
    """A timer from when the agent's last words were played; any speech or request restarts it."""

    def __init__(self, floor: Floor, caller: CallerSide, agent: AgentSide, answers: Answers) -> None:
        self._floor, self._caller, self._agent, self._answers = floor, caller, agent, answers
        self._spoke = False
        """The agent has spoken since its last idle prompt: a user is not prompted before the agent has spoken first."""

    def follow(self, now_ms: int) -> None:
        """Update after an event: set the deadline while both sides are silent, and only then."""
        if self._agent.state is not Agent.IDLE:
            self._spoke = True
        timers, timeout_ms = self._floor.timers, self._floor.settings.idle_timeout_ms
        if timeout_ms is None or not self._spoke or not self._all_silent():
            timers.clear(Timer(Due.IDLE))
        elif Timer(Due.IDLE) not in timers.due:
            timers.set(Timer(Due.IDLE), now_ms + timeout_ms)

    def overdue(self) -> None:
        """Commit the silence: the timeout has passed."""
        self._spoke = False
        self._floor.order(CommitSilence())

    def silence_committed(self, fact: e.SilenceCommitted, now_ms: int) -> None:
        """Make the silence an item, and start a reply to it."""
        timeout_ms = self._floor.settings.idle_timeout_ms
        if timeout_ms is None or not self._all_silent():
            return
        item = Message(self._floor.new_id("item"), "user", (InputAudio(None),))
        start_ms = max(0, fact.audio_end_ms - timeout_ms)
        self._floor.say(a.SilenceTimedOut(item.id, start_ms, fact.audio_end_ms))
        previous = self._floor.join(item)
        self._floor.say(a.AudioCommitted(item.id, previous))
        self._floor.say(a.ItemAdded(item, previous))
        self._answers.ask(self._floor.new_turn("idle"), self._floor.settings.reply, now_ms)

    def _all_silent(self) -> bool:
        settings = self._floor.settings
        wanted = settings.detection == "vad" and settings.create_response
        silent = self._caller.state is Caller.QUIET and self._agent.state is Agent.IDLE
        return wanted and silent and not any(self._answers.n_pending)
