"""Where a voice begins and ends, on sounds whose ends are known to the sample."""

from __future__ import annotations

import numpy as np
import pytest

from voicepipe.audio import levels
from voicepipe.audio.samples import Samples


def sound(*parts: tuple[int, float]) -> Samples:
    """Return noise in parts of the given ms at the given dBFS, at 16 kHz."""
    dice = np.random.default_rng(7)
    pieces = [dice.standard_normal(ms * 16) * 32_768 * 10 ** (dbfs / 20) for ms, dbfs in parts]
    return np.clip(np.rint(np.concatenate(pieces)), -32_768, 32_767).astype(np.int16)


def test_loud_hops_are_those_of_the_voice() -> None:
    """600 ms of tone, 400 ms of voice, 300 ms of tone: 40 hops, ending 30 hops before the end."""
    loud = levels.voiced(levels.levels(sound((600, -65), (400, -25), (300, -65))))
    assert loud is not None
    assert loud.sum() == pytest.approx(40, abs=1)
    assert levels.voice_end_hops(loud, behind=0, n_hops=100) == pytest.approx(30, abs=1)
    assert levels.voice_end_hops(loud, behind=0, n_hops=20) is None
    assert levels.voice_end_hops(loud, behind=85, n_hops=10) is None


def test_a_last_syllable_behind_the_verdict_belongs_to_the_voice_and_a_later_sound_does_not() -> None:
    """The judge gave up at hop 40; 40 ms of gap and 100 of voice follow, then 100 ms of gap and a click."""
    loud = np.zeros(100, dtype=bool)
    loud[20:40] = loud[44:54] = loud[64:66] = True
    assert levels.voice_end_hops(loud, behind=60, n_hops=20) == 100 - 54
    loud[40:] = True
    assert levels.voice_end_hops(loud, behind=60, n_hops=20) == 100 - 65


def test_a_weak_bright_end_belongs_to_the_voice() -> None:
    """A final s is 25 dB weaker than the vowel before it, but bright over a dark room: it is found."""
    vowel = sound((400, -20))
    vowel = np.convolve(vowel, np.ones(12) / 12, mode="same").astype(np.int16)
    room = np.convolve(sound((800, -45)), np.ones(40) / 40, mode="same").astype(np.int16)
    hiss = np.diff(sound((100, -51)), prepend=0).astype(np.int16)
    both = np.concatenate((room[:6_400], vowel, hiss + room[:1_600], room[6_400:]))
    loud = levels.voiced(levels.levels(both))
    assert loud is not None
    assert levels.voice_end_hops(loud, behind=0, n_hops=100) == pytest.approx(40, abs=2)


def test_noise_that_hides_the_voice_is_admitted() -> None:
    """With 10 dB between voice and room nothing is claimed; nor about no sound at all."""
    assert levels.voiced(levels.levels(sound((600, -35), (400, -25), (300, -35)))) is None
    assert levels.voiced(levels.levels(sound((5, -20)))) is None
    assert levels.onset_hops(levels.levels(sound((5, -20))), 20) is None


def test_the_onset_is_found_across_the_gap_of_a_stop() -> None:
    """A burst, 60 ms of closure, the vowel: the word began with the burst; 160 ms before it, another sound did not."""
    near = levels.levels(sound((500, -65), (30, -30), (60, -65), (90, -25)))
    assert levels.onset_hops(near, 25) == pytest.approx(18, abs=1)
    far = levels.levels(sound((500, -65), (30, -30), (160, -65), (90, -25)))
    assert levels.onset_hops(far, 30) == pytest.approx(9, abs=1)


def test_hops_are_counted_from_the_end() -> None:
    """A part hop in front is left out, so that answers don't depend on where the past begins."""
    samples = sound((300, -30))
    assert levels.levels(samples[37:])[:, -20:].tolist() == levels.levels(samples)[:, -20:].tolist()
