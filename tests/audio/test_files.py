"""Sound files, and the clips that the tests stand on."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.audio.conftest import Clip
from voicepipe.audio.files import UnreadableSound, read_sound, wav_bytes, write_wav
from voicepipe.audio.samples import rms_dbfs


def test_the_clips_are_the_listed_ones(clips: dict[str, Clip]) -> None:
    """Every sha256 of the manifest."""
    for name, clip in clips.items():
        assert hashlib.sha256(clip.path.read_bytes()).hexdigest() == clip.sha256, name


def test_wav_comes_back_as_it_was(tmp_path: Path) -> None:
    """To the bit, both ends of the scale included, from a path and from memory."""
    samples = np.array([0, 1, -1, 32_767, -32_768, 12_345], dtype=np.int16)
    write_wav(tmp_path / "a.wav", samples, 24_000)
    assert read_sound(tmp_path / "a.wav", 24_000).tolist() == samples.tolist()
    assert read_sound(io.BytesIO(wav_bytes(samples, 8_000)), 8_000).tolist() == samples.tolist()


@pytest.mark.parametrize(("format_", "subtype"), [("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("MP3", "MPEG_LAYER_III")])
def test_other_formats_rates_and_channels_become_mono_at_the_requested_rate(
    tmp_path: Path, format_: str, subtype: str
) -> None:
    """A stereo tone at 44.1 kHz with one silent channel: half the amplitude, the right length."""
    tone = 0.5 * np.sin(2 * np.pi * 440 * np.arange(44_100) / 44_100)
    path = tmp_path / f"tone.{format_.lower()}"
    soundfile.write(path, np.stack((tone, 0 * tone), axis=1), 44_100, format=format_, subtype=subtype)
    samples = read_sound(path, 16_000)
    assert len(samples) == pytest.approx(16_000, abs=1_100)  # mp3 pads whole frames of 1152 at both ends
    assert rms_dbfs(samples[4_000:12_000]) == pytest.approx(-15.05, abs=0.3)


def test_what_is_no_sound_is_named(tmp_path: Path) -> None:
    """A missing file and a text file both say which they were."""
    (tmp_path / "notes.txt").write_text("not a sound")
    (tmp_path / "folder").mkdir()
    for name, why in (
        ("notes.txt", "Format not recognised."),
        ("missing.wav", "No such file or directory"),
        ("folder", "Is a directory"),
    ):
        with pytest.raises(UnreadableSound) as refused:
            read_sound(tmp_path / name, 16_000)
        assert str(refused.value) == f"{tmp_path / name}: {why}"
