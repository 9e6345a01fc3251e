"""The agent's first words in a session: when they are due, and what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from voicepipe.protocol.prompt import filled
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.session.context import Greeting
from voicepipe.session.recorded_call import RecordedCall
from voicepipe.turn import events as e
from voicepipe.values import replace

GREETING_WAIT_S: Final = 1.0
"""How long the greeting waits for the client's settings or audio: a client sets its voice and formats first."""


class Greeter:
    """Starts the agent's first words, once. The hook at the beginning of a session may set variables of the text."""

    def __init__(
        self,
        greeting: Greeting | None,
        recorded: RecordedCall | None,
        post: Callable[[e.Event], None],
        *,
        waits_for_hook: bool,
    ) -> None:
        """`greeting` None: the user speaks first. `waits_for_hook`: the hook `session_started` has not returned."""
        self.greeting = greeting
        """What the agent has yet to say."""

        self._recorded = recorded
        self._post, self._waits_for_hook, self._is_due = post, waits_for_hook, False

    @property
    def awaits_user(self) -> bool:
        """Return whether first words wait for the client's settings or audio."""
        return self.greeting is not None or (self._recorded is not None and self._recorded.awaits_announcement)

    def release(self) -> bool:
        """Wait for the hook no more; return whether the first words are due."""
        self._waits_for_hook = False
        return self._is_due

    def greet(self, config: SessionConfig) -> None:
        """Have the agent speak first, unless it has, or as soon as the hook returns."""
        self._is_due = True
        if self._waits_for_hook:
            return
        if self._recorded is not None and self._recorded.awaits_announcement:
            self._recorded.announce()
            return
        greeting, self.greeting = self.greeting, None
        if greeting is not None and config.kind == "realtime":
            text = filled(greeting.text, dict(config.variables))
            self._post(e.GreetingDue(text, greeting.interruptible, greeting.at_any_time))

    def announce(self, config: SessionConfig) -> None:
        """Have the agent say that the call is recorded, whatever was said before, if that is due."""
        if self._recorded is not None and (words := self._recorded.due_announcement()):
            words = filled(words, dict(config.variables))
            self._post(e.GreetingDue(words, interruptible=False, at_any_time=True))

    def announced(self, turn: int) -> None:
        """Record the turn of the announcement: the greeting follows it only where that was the first turn."""
        if self.greeting is not None:
            self.greeting = replace(self.greeting, at_any_time=True) if turn == 1 else None
