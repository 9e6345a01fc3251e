"""Sound written as files while it comes, and read from files piece by piece."""

from __future__ import annotations

import io
import sys
import wave
from typing import Any

import av
import numpy as np
import pytest
import soundfile

from voicepipe.audio.decode_file import PIECE_S, Pieces, TooLong
from voicepipe.audio.encode_stream import FORMATS
from voicepipe.audio.files import UnreadableSound, wav_bytes
from voicepipe.audio.samples import Samples, rms_dbfs, silence
from voicepipe.testing.fakes.tone import tone

RATE_HZ = 24_000
EBML = b"\x1aE\xdf\xa3"
"""What a webm file begins with (RFC 8794)."""

SOUND = tone("x" * 100, rate_hz=RATE_HZ)  # 4 s


def written(name: str, sound: Samples = SOUND) -> tuple[list[bytes], bytes]:
    """The pieces that came while the sound did, and all of it."""
    writer = FORMATS[name].open(RATE_HZ)
    pieces = [writer.push(sound[i : i + 4_800]) for i in range(0, len(sound), 4_800)]
    return pieces, b"".join(pieces) + writer.finish()


def read(file: bytes, rate_hz: int = RATE_HZ, max_duration_s: int = 600) -> list[Samples]:
    return list(Pieces(file, rate_hz, max_duration_s=max_duration_s))


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_written_is_read_again(name: str) -> None:
    _, file = written(name)
    if name == "pcm":
        assert np.array_equal(np.frombuffer(file, "<i2"), SOUND)
        return
    (sound,) = read(file)
    assert abs(len(sound) - len(SOUND)) < 0.1 * RATE_HZ  # encoders put some padding at both ends
    assert rms_dbfs(sound) == pytest.approx(rms_dbfs(SOUND), abs=1)
    if name in ("wav", "flac"):
        assert np.array_equal(sound, SOUND)


@pytest.mark.parametrize("name", FORMATS)
def test_it_leaves_while_it_comes(name: str) -> None:
    """All but opus by the second piece of 200 ms; that fills pages of a second."""
    pieces, file = written(name)
    early = sum(map(len, pieces[: 8 if name == "opus" else 2]))
    assert early > 500
    assert sum(map(len, pieces)) > 0.6 * len(file)


def test_a_wav_stream_is_one_to_other_readers() -> None:
    with wave.open(io.BytesIO(written("wav")[1])) as reader:
        assert (reader.getnchannels(), reader.getsampwidth(), reader.getframerate()) == (1, 2, RATE_HZ)


@pytest.mark.parametrize("name", ["mp3", "opus"])
def test_reading_in_blocks_changes_no_sample(name: str) -> None:
    _, file = written(name, np.concatenate([SOUND] * 5))  # 20 s
    expected, rate_hz = soundfile.read(io.BytesIO(file), dtype="float32")
    (sound,) = read(file, rate_hz)
    assert len(sound) == len(expected)
    assert np.abs(sound - np.clip(32_768 * expected, -32_768, 32_767)).max() < 2


def recorded(container: str, codec: str, rate_hz: int = 48_000) -> bytes:
    """A file as browsers and telephones make it, by the package that is needed to read it again."""
    file = io.BytesIO()
    with av.open(file, "w", format=container) as out:
        stream: Any = out.add_stream(codec, rate=rate_hz, layout="mono")
        frame = av.AudioFrame.from_ndarray(tone("x" * 100, rate_hz=rate_hz)[None, :], "s16", "mono")
        frame.sample_rate = rate_hz
        for packet in (*stream.encode(frame), *stream.encode(None)):
            out.mux(packet)
    return file.getvalue()


@pytest.mark.parametrize(
    ("container", "codec"), [("webm", "libopus"), ("mp4", "aac"), ("ipod", "aac"), ("adts", "aac")]
)
def test_what_browsers_record_is_read(container: str, codec: str) -> None:
    (sound,) = read(recorded(container, codec))
    assert len(sound) == pytest.approx(4 * RATE_HZ, abs=0.1 * RATE_HZ)
    assert rms_dbfs(sound) == pytest.approx(rms_dbfs(SOUND), abs=1)


def test_without_the_extra_the_refusal_names_what_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(UnreadableSound, match=r"wav, flac, ogg, mp3\. webm, mp4, m4a need PyAV: pip install av"):
        Pieces(EBML + b"webm" * 100, RATE_HZ, max_duration_s=60)


@pytest.mark.parametrize("file", [b"", b"hello " * 100, b"RIFF", EBML * 50, b"\0" * 5_000])
def test_what_is_no_sound_is_refused(file: bytes) -> None:
    with pytest.raises(UnreadableSound, match="expected a sound file"):
        Pieces(file, RATE_HZ, max_duration_s=60)


def test_channels_are_averaged_and_rates_converted() -> None:
    both = np.stack([tone("x" * 50, rate_hz=44_101), silence(2 * 44_101)], axis=1)
    file = io.BytesIO()
    soundfile.write(file, both, 44_101, format="FLAC")
    (sound,) = read(file.getvalue(), 16_000)
    assert len(sound) == pytest.approx(32_000, abs=5)
    assert rms_dbfs(sound) == pytest.approx(rms_dbfs(SOUND) - 6, abs=0.3)


def test_long_speech_is_cut_where_it_is_quiet() -> None:
    speech, pause = tone("x" * 500, rate_hz=8_000), silence(4_000)  # 20 s, 0.5 s
    pieces = read(wav_bytes(np.concatenate([speech, pause, speech, pause, speech]), 8_000), 8_000)
    assert sum(map(len, pieces)) == 61 * 8_000
    assert max(map(len, pieces)) <= PIECE_S * 8_000
    assert [round(len(piece) / 8_000, 1) for piece in pieces] == pytest.approx([20.25, 20.5, 20.25], abs=0.3)


def test_there_is_an_end_to_what_is_taken() -> None:
    """A file that says its length is not even begun; others are read until there."""
    with pytest.raises(TooLong, match="at most 30 s"):
        Pieces(wav_bytes(np.concatenate([SOUND] * 9), RATE_HZ), RATE_HZ, max_duration_s=30)
    pieces = Pieces(written("mp3", np.concatenate([SOUND] * 9))[1], RATE_HZ, max_duration_s=30)
    with pytest.raises(TooLong, match="at most 30 s"):
        list(pieces)


@pytest.mark.parametrize("kind", ["FLAC", "OGG"])
def test_a_small_file_is_not_decoded_to_any_length(kind: str) -> None:
    """All channels count: 2 s of 192 kHz in eight of them are as much as 64 s of speech in stereo."""
    rate_hz = 192_000
    file = io.BytesIO()
    soundfile.write(file, np.zeros((2 * rate_hz, 8), np.int16), rate_hz, format=kind)
    assert len(file.getvalue()) < 100_000
    most = 16 * rate_hz
    assert sum(map(len, Pieces(file.getvalue(), 16_000, max_duration_s=60, max_samples=most))) == 32_000
    with pytest.raises(TooLong, match=f"{most - 8} samples"):
        list(Pieces(file.getvalue(), 16_000, max_duration_s=60, max_samples=most - 8))


def test_a_stream_that_says_no_length_is_read() -> None:
    file = io.BytesIO()
    soundfile.write(file, SOUND, RATE_HZ, format="FLAC")
    unsized = bytearray(file.getvalue())
    unsized[21] &= 0xF0  # the total of samples, 36 bits (RFC 9639, 8.2); 0: unknown
    unsized[22:26] = bytes(4)
    (sound,) = read(bytes(unsized))
    assert np.array_equal(sound, SOUND)


@pytest.mark.parametrize("rate_hz", [100, 2_000_000])
def test_rates_of_no_microphone_are_refused(rate_hz: int) -> None:
    with pytest.raises(UnreadableSound, match="expected 4000 to 192000 Hz"):
        Pieces(wav_bytes(SOUND, rate_hz), RATE_HZ, max_duration_s=60)


def test_truncated_file_is_decoded_up_to_its_end() -> None:
    _, whole = written("mp3")
    (sound,) = read(whole[: len(whole) // 2])
    assert len(sound) == pytest.approx(2 * RATE_HZ, rel=0.1)


def damaged(file: bytes) -> bytes:
    """The same with 500 bytes of zeros in its middle."""
    middle = len(file) // 2
    return file[:middle] + bytes(500) + file[middle + 500 :]


@pytest.mark.parametrize("file", [damaged(written("flac")[1]), damaged(recorded("mp4", "aac"))], ids=["flac", "mp4"])
def test_damaged_file_is_refused_when_its_damage_is_read(file: bytes) -> None:
    """Its header is sound, so it opens; no part of what lies behind the damage is taken for speech."""
    pieces = Pieces(file, RATE_HZ, max_duration_s=60)
    with pytest.raises(UnreadableSound, match="the sound file is broken"):
        list(pieces)


def test_a_video_without_sound_is_refused() -> None:
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as out:
        stream: Any = out.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 32
        frame = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24")
        for packet in (*stream.encode(frame), *stream.encode(None)):
            out.mux(packet)
    with pytest.raises(UnreadableSound, match="expected a sound file"):
        Pieces(file.getvalue(), RATE_HZ, max_duration_s=60)


def test_how_much_of_a_file_was_read_is_known() -> None:
    """A server that gives up counts these seconds."""
    pieces = Pieces(wav_bytes(SOUND, RATE_HZ), RATE_HZ, max_duration_s=60)
    assert pieces.read_s == 0
    list(pieces)
    assert pieces.read_s == 4
