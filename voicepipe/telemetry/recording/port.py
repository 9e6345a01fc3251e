"""The port for the audio of a call."""

from __future__ import annotations

from typing import Protocol

from voicepipe.audio.samples import Samples


class CallRecorder(Protocol):
    """Records both sides of one call. Every method returns at once, and none raises. Times are session times, in ms.

    Nothing is recorded before `begin`.
    """

    def begin(self, now_ms: int) -> None:
        """Record from this instant on; a second call does nothing."""
        ...

    def user_audio(self, samples: Samples, rate_hz: int, ended_ms: int) -> None:
        """Record the user's audio, int16, (n_samples,); `ended_ms`: when the last sample was received."""
        ...

    def agent_audio(self, samples: Samples, rate_hz: int, now_ms: int) -> None:
        """Record audio that is sent to the client now, int16, (n_samples,); it plays behind the preceding audio."""
        ...

    def agent_stops(self, now_ms: int) -> None:
        """Record that the client plays none of the remaining audio from this instant on."""
        ...

    def close(self, now_ms: int) -> None:
        """End the recording: the call is over."""
        ...
