"""Place the audio of both sides of a call on one time line. Positions are samples at `RATE_HZ` since its beginning."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from voicepipe.audio.resample import Resampler
from voicepipe.audio.samples import Samples, rms_dbfs, silence

RATE_HZ: Final = 24_000
"""The rate of recordings: the one in which TTS and most clients speak, so that most audio is not resampled."""

_MS: Final = RATE_HZ // 1_000

LOOK_AHEAD_MS: Final = 1_000
"""The user's audio waits so long for what comes after it, which shows whether it came late or follows a pause."""

NEAR_MS: Final = 10
"""A smaller deviation of the client's clock from ours is left as it is."""

FAR_MS: Final = 100
"""A larger gap is a pause of the client (muted, offline), and no drift: it is put in at once, not at a quiet place."""

AHEAD_MS: Final = 1_000
"""Audio that is so far ahead was sent faster than it was spoken, as a file is: nothing of it is left out."""

QUIET_DBFS: Final = -50.0
"""Below this level a few ms can be left out or put in inaudibly. As `audio.samples.first_audible` has it."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Audio at its place."""

    start: int
    samples: Samples

    @property
    def end(self) -> int:
        """Return the position after it."""
        return self.start + len(self.samples)


class UserTrack:
    """Places the user's audio by when it came.

    A network delivers in bursts: a frame that is late is followed by others that are not. So a frame's place is decided
    by the least delay among the frames of the second after it. If all of them are late, there was a pause.
    """

    def __init__(self) -> None:
        self._rate_hz, self._resampler = RATE_HZ, Resampler(RATE_HZ, RATE_HZ)
        # (delay, when it came, samples). Bounded: what is older than `LOOK_AHEAD_MS` is placed.
        self._held: deque[tuple[int, int, Samples]] = deque()
        self._n_stream = 0
        """Samples that came."""

        self._n_taken = 0
        """Samples that have left `_held`."""

        self._next: int | None = None
        """The position behind what is placed; None: nothing is."""

    def push(self, samples: Samples, rate_hz: int, ended: int) -> Iterator[Placed]:
        """Yield what can be placed now that these samples have come; `ended` is the position of their end."""
        if rate_hz != self._rate_hz:
            self._rate_hz, self._resampler = rate_hz, Resampler(rate_hz, RATE_HZ)
        resampled = self._resampler.push(samples)
        if not len(resampled):
            return
        self._n_stream += len(resampled)
        self._held.append((ended - self._n_stream, ended, resampled))
        while ended - self._held[0][1] >= LOOK_AHEAD_MS * _MS:
            yield from self._place()

    def flush(self) -> Iterator[Placed]:
        """Yield the rest: the call is over."""
        while self._held:
            yield from self._place()

    def _place(self) -> Iterator[Placed]:
        due = self._n_taken + min(each[0] for each in self._held)
        samples = self._held.popleft()[2]
        self._n_taken += len(samples)
        start = due if self._next is None else self._next
        shift = due - start
        if -AHEAD_MS * _MS < start < 0:  # the frame began before the recording
            samples = samples[-start:]
        if shift > FAR_MS * _MS or (shift > NEAR_MS * _MS and _is_quiet(samples)):
            start += shift
        elif -AHEAD_MS * _MS < shift < -NEAR_MS * _MS and _is_quiet(samples):
            samples = samples[-shift:]
        start = max(0, start)
        self._next = start + len(samples)
        if len(samples):
            yield Placed(start, samples)


def _is_quiet(samples: Samples) -> bool:
    return rms_dbfs(samples) < QUIET_DBFS


class AgentTrack:
    """Places the agent's audio by when the client plays it: at once, or after the audio before."""

    def __init__(self) -> None:
        self._rate_hz, self._resampler = RATE_HZ, Resampler(RATE_HZ, RATE_HZ)
        self._next = 0

    def push(self, samples: Samples, rate_hz: int, now: int) -> Placed:
        """Return audio that is sent at the position `now`, in its place."""
        if rate_hz != self._rate_hz:
            self._rate_hz, self._resampler = rate_hz, Resampler(rate_hz, RATE_HZ)
        placed = Placed(max(self._next, now, 0), self._resampler.push(samples))
        self._next = placed.end
        return placed

    def stop(self, now: int) -> Placed:
        """Return the silence that replaces what would have played after the position `now`."""
        unplayed, self._next = max(0, self._next - max(0, now)), min(self._next, max(0, now))
        return Placed(self._next, silence(unplayed))


def position(since_ms: int) -> int:
    """Return the position of an instant, in ms since the beginning of the recording."""
    return since_ms * _MS
