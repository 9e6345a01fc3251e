"""The wire's bench compares like with like: both ways carry the same audio and the same members."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from tests.measure import wire
from voicepipe.audio.samples import Samples
from voicepipe.protocol.binary import agent_sound
from voicepipe.protocol.inbound import AudioAppended


@pytest.fixture
def samples() -> Samples:
    return np.arange(-240, 240, dtype=np.int16) * 100


def test_both_ways_read_the_same_audio(samples: Samples) -> None:
    """What the plain way decodes is what ours does."""
    by_json, by_binary = wire.ways_in(samples)
    assert by_json.plain() == by_binary.plain() == samples.tobytes()
    assert by_json.work() == by_binary.work() == AudioAppended(samples.tobytes())


def frames(way: wire.Way) -> list[bytes]:
    """Return what a way writes."""
    written = way.work()
    assert isinstance(written, list | tuple)
    return [frame.encode() if isinstance(frame, str) else frame for frame in written]


@pytest.mark.parametrize("form", wire.FORMATS)
def test_both_ways_write_the_same_event(samples: Samples, form: str) -> None:
    """The plain event has all that ours has, and the same sound."""
    by_json, by_binary = (way for way in wire.ways_out(samples) if form + "," in way.name)
    (ours,), (frame,) = frames(by_json), frames(by_binary)
    plain = json.loads(by_json.plain())  # type: ignore[arg-type]
    assert json.loads(ours).keys() == plain.keys()
    sounds = base64.b64decode(plain["delta"]), base64.b64decode(json.loads(ours)["delta"]), agent_sound(frame).audio
    assert sounds[0] == sounds[1] == sounds[2]


def test_words_are_the_same(samples: Samples) -> None:
    *_, words = wire.ways_out(samples)
    (ours,) = frames(words)
    plain = json.loads(words.plain())  # type: ignore[arg-type]
    assert json.loads(ours) | {"event_id": ""} == plain | {"event_id": ""}
