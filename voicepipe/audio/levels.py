"""Find exactly where speech began and ended, from the levels of the samples, once the VAD model has found about when.

The VAD model's windows are 32 ms long and its result trails the audio by 60 to 180 ms; a turn's t0 must be more
precise than that. So the level of every 10 ms is compared with the utterance's own noise floor and peak. Two levels are
kept: the plain one, and a pre-emphasised one that raises the weak high consonants (s, f, t) at the end of many
words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from voicepipe.audio.compiled import IS_COMPILED, kernels
from voicepipe.audio.samples import Samples

HOP_SAMPLES: Final = 160
"""10 ms at 16 kHz: the resolution of every result here."""

LOOK_BACK_SAMPLES: Final = 48_000
"""3 s from which noise floor and peak are taken: several syllables and at least 1 gap."""

_PRE_EMPHASIS: Final = 0.97
"""Usual for speech (Rabiner and Schafer, Digital Processing of Speech Signals, 1978: 0.9 to 1)."""

_MIN_RISE_DB: Final = 9.0
"""Speech is at least this far over the floor: the 10 ms levels of steady noise spread by some 6 dB."""

_MIN_NOISE_DB: Final = 17.5
"""-73 dBFS. Quieter than any room: a client that mutes or gates by sending zeros must not make room noise count as
loud.
"""

_MIN_SPAN_DB: Final = 20.0
"""With less between noise floor and peak, noise covers the ends of words; then the VAD model's own times are better."""

_END_SHARE: Final = 0.3
"""Share of the way from floor to peak, in dB, at which speech ends. Chosen on the labelled clips of the bench (0.2 to
0.5 tried): the median error stays within 5 ms for 0.25 to 0.3 and becomes early above."""

_ONSET_SHARE: Final = 0.4
"""The same share for the beginning of speech, which is steeper."""

_ONSET_GAP_HOPS: Final = 12
"""A gap of up to 120 ms lies inside a word (the closure of p, t, k), so the word began before it."""

_TAIL_GAP_HOPS: Final = 5
_TAIL_HOPS: Final = 25
"""The VAD model may miss a weak last syllable. So speech continues up to 250 ms after the detected end, as long as no
gap is longer than 50 ms. A single loud hop there is not a syllable."""

Levels = npt.NDArray[np.float32]
"""Plain and pre-emphasised level in dB over one unit of int16 (full scale is 90), (2, n_hops)."""


def _in_numpy(samples: Samples, n_hop: int, share: float, out: Levels) -> None:
    plain = samples.astype(np.float32)
    bright = (plain[1:] - share * plain[:-1]).reshape(-1, n_hop)
    plain = plain[1:].reshape(-1, n_hop)
    np.einsum("ij,ij->i", plain, plain, out=out[0])
    np.einsum("ij,ij->i", bright, bright, out=out[1])


_hop_powers: Final[Callable[[Samples, int, float, Levels], None]] = kernels.hop_powers if IS_COMPILED else _in_numpy
"""Fill the output, (2, n_hops), with the sums of squares of each `n_hop` samples after the first, as they are and
without this share of the sample before.
"""


def levels(samples: Samples) -> Levels:
    """Return the levels of each 10 ms of `samples`, int16, at 16 kHz, counted from the end: a remainder in front is
    dropped.
    """
    n_hops = max(0, len(samples) - 1) // HOP_SAMPLES
    if not n_hops:
        return np.zeros((2, 0), dtype=np.float32)
    whole = samples[-n_hops * HOP_SAMPLES - 1 :]
    power: Levels = np.empty((2, n_hops), dtype=np.float32)
    _hop_powers(whole, HOP_SAMPLES, _PRE_EMPHASIS, power)
    # 1 unit per sample is added: int16's quantisation step, and no logarithm of zero.
    level: Levels = 10 * np.log10(power / HOP_SAMPLES + 1)
    return level


def _quantile(ordered: Levels, share: float) -> Levels:
    """Return for each row of sorted levels the value below which `share` of them lie, (2, 1)."""
    return np.maximum(ordered[:, [round(share * (ordered.shape[1] - 1))]], _MIN_NOISE_DB)


def _over(level: Levels, noise: Levels, peak: Levels, share: float) -> npt.NDArray[np.bool_]:
    """Return which hops stand out in either level, (n_hops,)."""
    threshold = np.maximum(noise + _MIN_RISE_DB, noise + share * (peak - noise))
    over: npt.NDArray[np.bool_] = (level > threshold).any(axis=0)
    return over


def voiced(level: Levels) -> npt.NDArray[np.bool_] | None:
    """Return which hops are loud enough to be speech; None when noise hides that. The stretch must end in speech or
    hold it.
    """
    if not level.shape[1]:
        return None
    ordered = np.sort(level, axis=1)
    noise, peak = _quantile(ordered, 0.05), _quantile(ordered, 0.95)
    if float((peak - noise).max()) < _MIN_SPAN_DB:
        return None
    return _over(level, noise, peak, _END_SHARE)


def voice_end_hops(loud: npt.NDArray[np.bool_], behind: int, n_hops: int) -> int | None:
    """Return how many hops before the end of `loud` the speech ended that was detected until `behind` hops before the
    end.

    The result is the last loud hop of the `n_hops` up to there, or a loud hop that follows closely. None: there is
    none.
    """
    judged = len(loud) - behind
    first = max(0, judged - n_hops)
    counts = loud.copy()
    lasts = loud[1:] & loud[:-1]
    counts[judged:] = (np.append(lasts, False) | np.append(False, lasts))[judged:]
    hops = (first + np.flatnonzero(counts[first : judged + _TAIL_HOPS])).tolist()
    if not hops or hops[0] >= judged:
        return None
    end = hops[0]
    for hop in hops:
        if hop >= judged and hop - end > _TAIL_GAP_HOPS + 1:
            break
        end = hop
    return len(loud) - 1 - int(end)


def onset_hops(level: Levels, n_recent: int) -> int | None:
    """Return how many hops before the end of `level` the speech began that fills its end; None: not measurable.

    Only the last `n_recent` hops are searched. The floor is the quiet before them, so the lower quartile of all; the
    peak is that of the first syllable.
    """
    if not level.shape[1] or n_recent <= 0:
        return None
    noise = _quantile(np.sort(level, axis=1), 0.25)
    recent = level[:, -n_recent:]
    loud = np.flatnonzero(_over(recent, noise, recent.max(axis=1, keepdims=True), _ONSET_SHARE))
    if not len(loud):
        return None
    breaks = np.flatnonzero(np.diff(loud) - 1 > _ONSET_GAP_HOPS)
    first = int(loud[breaks[-1] + 1]) if len(breaks) else int(loud[0])
    return int(recent.shape[1]) - first
