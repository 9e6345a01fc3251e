"""Place the audio of both sides of a call on one time line. Positions are samples at `RATE_HZ` since the start of the
recording."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from voicepipe.audio.resample import Resampler
from voicepipe.audio.samples import Samples, rms_dbfs, silence

RATE_HZ: Final = 24_000
"""The rate of recordings: that of most TTS and clients, so that most audio is not resampled."""

_MS: Final = RATE_HZ // 1_000

LOOK_AHEAD_MS: Final = 1_000
"""Delay of the user's audio: the audio after it shows whether a frame is late or follows a pause."""

MIN_DRIFT_MS: Final = 10
"""A smaller deviation of the client's clock is not corrected."""

MAX_DRIFT_MS: Final = 100
"""A larger gap is a pause of the client (muted, offline), not drift: it is inserted at once, not in a pause of
speech."""

MAX_AHEAD_MS: Final = 1_000
"""Audio that is further ahead was sent faster than real time, as from a file: nothing of it is removed."""

QUIET_DBFS: Final = -50.0
"""Below this level a few ms can be removed or inserted inaudibly, as in `audio.samples.first_audible`."""


class PlacedAudio(Struct, frozen=True):
    """Audio at a position."""

    start: int
    samples: Samples

    @property
    def end(self) -> int:
        """Return the position behind the audio."""
        return self.start + len(self.samples)


class UserTrack:
    """Places the user's audio by the time at which it was received.

    A network delivers in bursts: after a late frame there are frames that are not late. So the smallest delay among the
    frames of the following second decides the position of a frame. If all of them are late, there was a pause.
    """

    def __init__(self) -> None:
        self._rate_hz, self._resampler = RATE_HZ, Resampler(RATE_HZ, RATE_HZ)
        # (delay, position of the end, samples). Bounded: frames older than `LOOK_AHEAD_MS` are placed.
        self._pending: deque[tuple[int, int, Samples]] = deque()
        self._n_received = 0
        """Samples that were received."""

        self._n_placed = 0
        """Samples that were placed."""

        self._next_position: int | None = None
        """The position behind the placed audio; None: nothing is placed."""

    def push(self, samples: Samples, rate_hz: int, ended: int) -> Iterator[PlacedAudio]:
        """Add samples, and yield the audio that can be placed. `ended`: the position of the samples' end."""
        if rate_hz != self._rate_hz:
            self._rate_hz, self._resampler = rate_hz, Resampler(rate_hz, RATE_HZ)
        resampled = self._resampler.push(samples)
        if not len(resampled):
            return
        self._n_received += len(resampled)
        self._pending.append((ended - self._n_received, ended, resampled))
        while ended - self._pending[0][1] >= LOOK_AHEAD_MS * _MS:
            yield from self._place()

    def flush(self) -> Iterator[PlacedAudio]:
        """Yield the remaining audio: the call is over."""
        while self._pending:
            yield from self._place()

    def _place(self) -> Iterator[PlacedAudio]:
        due = self._n_placed + min(each[0] for each in self._pending)
        samples = self._pending.popleft()[2]
        self._n_placed += len(samples)
        start = due if self._next_position is None else self._next_position
        shift = due - start
        if -MAX_AHEAD_MS * _MS < start < 0:  # the frame began before the recording
            samples = samples[-start:]
        if shift > MAX_DRIFT_MS * _MS or (shift > MIN_DRIFT_MS * _MS and _is_quiet(samples)):
            start += shift
        elif -MAX_AHEAD_MS * _MS < shift < -MIN_DRIFT_MS * _MS and _is_quiet(samples):
            samples = samples[-shift:]
        start = max(0, start)
        self._next_position = start + len(samples)
        if len(samples):
            yield PlacedAudio(start, samples)


def _is_quiet(samples: Samples) -> bool:
    return rms_dbfs(samples) < QUIET_DBFS


class AgentTimeline:
    """Places the agent's audio where the client plays it: at once, or behind the preceding audio."""

    def __init__(self) -> None:
        self._rate_hz, self._resampler = RATE_HZ, Resampler(RATE_HZ, RATE_HZ)
        self._next_position = 0

    def push(self, samples: Samples, rate_hz: int, now: int) -> PlacedAudio:
        """Return audio that is sent at the position `now`, at the position where it plays."""
        if rate_hz != self._rate_hz:
            self._rate_hz, self._resampler = rate_hz, Resampler(rate_hz, RATE_HZ)
        placed = PlacedAudio(max(self._next_position, now, 0), self._resampler.push(samples))
        self._next_position = placed.end
        return placed

    def stop(self, now: int) -> PlacedAudio:
        """Return silence that replaces the audio after the position `now`."""
        unplayed, self._next_position = max(0, self._next_position - max(0, now)), min(self._next_position, max(0, now))
        return PlacedAudio(self._next_position, silence(unplayed))


def position(since_ms: int) -> int:
    """Return the position of an instant, in ms since the beginning of the recording."""
    return since_ms * _MS
