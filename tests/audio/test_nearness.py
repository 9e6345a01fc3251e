"""Near and far voices, by level."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.audio.nearness import Nearness
from voicepipe.audio.samples import Samples, silence

FRAME = 320
RNG = np.random.default_rng(5)


def noise(level_dbfs: float) -> Samples:
    """20 ms of white noise."""
    sound = RNG.normal(0, 32_768 * 10 ** (level_dbfs / 20), FRAME)
    return np.clip(sound, -32_768, 32_767).astype(np.int16)


def fed(nearness: Nearness, level_dbfs: float, n_frames: int, *, speech: bool) -> Nearness:
    for _ in range(n_frames):
        nearness.push(noise(level_dbfs), speech=speech)
    return nearness


def after_a_caller(room_dbfs: float) -> Nearness:
    """A second of room, then a second of a caller at -20 dBFS."""
    return fed(fed(Nearness(), room_dbfs, 50, speech=False), -20, 50, speech=True)


def test_everybody_is_near_until_somebody_has_spoken() -> None:
    """Nobody is kept from beginning to speak, however quiet."""
    assert fed(Nearness(), -60, 20, speech=False).near


@pytest.mark.parametrize(("level_dbfs", "near"), [(-20, True), (-27, True), (-34, False), (-40, False)])
def test_in_a_loud_room_what_lies_10_db_below_the_caller_is_far(level_dbfs: float, near: bool) -> None:
    """After the 300 ms over which it is judged."""
    assert fed(after_a_caller(-36), level_dbfs, 20, speech=True).near is near


def test_in_a_quiet_room_a_caller_may_mumble() -> None:
    """25 dB below their own voice, 25 over the room's."""
    assert fed(after_a_caller(-70), -45, 20, speech=True).near


def test_a_caller_who_turned_away_is_near_again_after_some_seconds() -> None:
    """16 dB quieter than before: not at once, but after 10 s."""
    nearness = fed(after_a_caller(-40), -36, 20, speech=True)
    assert not nearness.near
    assert fed(nearness, -36, 500, speech=True).near


def test_a_client_that_sends_zeros_has_a_quiet_room() -> None:
    """Digital silence stirs nothing, and quiet speech after it is the caller's."""
    nearness = Nearness()
    for _ in range(100):
        nearness.push(silence(FRAME), speech=False)
    assert not nearness.stirs
    assert fed(nearness, -50, 20, speech=True).near


def test_the_first_sound_over_the_room_stirs() -> None:
    """The room itself does not; 20 ms of something 15 dB louder do."""
    nearness = fed(after_a_caller(-60), -60, 20, speech=False)
    assert not nearness.stirs
    nearness.push(noise(-45), speech=False)
    assert nearness.stirs


@given(levels=st.lists(st.floats(-80, -10), min_size=20, max_size=60), louder_db=st.floats(0, 10))
def test_what_is_louder_is_never_further_away(levels: list[float], louder_db: float) -> None:
    """Two rooms with the same past: the louder newest sound is near whenever the quieter one is."""
    quieter, louder = Nearness(), Nearness()
    for level_dbfs in levels[:-1]:
        frame = noise(level_dbfs)
        quieter.push(frame, speech=True)
        louder.push(frame, speech=True)
    frame = noise(levels[-1])
    quieter.push(frame, speech=False)
    gained = np.clip(frame * 10 ** (louder_db / 20), -32_768, 32_767).astype(np.int16)
    louder.push(gained, speech=False)
    assert louder.near or not quieter.near
