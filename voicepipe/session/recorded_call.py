"""The recording of a session's call: it begins once the user has heard that the call is recorded."""

from __future__ import annotations

from typing import Final

from voicepipe.clock import SessionClock
from voicepipe.session.context import CallRecording
from voicepipe.turn.record.values import TurnRecord

MAX_TRIES: Final = 3
"""How often the announcement is tried; a call whose TTS fails is not recorded."""


def recorded_call(recording: CallRecording | None, clock: SessionClock, *, speaks: bool) -> RecordedCall | None:
    """Return what records a session's call; None: nothing does."""
    return None if recording is None else RecordedCall(recording, clock, speaks=speaks)


class RecordedCall:
    """Begins and ends a call's recording."""

    def __init__(self, recording: CallRecording, clock: SessionClock, *, speaks: bool) -> None:
        """`speaks`: the session has an agent that can announce it."""
        self._clock, self._speaks = clock, speaks
        self.recorder, self.announcement = recording.open_recorder(), recording.announcement
        self.has_begun = False
        """Whether anything is recorded."""

        self._n_tries = 0
        self._is_requested = self._is_due = False

    @property
    def awaits_announcement(self) -> bool:
        """Return whether the user has yet to hear that the call is recorded."""
        return bool(self.announcement) and self._speaks and self._n_tries < MAX_TRIES

    def start(self) -> None:
        """Begin the recording, unless it has to be announced."""
        if not self.announcement:
            self._begin()

    def announce(self) -> None:
        """Have the recording announced as soon as neither side speaks; a second call does nothing."""
        self._is_due = self._is_due or not self._is_requested
        self._is_requested = True

    def words_due(self) -> str:
        """Return the announcement if it is to be said now, once; otherwise nothing."""
        if not (self._is_due and self.awaits_announcement):
            return ""
        self._is_due = False
        return self.announcement

    def begin_if_announced(self, record: TurnRecord) -> bool:
        """Begin the recording if this turn has announced it; return whether it has. Otherwise it may be due again."""
        if record.outcome is None or not self.awaits_announcement:
            return False
        self._is_due = True
        if record.cause != "greeting":
            return False
        self._n_tries += record.outcome != "abandoned"  # a response that the client requested went first
        if record.outcome != "completed" or not record.spoken_ms:
            return False
        self.announcement = ""
        self._begin()
        return True

    def _begin(self) -> None:
        self.has_begun = True
        self.recorder.begin(self._clock.now_ms())

    def end(self) -> None:
        """End the recording."""
        self.recorder.close(self._clock.now_ms())
