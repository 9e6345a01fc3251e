"""The timers of a session: every state that can last has one, so that nothing waits forever."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from voicepipe.turn.settings import Deadlines


class Due(IntEnum):
    """The kinds of timers. When several run out at the same time, the first kind here is handled first."""

    DOUBT = 1
    """Without a pause in the VAD by then, the STT was wrong about the end of speech."""

    FILLER = 2
    """The answer is late: a filler is said."""

    FINAL_TEXT = 3
    """The utterance's interim text is used for now."""

    FIRST_OUTPUT = 4
    """The reply has nothing to say yet, and fails."""

    HOLDING = 5
    """The pause ends the turn, although the VAD reports no silence."""

    IDLE = 6
    """Both sides have been silent for long: the agent speaks."""

    IRREVOCABLE = 7
    """The end of the turn can no longer be taken back: further speech is a new turn."""

    OVERLAP = 8
    """Speech over the agent's is dropped: it neither ends nor becomes an interruption."""

    PLAYBACK = 9
    """A reply has been played."""

    PROGRESS = 10
    """The reply has not advanced, and fails."""

    REPLY = 11
    """The reply is not complete, and fails."""

    SHORTEN = 12
    """The first clause is cut at a word."""

    TRANSCRIPT = 13
    """The utterance's transcript is lost."""

    UTTERANCE = 14
    """The user has spoken for the longest time allowed: the turn ends."""

    VERDICT = 15
    """The agent's volume is restored: nothing has shown that the user interrupts."""

    WATCHDOG = 16
    """Work is ended that no other timer would end."""


class Timer(NamedTuple):
    """One timer: what is due, and of which utterance (the texts) or which turn (the reply)."""

    due: Due
    number: int = 0


NEVER_MS: Final = 1 << 62
"""Later than any session time."""

_BESIDE_WORK: Final = frozenset((Timer(Due.IDLE), Timer(Due.WATCHDOG)))
"""The timers that end no work under way."""


class Timers:
    """The times of all timers. Pure: the class issues no command itself."""

    def __init__(self, limits: Deadlines) -> None:
        self._limits = limits
        self.due: dict[Timer, int] = {}
        """Timer -> session ms."""

        self.lost_ms: int | None = None
        """The time at which the connection was lost: time stands still for all timers until it is back."""

        self.changed = False
        """A timer was set or cleared since the latest call of `wake_ms`."""

        self.nearest_ms = NEVER_MS
        """When the first of the timers runs out, as of the latest call of `wake_ms`."""

        self._armed_ms: int | None = None

    def set(self, timer: Timer, at_ms: int) -> None:
        """Set a timer, or move it."""
        self.due[timer] = at_ms
        self.changed = True

    def clear(self, *timers: Timer) -> bool:
        """Clear these timers; return whether any of them was set."""
        found = [timer for timer in timers if self.due.pop(timer, None) is not None]
        self.changed = self.changed or bool(found)
        return bool(found)

    def clear_all(self) -> None:
        """Clear every timer: the session is over."""
        self.due.clear()
        self.changed = True

    @property
    def end_work(self) -> bool:
        """Return whether a timer is set that ends work under way."""
        return bool(self.due.keys() - _BESIDE_WORK)

    @property
    def unguarded(self) -> bool:
        """Return whether no timer would end work under way, or only the watchdog's."""
        return Timer(Due.WATCHDOG) in self.due or not self.end_work

    # --- a reply ------------------------------------------------------------------------------

    def await_output(self, turn: int, now_ms: int) -> None:
        """Start the first-output timeout and the timeout of the whole reply."""
        self.set(Timer(Due.FIRST_OUTPUT, turn), now_ms + self._limits.first_output_ms)
        self.set(Timer(Due.REPLY, turn), now_ms + self._limits.reply_ms)

    def output_came(self, turn: int) -> None:
        """Stop the first-output timeout: there is output."""
        self.clear(Timer(Due.FIRST_OUTPUT, turn))

    def await_progress(self, turn: int, now_ms: int) -> None:
        """Restart the progress timeout: the reply has advanced."""
        self.set(Timer(Due.PROGRESS, turn), now_ms + self._limits.progress_ms)

    def await_nothing(self, turn: int) -> None:
        """Stop all timeouts of this reply."""
        self.clear(Timer(Due.FIRST_OUTPUT, turn), Timer(Due.PROGRESS, turn), Timer(Due.REPLY, turn))

    # --- time ---------------------------------------------------------------------------------

    def lose_connection(self, now_ms: int) -> None:
        """Stop time for all timers."""
        if self.lost_ms is None:
            self.lost_ms = now_ms

    def resume(self, now_ms: int) -> None:
        """Resume after a reconnect: move every timer by the time that the connection was down."""
        away_ms = now_ms - (now_ms if self.lost_ms is None else self.lost_ms)
        self.due = {timer: at_ms + away_ms for timer, at_ms in self.due.items()}
        self.lost_ms = self._armed_ms = None
        self.changed = True

    def wake_ms(self) -> int | None:
        """Return when to wake up for the nearest timer; None if a wake-up is set that comes no later."""
        self.changed = False
        self.nearest_ms = min(self.due.values(), default=NEVER_MS)
        if not self.due or self.lost_ms is not None:
            return None
        if self._armed_ms is not None and self.nearest_ms >= self._armed_ms:
            return None
        self._armed_ms = self.nearest_ms
        return self.nearest_ms

    def passed(self, now_ms: int) -> list[Timer]:
        """Handle a wake-up: clear and return the timers that have run out, nearest first. None while the connection is
        down.
        """
        self._armed_ms, self.changed = None, True
        if self.lost_ms is not None:
            return []
        out = sorted((at_ms, timer) for timer, at_ms in self.due.items() if at_ms <= now_ms)
        for _, timer in out:
            del self.due[timer]
        return [timer for _, timer in out]
