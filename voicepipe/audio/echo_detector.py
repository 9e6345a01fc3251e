"""Echo detection: does the microphone pick up the agent's own audio, played by the loudspeaker?

Words come too late, and an STT turns a weak echo into arbitrary text. So the two signals are compared: how the
levels of a few bands rise and fall. A room and a codec preserve that. The comparison covers every delay that the way
to the client and back may take.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from voicepipe.audio.samples import FULL_SCALE, Samples, silence

HOP_MS: Final = 10

_EDGES_HZ: Final = (200, 400, 700, 1_100, 1_700, 2_500, 3_600)
"""6 bands, wider towards high frequencies as in human hearing, within the telephone band."""

_BIN_HZ: Final = 1_000 // HOP_MS

_SPAN_DB: Final = 30.0
"""A level more than this below the loudest of its band is lost in the room's noise and carries no information."""

_SMOOTH_HOPS: Final = 3
"""Levels are smoothed over 30 ms, since delays are searched in steps of 1 hop and lie between two steps."""

MAX_DELAY_MS: Final = 1_500
"""From sending audio until its echo arrives: the network twice, and the client's playback buffer."""

SPAN_MS: Final = 1_000
"""The best length to compare: 4 or 5 syllables. Shorter audio resembles any other speech at some delay."""

_ALIKE: Final = 0.7
"""The correlation from which the audio is the same: half of the variance explained. A second of echo, 20 dB down and in
room noise, has 0.8 and more. A second of another person's speech, at its best delay, usually has 0.4 and seldom 0.6."""

_WEAK: Final = 0.25
_CLEARLY_ALIKE: Final = 0.85
_STRONG: Final = 2.0
"""An echo is weaker than what was sent, usually by 6 dB and more. Users are near and as loud as the agent or louder. So
audio that is not that weak needs a higher correlation, and audio 3 dB louder is not an echo."""

_OVER: Final = 10.0**0.6
"""Audio 6 dB louder than the echo can be is not the echo."""

_BESIDE: Final = 10.0**-0.6
"""Audio 6 dB weaker than its loudest part is not speech, but the room between words."""

_TAIL_HOPS: Final = 10
_SLIP_HOPS: Final = 2
"""A room's reverberation lasts some 100 ms, and the delay is known to 1 or 2 hops."""

_LOUD: Final = 10.0**-1.5
"""The strength of the echo is measured where the agent is within 15 dB of its loudest."""

Profile = npt.NDArray[np.float32]
"""Power of each hop in each band, (n_hops, n_bands); full scale is about 0 dB."""


_FIRST_BIN: Final = _EDGES_HZ[0] // _BIN_HZ
_N_BINS: Final = _EDGES_HZ[-1] // _BIN_HZ - _FIRST_BIN
"""The bins that lie in a band: 34 of the 41 to 121 of a whole spectrum."""

_PRODUCT_HOPS: Final = 20
"""Hops of one matrix product. The library starts threads for larger ones, and takes several times as long."""


@lru_cache(maxsize=8)
def _waves(n_hop: int) -> npt.NDArray[np.float32]:
    """Return the cosines of the bins, then their sines, under a window that scales full scale to 1, (n_hop, 2 *
    n_bins)."""
    window = np.hanning(n_hop) / (n_hop * FULL_SCALE)
    angles = 2 * np.pi * np.outer(np.arange(n_hop), np.arange(_FIRST_BIN, _FIRST_BIN + _N_BINS)) / n_hop
    return (np.hstack((np.cos(angles), np.sin(angles))) * window[:, None]).astype(np.float32)


def _bands() -> npt.NDArray[np.float32]:
    """Return which band each cosine and each sine belongs to, 0 or 1, (2 * n_bins, n_bands)."""
    bins = np.arange(_FIRST_BIN, _FIRST_BIN + _N_BINS)[:, None]
    lows, highs = (np.array(edges) // _BIN_HZ for edges in (_EDGES_HZ[:-1], _EDGES_HZ[1:]))
    return np.vstack(2 * [(bins >= lows) & (bins < highs)]).astype(np.float32)


_BANDS: Final = _bands()


def profile(samples: Samples, rate_hz: int) -> Profile:
    """Return the profile of `samples`, int16, (n_samples,) at 8, 16 or 24 kHz; a remainder shorter than 1 hop is
    dropped.
    """
    n_hop = rate_hz * HOP_MS // 1_000
    n = len(samples) // n_hop
    hops, waves = samples[: n * n_hop].reshape(n, n_hop).astype(np.float32), _waves(n_hop)
    if n <= _PRODUCT_HOPS:
        sums = hops @ waves
    else:
        sums = np.concatenate([hops[at : at + _PRODUCT_HOPS] @ waves for at in range(0, n, _PRODUCT_HOPS)])
    np.multiply(sums, sums, out=sums)
    return np.asarray(sums @ _BANDS, dtype=np.float32)


class EchoDetector:
    """Keeps the agent's recent audio and the time when it was sent."""

    def __init__(self) -> None:
        # (instant at which it plays, profile). Bounded: audio whose echo can no longer arrive is dropped.
        self._played: deque[tuple[int, Profile]] = deque()
        self._rest = silence(0)
        self._ends_ms = 0
        self._path: tuple[int, float] | None = None
        """The echo's delay in hops, and its power as a share of what was sent; None: no echo so far."""

    @property
    def known(self) -> bool:
        """Return whether an echo was detected before."""
        return self._path is not None

    def plays(self, samples: Samples, rate_hz: int, now_ms: int) -> None:
        """Add sent audio, int16, (n_samples,): it plays after the audio sent before."""
        whole = np.concatenate((self._rest, samples))
        played = profile(whole, rate_hz)
        self._rest = whole[len(played) * rate_hz * HOP_MS // 1_000 :]
        begins_ms = max(self._ends_ms, now_ms)
        self._ends_ms = begins_ms + len(played) * HOP_MS
        if len(played):
            self._played.append((begins_ms, played))
        while self._played and self._played[0][0] + len(self._played[0][1]) * HOP_MS < now_ms - 2 * MAX_DELAY_MS:
            self._played.popleft()

    def stops(self, now_ms: int) -> None:
        """Drop the audio that would have played after this instant."""
        self._rest = self._rest[:0]
        self._ends_ms = min(self._ends_ms, now_ms)
        while self._played and self._played[-1][0] >= now_ms:
            self._played.pop()

    def shift(self, late_ms: int) -> None:
        """Expect every echo `late_ms` later: the user's audio was held back for that time."""
        self._ends_ms += late_ms
        self._played = deque((at_ms + late_ms, played) for at_ms, played in self._played)

    def has(self, samples: Samples, rate_hz: int, ends_ms: int) -> bool:
        """Return whether `samples`, int16, (n_samples,), received until `ends_ms`, are the agent's audio.

        If so, the delay and the strength of the echo are stored.
        """
        received = profile(samples, rate_hz)
        alike, late = self._compare(received, ends_ms)
        if alike < _ALIKE:
            return False
        levels, played = received.sum(axis=1), self._sent_before(ends_ms, len(received), late).sum(axis=1)
        loud = played >= _LOUD * played.max()
        share = float(np.quantile(levels[loud] / played[loud], 0.8))
        if share > _STRONG or (share > _WEAK and alike < _CLEARLY_ALIKE):
            return False
        self._path = (late, share)
        return True

    def own_ms(self, samples: Samples, rate_hz: int, ends_ms: int) -> int:
        """Return how much of such speech is not the agent's, in ms; all of it when no echo was detected before."""
        received = profile(samples, rate_hz).sum(axis=1)
        if self._path is None or not len(received):
            return len(samples) * 1_000 // rate_hz
        late, share = self._path
        reach = _TAIL_HOPS + _SLIP_HOPS
        played = self._sent_before(ends_ms + _SLIP_HOPS * HOP_MS, len(received) + reach + _SLIP_HOPS, late).sum(axis=1)
        around = np.lib.stride_tricks.sliding_window_view(played, reach + _SLIP_HOPS + 1)[-len(received) :].max(axis=1)
        recent = self._sent_before(ends_ms, SPAN_MS // HOP_MS, late).sum(axis=1).max()
        own = (received > _OVER * share * around) & (received > _BESIDE * share * recent)
        return int(np.count_nonzero(own)) * HOP_MS

    def likeness(self, samples: Samples, rate_hz: int, ends_ms: int) -> float:
        """Return the highest correlation with the agent's audio, up to 1; 0 for silence, or when there is nothing to
        compare.
        """
        return self._compare(profile(samples, rate_hz), ends_ms)[0]

    def _compare(self, received: Profile, ends_ms: int) -> tuple[float, int]:
        """Return the highest correlation, and the delay in hops where it occurs."""
        n = len(received)
        if not n or not self._played:
            return 0.0, 0
        longest = MAX_DELAY_MS // HOP_MS
        played = self._sent_before(ends_ms, n + longest, 0)
        received_shape = _shape(_levels(received))
        played_shapes = _shape(np.lib.stride_tricks.sliding_window_view(_levels(played), n, axis=0).transpose(0, 2, 1))
        alike = played_shapes.reshape(len(played_shapes), -1) @ received_shape.reshape(-1)
        best = int(np.argmax(alike))
        return float(alike[best]), longest - best

    def _sent_before(self, ends_ms: int, n_hops: int, late: int) -> Profile:
        """Return the profile of the agent's audio in the `n_hops` before an instant, shifted back by the delay."""
        return self._between(ends_ms - (n_hops + late) * HOP_MS, n_hops)

    def _between(self, begins_ms: int, n_hops: int) -> Profile:
        """Return the profile of the agent's audio from an instant on; silence where the agent sent none."""
        played = np.zeros((n_hops, len(_EDGES_HZ) - 1), dtype=np.float32)
        for at_ms, piece in self._played:
            first = (at_ms - begins_ms) // HOP_MS
            if first >= n_hops:
                break  # the rest plays later: minutes of it, where a client takes audio faster than it plays
            low, high = max(0, first), min(n_hops, first + len(piece))
            if low < high:
                played[low:high] = piece[low - first : high - first]
        return played


def _levels(power: Profile) -> Profile:
    """Return the levels in dB, smoothed over a few hops, (n_hops, n_bands)."""
    kernel = np.ones(_SMOOTH_HOPS) / _SMOOTH_HOPS
    smooth = np.stack([np.convolve(band, kernel, mode="same") for band in power.T], axis=1)
    level = 10 * np.log10(smooth + 1e-12)
    return np.asarray(np.maximum(level, level.max(axis=0) - _SPAN_DB), dtype=np.float32)


def _shape(level: Profile) -> Profile:
    """Return the levels minus each band's mean, scaled to length 1 over the last two axes."""
    centred = level - level.mean(axis=-2, keepdims=True)
    length = np.sqrt((centred**2).sum(axis=(-2, -1), keepdims=True))
    return np.asarray(centred / np.maximum(length, 1e-6), dtype=np.float32)
