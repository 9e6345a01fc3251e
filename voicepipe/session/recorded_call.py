"""Record a session's call, once the agent has announced the recording."""

from __future__ import annotations

from typing import Final

from voicepipe.clock import SessionClock
from voicepipe.session.context import CallRecording
from voicepipe.turn.record.values import TurnRecord

MAX_TRIES: Final = 3
"""Maximum number of attempts of the announcement: a call whose TTS fails is not recorded."""


def recorded_call(recording: CallRecording | None, clock: SessionClock, *, speaks: bool) -> RecordedCall | None:
    """Return the recording of a session's call; None: the call is not recorded."""
    return None if recording is None else RecordedCall(recording, clock, speaks=speaks)


class RecordedCall:
    """Begins and ends a call's recording."""

    def __init__(self, recording: CallRecording, clock: SessionClock, *, speaks: bool) -> None:
        """`speaks`: the session has an agent that can announce the recording."""
        self._clock, self._speaks = clock, speaks
        self.recorder, self.announcement = recording.open_recorder(), recording.announcement
        self.has_begun = False
        """Whether the recording has begun."""

        self._n_announcements = 0
        self._is_requested = self._is_announcement_due = False

    @property
    def awaits_announcement(self) -> bool:
        """Return whether the recording must still be announced."""
        return bool(self.announcement) and self._speaks and self._n_announcements < MAX_TRIES

    def start(self) -> None:
        """Begin the recording, unless it has to be announced."""
        if not self.announcement:
            self._begin()

    def announce(self) -> None:
        """Have the recording announced as soon as neither side speaks; a second call does nothing."""
        self._is_announcement_due = self._is_announcement_due or not self._is_requested
        self._is_requested = True

    def due_announcement(self) -> str:
        """Return the announcement if it is due now, once; otherwise an empty text."""
        if not (self._is_announcement_due and self.awaits_announcement):
            return ""
        self._is_announcement_due = False
        return self.announcement

    def begin_if_announced(self, record: TurnRecord) -> bool:
        """Begin the recording if this turn has announced it, and return True. Otherwise the announcement is due
        again."""
        if record.outcome is None or not self.awaits_announcement:
            return False
        self._is_announcement_due = True
        if record.cause != "greeting":
            return False
        # Abandoned: a response that the client requested came first.
        self._n_announcements += record.outcome != "abandoned"
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
