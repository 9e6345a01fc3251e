"""Near and far voices, by level."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.audio.near_field import NearField
from voicepipe.audio.samples import Samples, mean_squares, silence

FRAME = 320
RNG = np.random.default_rng(5)


def noise(level_dbfs: float) -> Samples:
    """20 ms of white noise."""
    sound = RNG.normal(0, 32_768 * 10 ** (level_dbfs / 20), FRAME)
    return np.clip(sound, -32_768, 32_767).astype(np.int16)


def power(frame: Samples) -> float:
    """The mean square of one frame."""
    return mean_squares(frame, FRAME)[0]


def fed(near_field: NearField, level_dbfs: float, n_frames: int, *, speech: bool) -> NearField:
    for _ in range(n_frames):
        near_field.push(power(noise(level_dbfs)), speech=speech)
    return near_field


def after_user_speech(room_dbfs: float) -> NearField:
    """A second of room, then a second of a user at -20 dBFS."""
    return fed(fed(NearField(), room_dbfs, 50, speech=False), -20, 50, speech=True)


def test_all_speech_is_near_before_the_first() -> None:
    """Every user can begin to speak, however quiet."""
    assert fed(NearField(), -60, 20, speech=False).near


@pytest.mark.parametrize(("level_dbfs", "near"), [(-20, True), (-27, True), (-34, False), (-40, False)])
def test_in_a_loud_room_10_db_below_the_user_is_far(level_dbfs: float, near: bool) -> None:
    """After the 300 ms over which it is judged."""
    assert fed(after_user_speech(-36), level_dbfs, 20, speech=True).near is near


def test_in_a_quiet_room_a_user_may_mumble() -> None:
    """25 dB below their own voice, 25 over the room's."""
    assert fed(after_user_speech(-70), -45, 20, speech=True).near


def test_user_who_turned_away_is_near_again_after_seconds() -> None:
    """16 dB quieter than before: not at once, but after 10 s."""
    near_field = fed(after_user_speech(-40), -36, 20, speech=True)
    assert not near_field.near
    assert fed(near_field, -36, 500, speech=True).near


def test_a_client_that_sends_zeros_has_a_quiet_room() -> None:
    """Digital silence exceeds no noise, and quiet speech after it is the user's."""
    near_field = NearField()
    for _ in range(100):
        near_field.push(power(silence(FRAME)), speech=False)
    assert not near_field.exceeds_noise
    assert fed(near_field, -50, 20, speech=True).near


def test_the_first_sound_over_the_room_exceeds_noise() -> None:
    """The room itself does not; 20 ms of something 15 dB louder do."""
    near_field = fed(after_user_speech(-60), -60, 20, speech=False)
    assert not near_field.exceeds_noise
    near_field.push(power(noise(-45)), speech=False)
    assert near_field.exceeds_noise


@given(levels=st.lists(st.floats(-80, -10), min_size=20, max_size=60), louder_db=st.floats(0, 10))
def test_what_is_louder_is_never_further_away(levels: list[float], louder_db: float) -> None:
    """Two rooms with the same past: the louder newest sound is near whenever the quieter one is."""
    quieter, louder = NearField(), NearField()
    for level_dbfs in levels[:-1]:
        frame = noise(level_dbfs)
        quieter.push(power(frame), speech=True)
        louder.push(power(frame), speech=True)
    frame = noise(levels[-1])
    quieter.push(power(frame), speech=False)
    gained = np.clip(frame * 10 ** (louder_db / 20), -32_768, 32_767).astype(np.int16)
    louder.push(power(gained), speech=False)
    assert louder.near or not quieter.near
