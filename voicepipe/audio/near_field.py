"""Follow how loud the user is, and decide whether the current audio comes from as near.

The VAD model detects every voice in the room. The user's is the loudest, usually by 10 dB and more: the user is
close to the microphone, and each doubling of the distance takes 6 dB. So the user's own level is followed, and audio
far below it is another person's speech, or music.
"""

from __future__ import annotations

from collections import deque
from math import log10
from typing import Final

_FRAME_MS: Final = 20

_SPAN_FRAMES: Final = 15
"""300 ms, 1.5 syllables: weak consonants of near speech are averaged with its vowels."""

_SHORT_FRAMES: Final = 5
_BLOCK_FRAMES: Final = 25
_BLOCKS: Final = 6
"""The room's level is that of the quietest 100 ms of the last 3 s, kept as minima of half seconds."""

_MIN_FAR_DB: Final = 10.0
"""In a loud room, audio further below the user than this is far. Of the 300 ms levels of near speech 95 % lie within 12
dB of its loudest. The levels of a crowd that is 10 dB weaker on average lie 14 to 18 dB below."""

_FAR_SHARE: Final = 0.6
"""In a quiet room users may mumble: far is below this share of the way, in dB, from the user's level to the room's.
Then there is no crowd to separate from the user."""

_DECAY_DB_PER_S: Final = 1.0
"""A user who turns away, or a handset that changes hands, counts as near again after a few seconds."""

_DECAY_DB: Final = _DECAY_DB_PER_S * _FRAME_MS / 1_000

_ABOVE_NOISE_SHARE: Final = 0.3
_MIN_ABOVE_NOISE_DB: Final = 9.0
"""From this far above the room's level towards the user's, the audio is more than room noise. The same as where speech
ends (`levels`)."""

_CREST_DB: Final = 18.0
"""Peaks of room noise in 20 ms lie 10 to 14 dB above its level, and 2 to 3 dB more above its quietest 100 ms."""

_SYLLABLE_DB: Final = 6.0
"""The peaks of syllables lie above the user's level, those of weak ones little below it, and the ends of words far
below."""

_MIN_LEVEL_DB: Final = 17.5
"""-73 dBFS, quieter than any room: a client that mutes by sending zeros must not make every breath count as speech."""


def _db(power: float) -> float:
    """Return the mean square of int16 samples in dB over one unit; full scale is 90."""
    level_db = 10 * log10(power + 1) if power > 0 else 0.0
    return level_db if level_db > _MIN_LEVEL_DB else _MIN_LEVEL_DB


def _peak(noise_db: float) -> float:
    """Return the amplitude of the peaks of noise at this level."""
    return float(10.0 ** ((noise_db + _CREST_DB) / 20))


class NearField:
    """Follows one user's level, and the room's, frame by frame."""

    def __init__(self) -> None:
        # Bounded by their maxlen: the oldest is dropped.
        self._powers: deque[float] = deque(maxlen=_SPAN_FRAMES)
        self._span_sum = self._short_sum = 0.0
        self._quietest: deque[float] = deque(maxlen=_BLOCKS)
        self._noise_power, self._noise_db = -1.0, _MIN_LEVEL_DB
        self._noise_peak = _peak(_MIN_LEVEL_DB)
        self._in_block = _BLOCK_FRAMES
        self._user_db = _MIN_LEVEL_DB
        self._span_db = _MIN_LEVEL_DB

    def push(self, power: float, *, speech: bool) -> None:
        """Process the next 20 ms, by its mean square. `speech`: the VAD model detected speech in the audio just
        before.
        """
        if not self._powers:  # assume the same level before: no audio is not a quiet room
            self._powers.extend([power] * _SPAN_FRAMES)
            self._span_sum, self._short_sum = power * _SPAN_FRAMES, power * _SHORT_FRAMES
        # Running sums; rounding errors left by a loud past are far below the quantisation step.
        self._span_sum += power - self._powers[0]
        self._short_sum += power - self._powers[-_SHORT_FRAMES]
        self._powers.append(power)
        self._span_db = _db(self._span_sum / _SPAN_FRAMES)
        self._update_noise(self._short_sum / _SHORT_FRAMES)
        self._user_db -= _DECAY_DB
        if speech:
            self._user_db = max(self._user_db, self._span_db)

    @property
    def near(self) -> bool:
        """Return whether the last 300 ms are as loud as the user may be."""
        below_db = _FAR_SHARE * (self._user_db - self._noise_db)
        return self._span_db >= self._user_db - max(_MIN_FAR_DB, below_db)

    @property
    def exceeds_noise(self) -> bool:
        """Return whether the newest 20 ms are more than room noise."""
        return self.rises(1.0)

    def rises(self, share: float) -> bool:
        """Return whether the newest 20 ms are above the room's level by this share, in dB, of what
        `exceeds_noise` requires."""
        rise_db = max(_MIN_ABOVE_NOISE_DB, _ABOVE_NOISE_SHARE * (self._user_db - self._noise_db))
        return _db(self._powers[-1]) >= self._noise_db + share * rise_db

    @property
    def noise_peak(self) -> float:
        """Return the amplitude, in units of int16, that the room's noise does not exceed."""
        return self._noise_peak

    @property
    def user_peak(self) -> float:
        """Return the amplitude, in units of int16, that the user's speech exceeds in 20 ms of most syllables, and the
        room's noise does not."""
        return max(float(10.0 ** ((self._user_db - _SYLLABLE_DB) / 20)), self._noise_peak)

    def _update_noise(self, power: float) -> None:
        if self._in_block == _BLOCK_FRAMES:
            self._quietest.append(power)
            self._in_block = 0
        self._in_block += 1
        if power < self._quietest[-1]:
            self._quietest[-1] = power
        noise_power = min(self._quietest)
        if noise_power != self._noise_power:
            self._noise_power, self._noise_db = noise_power, _db(noise_power)
            self._noise_peak = _peak(self._noise_db)
