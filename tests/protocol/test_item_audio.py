"""An item's audio in its object."""

from __future__ import annotations

from base64 import b64decode

import numpy as np
import pytest

from voicepipe.audio.encoding import FormatName
from voicepipe.audio.g711 import encode_alaw, encode_mulaw
from voicepipe.protocol import item_audio
from voicepipe.protocol.item_audio import coded_audio, with_audio
from voicepipe.protocol.session_types import AudioFormat

SAMPLES = np.arange(-240, 240, dtype=np.int16)
ITEM = {"id": "i", "content": [{"type": "input_text", "text": "see"}, {"type": "input_audio", "transcript": None}]}


@pytest.mark.parametrize(
    ("name", "rate_hz", "expected"),
    [
        ("audio/pcm", 24_000, SAMPLES.astype("<i2").tobytes()),
        ("audio/pcmu", 8_000, encode_mulaw(SAMPLES)),
        ("audio/pcma", 8_000, encode_alaw(SAMPLES)),
    ],
)
def test_the_bytes_are_those_of_the_format(name: FormatName, rate_hz: int, expected: bytes) -> None:
    audio = coded_audio(SAMPLES, rate_hz, AudioFormat(name))
    assert audio is not None
    item = with_audio(ITEM, audio)
    assert b64decode(item["content"][1]["audio"]) == expected
    assert item["content"][0] == ITEM["content"][0]
    assert "audio" not in ITEM["content"][1]  # type: ignore[operator]


def test_another_rate_is_resampled() -> None:
    audio = coded_audio(SAMPLES, 24_000, AudioFormat("audio/pcmu"))
    assert audio is not None
    assert len(b64decode(audio)) == len(SAMPLES) // 3


@pytest.mark.parametrize("content", [[], [{"type": "input_text", "text": "see"}]])
def test_an_item_without_an_audio_part_stays(content: list[dict[str, str]]) -> None:
    item = {"id": "i", "content": content}
    assert with_audio(item, "AAAA") is item


@pytest.mark.parametrize("name", ["audio/pcm", "audio/pcmu", "audio/pcma"])
@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 24_000])
@pytest.mark.parametrize("n_samples", [1, 479, 480])
def test_what_is_too_long_is_left_out_before_it_is_coded(
    monkeypatch: pytest.MonkeyPatch, name: FormatName, rate_hz: int, n_samples: int
) -> None:
    """At the exact length, which is known without the resampler."""
    samples, form = SAMPLES[:n_samples], AudioFormat(name)
    audio = coded_audio(samples, rate_hz, form)
    assert audio is not None
    coded = b64decode(audio)
    monkeypatch.setattr(item_audio, "MAX_BYTES", len(coded))
    assert coded_audio(samples, rate_hz, form) == audio
    monkeypatch.setattr(item_audio, "MAX_BYTES", len(coded) - 1)
    monkeypatch.setattr(item_audio, "_coded", None)
    assert coded_audio(samples, rate_hz, form) is None
