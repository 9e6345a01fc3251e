"""Where exactly did the voice begin and end? Looked up in the samples, once a judge has said about when.

A judge's windows are 32 ms long and its verdict trails the sound by 60 to 180 ms; a turn's t0 has to be better than
that. So the level of every 10 ms is compared with the utterance's own floor and peak. Two levels are kept: the plain
one, and a pre-emphasised one in which the weak high sounds (s, f, t) that end many words stand out.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from voicepipe.audio.samples import Samples

HOP_SAMPLES: Final = 160
"""10 ms at 16 kHz: the resolution of every answer here."""

LOOK_BACK_SAMPLES: Final = 48_000
"""3 s from which floor and peak are taken: several syllables and at least one gap."""

_PRE_EMPHASIS: Final = np.float32(0.97)
"""Usual for speech (Rabiner and Schafer, Digital Processing of Speech Signals, 1978: 0.9 to 1)."""

_LEAST_RISE_DB: Final = 9.0
"""Voice is at least this far over the floor: the 10 ms levels of steady noise spread by some 6 dB."""

_LEAST_FLOOR_DB: Final = 17.5
"""-73 dBFS. Quieter than any room: a client that mutes or gates by sending zeros must not make its room loud."""

_LEAST_SPAN_DB: Final = 20.0
"""With less between floor and peak, noise covers where words end; then the judge's own times are better."""

_END_SHARE: Final = 0.3
"""Share of the way from floor to peak, in dB, at which a voice ends. Chosen on the labelled clips of the bench
(0.2 to 0.5 tried): the median error stays within 5 ms for 0.25 to 0.3 and turns early above."""

_ONSET_SHARE: Final = 0.4
"""The same where a voice begins, which is steeper."""

_ONSET_GAP_HOPS: Final = 12
"""A gap of up to 120 ms lies inside a word (the closure of p, t, k), so the word began before it."""

_TAIL_GAP_HOPS: Final = 5
_TAIL_HOPS: Final = 25
"""A judge may give up on a weak last syllable. So the voice goes on behind what it took for speech, for up to 250 ms,
as long as no gap is longer than 50 ms. A single loud hop there is no syllable."""

Levels = npt.NDArray[np.float32]
"""Plain and pre-emphasised level in dB over one unit of int16 (full scale is 90), (2, n_hops)."""


def levels(samples: Samples) -> Levels:
    """Levels of each 10 ms of `samples`, int16, at 16 kHz, counted from the end: a rest in front is left out."""
    n_hops = max(0, len(samples) - 1) // HOP_SAMPLES
    if not n_hops:
        return np.zeros((2, 0), dtype=np.float32)
    plain = samples[-n_hops * HOP_SAMPLES - 1 :].astype(np.float32)
    bright = (plain[1:] - _PRE_EMPHASIS * plain[:-1]).reshape(n_hops, HOP_SAMPLES)
    plain = plain[1:].reshape(n_hops, HOP_SAMPLES)
    power = np.stack((np.einsum("ij,ij->i", plain, plain), np.einsum("ij,ij->i", bright, bright)))
    # One unit per sample is added: int16's own grain, and no logarithm of zero.
    level: Levels = 10 * np.log10(power / HOP_SAMPLES + 1)
    return level


def _quantile(ordered: Levels, share: float) -> Levels:
    """For each row of already sorted levels the value below which `share` of them lie, (2, 1)."""
    return np.maximum(ordered[:, [round(share * (ordered.shape[1] - 1))]], _LEAST_FLOOR_DB)


def _over(level: Levels, floor: Levels, peak: Levels, share: float) -> npt.NDArray[np.bool_]:
    """Which hops stand out in either level, (n_hops,)."""
    threshold = np.maximum(floor + _LEAST_RISE_DB, floor + share * (peak - floor))
    over: npt.NDArray[np.bool_] = (level > threshold).any(axis=0)
    return over


def voiced(level: Levels) -> npt.NDArray[np.bool_] | None:
    """Which hops of a stretch that ends in, or holds, speech are loud enough to be it; None when noise hides that."""
    if not level.shape[1]:
        return None
    ordered = np.sort(level, axis=1)
    floor, peak = _quantile(ordered, 0.05), _quantile(ordered, 0.95)
    if float((peak - floor).max()) < _LEAST_SPAN_DB:
        return None
    return _over(level, floor, peak, _END_SHARE)


def voice_end_hops(loud: npt.NDArray[np.bool_], behind: int, n_hops: int) -> int | None:
    """How many hops before the end of `loud` did the voice end that a judge heard until `behind` hops before it?

    The last loud one of the `n_hops` up to there, and what follows it closely. None: there is none.
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
    """How many hops before the end of `level` did the voice begin that now fills its end? None: can't be told.

    Only the last `n_recent` hops are searched. The floor is that of the quiet before them, so the lower quartile of
    all; the peak that of the first syllable.
    """
    if not level.shape[1] or n_recent <= 0:
        return None
    floor = _quantile(np.sort(level, axis=1), 0.25)
    recent = level[:, -n_recent:]
    loud = np.flatnonzero(_over(recent, floor, recent.max(axis=1, keepdims=True), _ONSET_SHARE))
    if not len(loud):
        return None
    breaks = np.flatnonzero(np.diff(loud) - 1 > _ONSET_GAP_HOPS)
    first = int(loud[breaks[-1] + 1]) if len(breaks) else int(loud[0])
    return int(recent.shape[1]) - first
