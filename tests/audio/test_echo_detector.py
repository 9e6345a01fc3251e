"""The agent's own audio, come back: detected through noise, a telephone's codec and any delay; other audio is not."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from voicepipe.audio import echo_detector as module
from voicepipe.audio import g711
from voicepipe.audio.echo_detector import HOP_MS, MAX_DELAY_MS, EchoDetector, profile
from voicepipe.audio.files import read_sound
from voicepipe.audio.resample import Resampler
from voicepipe.audio.samples import Samples

RATE_HZ = 24_000
MS = RATE_HZ // 1_000
CLIPS = Path(__file__).parents[1] / "data" / "clean"
AGENT, USER = "ls_2609-156975-0003", "ls_1998-15444-0008"
SENT_MS = 10_000


def clip(name: str) -> Samples:
    return read_sound(CLIPS / f"{name}.flac", RATE_HZ)


@pytest.fixture(scope="module")
def agent() -> Samples:
    """What the agent says: int16 at 24 kHz."""
    return clip(AGENT)


@pytest.fixture
def echo(agent: Samples) -> EchoDetector:
    """It was sent at once, in pieces whose lengths are no multiples of anything."""
    echo = EchoDetector()
    for first in range(0, len(agent), 4_777):
        echo.plays(agent[first : first + 4_777], RATE_HZ, SENT_MS)
    return echo


def recorded(samples: Samples, *, gain_db: float = -20.0) -> Samples:
    """The same, weaker, in the noise of a quiet room."""
    noise = np.random.default_rng(7).normal(0, 15, len(samples))
    quiet: Samples = (samples * 10 ** (gain_db / 20) + noise).astype(np.int16)
    return quiet


@pytest.mark.parametrize("delay_ms", [0, 35, 240, 1_200])
def test_an_echo_is_known_at_any_delay(echo: EchoDetector, agent: Samples, delay_ms: int) -> None:
    back = recorded(agent[1_000 * MS : 2_000 * MS])
    assert echo.has(back, RATE_HZ, SENT_MS + 2_000 + delay_ms)


def test_an_echo_through_a_telephone_is_known(echo: EchoDetector, agent: Samples) -> None:
    narrow = Resampler(RATE_HZ, 8_000).push(recorded(agent[800 * MS : 2_000 * MS]))
    back = g711.decode_mulaw(g711.encode_mulaw(narrow))
    assert echo.has(back[-8_000:], 8_000, SENT_MS + 2_150)


def test_other_speech_is_no_echo(echo: EchoDetector) -> None:
    user = clip(USER)
    for first_ms in (300, 500, 700):
        said = user[first_ms * MS : (first_ms + 1_000) * MS]
        assert not echo.has(said, RATE_HZ, SENT_MS + 2_000)


def test_speech_over_an_echo_is_no_echo(echo: EchoDetector, agent: Samples) -> None:
    user, back = clip(USER)[300 * MS : 1_300 * MS], recorded(agent[1_000 * MS : 2_000 * MS])
    assert not echo.has(user + back, RATE_HZ, SENT_MS + 2_100)


def test_what_is_louder_than_the_agent_is_no_echo(echo: EchoDetector, agent: Samples) -> None:
    """The very same audio: a loudspeaker gives back less than it got."""
    sent = agent[1_000 * MS : 2_000 * MS].astype(np.int32)
    louder = (sent * 8).clip(-32_768, 32_767).astype(np.int16)
    assert echo.likeness(louder, RATE_HZ, SENT_MS + 2_100) > 0.8
    assert not echo.has(louder, RATE_HZ, SENT_MS + 2_100)
    assert not echo.known
    assert echo.has(recorded(agent[1_000 * MS : 2_000 * MS]), RATE_HZ, SENT_MS + 2_100)
    assert echo.known


def test_nothing_is_like_what_was_said_long_ago(echo: EchoDetector, agent: Samples) -> None:
    """All of it was played before any echo of now."""
    back = recorded(agent[1_000 * MS : 2_000 * MS])
    assert echo.likeness(back, RATE_HZ, SENT_MS + 60_000) == 0


def test_audio_in_tiny_pieces_is_known_too(agent: Samples) -> None:
    """Each is shorter than a hop of the profile."""
    echo = EchoDetector()
    for first in range(0, 3_000 * MS, 100):
        echo.plays(agent[first : first + 100], RATE_HZ, SENT_MS)
    assert echo.has(recorded(agent[1_000 * MS : 2_000 * MS]), RATE_HZ, SENT_MS + 2_100)


def test_how_much_is_not_the_agent_s_own(echo: EchoDetector, agent: Samples) -> None:
    """Once an echo is known, audio louder than the echo can be is a user's; before, all audio is."""
    back, user = recorded(agent[: 4_000 * MS]), clip(USER)[500 * MS : 1_100 * MS]
    both = back.astype(np.int32)
    both[2_500 * MS : 3_100 * MS] += user
    mixed = both.clip(-32_768, 32_767).astype(np.int16)
    late_ms = SENT_MS + 180
    assert echo.own_ms(mixed[1_000 * MS : 2_000 * MS], RATE_HZ, late_ms + 2_000) == 1_000
    assert echo.has(mixed[1_000 * MS : 2_000 * MS], RATE_HZ, late_ms + 2_000)
    own_ms = {
        until_ms: echo.own_ms(mixed[(until_ms - 500) * MS : until_ms * MS], RATE_HZ, late_ms + until_ms)
        for until_ms in range(1_500, 4_000, 500)
    }
    assert own_ms[1_500] + own_ms[2_000] + own_ms[2_500] <= 50
    assert 350 <= own_ms[3_000] + own_ms[3_500] <= 700
    assert own_ms[3_500] <= 150


def test_what_comes_before_it_was_said_or_long_after_is_no_echo(echo: EchoDetector, agent: Samples) -> None:
    back = recorded(agent[1_000 * MS : 2_000 * MS])
    assert not echo.has(back, RATE_HZ, SENT_MS + 1_200)
    assert not echo.has(back, RATE_HZ, SENT_MS + 2_000 + MAX_DELAY_MS + 500)


def test_what_was_not_played_does_not_come_back(echo: EchoDetector, agent: Samples) -> None:
    echo.stops(SENT_MS)
    assert echo.likeness(recorded(agent[1_000 * MS : 2_000 * MS]), RATE_HZ, SENT_MS + 2_000) == 0


def test_an_echo_of_audio_that_was_held_back_is_known(echo: EchoDetector, agent: Samples) -> None:
    """Until the user's audio came, the agent has said more: that comes back later, too."""
    echo.shift(5_000)
    back = recorded(agent[1_000 * MS : 2_000 * MS])
    assert echo.likeness(back, RATE_HZ, SENT_MS + 2_100) == 0
    assert echo.has(back, RATE_HZ, SENT_MS + 5_000 + 2_100)
    longer_ms = len(agent) // MS
    echo.plays(agent, RATE_HZ, SENT_MS)
    assert echo.has(back, RATE_HZ, SENT_MS + 5_000 + longer_ms + 2_100)


def test_silence_is_like_nothing(echo: EchoDetector) -> None:
    nothing = np.zeros(RATE_HZ, dtype=np.int16)
    assert echo.likeness(nothing, RATE_HZ, SENT_MS + 2_000) < 0.1
    assert EchoDetector().likeness(nothing, RATE_HZ, 0) == 0
    assert echo.likeness(nothing[:0], RATE_HZ, SENT_MS) == 0


def test_what_is_to_be_played_is_not_gone_through(agent: Samples, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may take minutes of sound at once; each question would take as long as all of it is."""
    looked_at = []

    class Looked(deque[Any]):
        def __iter__(self) -> Iterator[Any]:
            for each in super().__iter__():
                looked_at.append(each)
                yield each

    monkeypatch.setattr(module, "deque", Looked)
    echo = EchoDetector()
    for first in range(0, 3_000 * 480, 480):
        echo.plays(agent[first % len(agent) :][:480], RATE_HZ, SENT_MS)
    echo.has(recorded(agent[: 1_000 * MS]), RATE_HZ, SENT_MS + 1_000)
    assert 0 < len(looked_at) < 300


def test_old_audio_is_dropped(agent: Samples) -> None:
    """However long a call lasts, only audio that can still come back is stored."""
    echo = EchoDetector()
    for i in range(200):
        echo.plays(agent[: 200 * MS], RATE_HZ, i * 200)
    assert len(echo._played) <= (3 * MAX_DELAY_MS) // 200


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 24_000])
def test_a_profile_is_the_same_at_any_rate(rate_hz: int) -> None:
    """A tone of 1 kHz at half of full scale lies in its band, at about the same level."""
    n = rate_hz // 5
    tone = (16_384 * np.sin(2 * np.pi * 1_000 * np.arange(n) / rate_hz)).astype(np.int16)
    found = profile(tone, rate_hz)
    assert found.shape == (200 // HOP_MS, 6)
    assert (found.argmax(axis=1) == 2).all()
    assert found[:, 2] == pytest.approx(0.024, rel=0.3)


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 24_000])
@pytest.mark.parametrize("n_hops", [0, 1, 20, 21, 100])
def test_a_profile_has_the_powers_of_the_spectrum(rate_hz: int, n_hops: int) -> None:
    """Computed from the few bins that count, it has what the whole spectrum has there, however long the audio is."""
    n_hop = rate_hz // 100
    samples = np.random.default_rng(1).normal(0, 3_000, n_hops * n_hop + n_hop - 1).astype(np.int16)
    frames = samples[: n_hops * n_hop].reshape(n_hops, n_hop) * np.hanning(n_hop) / n_hop / 32_768
    powers = np.abs(np.fft.rfft(frames, axis=1)) ** 2
    edges = [hz // 100 for hz in (200, 400, 700, 1_100, 1_700, 2_500, 3_600)]
    bands = [powers[:, low:high].sum(axis=1) for low, high in pairwise(edges)]
    assert profile(samples, rate_hz) == pytest.approx(np.stack(bands, axis=1), rel=1e-4, abs=1e-12)
