"""The audio beside a journal, as a WAV file of exact length."""

from __future__ import annotations

import io
import wave
from pathlib import Path

import numpy as np
import pytest

from voicepipe.telemetry.journal import recordings
from voicepipe.telemetry.journal.plain import as_it_is
from voicepipe.telemetry.journal.recordings import recording_in
from voicepipe.telemetry.journal.session_files import SessionFiles


def written(folder: Path, *pieces: np.ndarray) -> Path:
    """The user's audio of a session, at 24 kHz."""
    files = SessionFiles(
        folder / "1-sess_a.jsonl", head=lambda: b"", texts="plain", words=as_it_is, max_bytes=1_000_000
    )
    for piece in pieces:
        files.write_audio("user", piece, 24_000)
    files.close(ended=True)
    return folder / "1-sess_a.user-24000hz.au"


def test_a_recording_is_read_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces, byte for byte; its length is known before."""
    monkeypatch.setattr(recordings, "PIECE_BYTES", 1_000)
    samples = np.arange(-5_000, 7_000, dtype=np.int16)
    recording = recording_in(written(tmp_path, samples[:4_000], samples[4_000:]))
    assert recording is not None
    assert (recording.side, recording.rate_hz, recording.duration_ms) == ("user", 24_000, 500)
    pieces = list(recording.wav())
    assert len(pieces) > 20
    assert len(b"".join(pieces)) == recording.wav_bytes
    with wave.open(io.BytesIO(b"".join(pieces))) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
        assert np.array_equal(np.frombuffer(file.readframes(20_000), "<i2"), samples)


def test_what_is_written_later_is_not_part_of_it(tmp_path: Path) -> None:
    """The session goes on while it is read: the length that was promised is kept."""
    path = written(tmp_path, np.ones(100, dtype=np.int16))
    recording = recording_in(path)
    with path.open("ab") as file:
        file.write(bytes(50))
    assert recording is not None
    assert len(b"".join(recording.wav())) == recording.wav_bytes == 44 + 200


@pytest.mark.parametrize("name", ["1-sess_a.jsonl", "1-sess_a.user-0hz.au", "1-sess_a.other-24000hz.au"])
def test_other_files_are_no_recordings(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(bytes(100))
    assert recording_in(tmp_path / name) is None


def test_an_empty_or_missing_file_is_no_recording(tmp_path: Path) -> None:
    assert recording_in(tmp_path / "1-sess_a.user-24000hz.au") is None
    (tmp_path / "1-sess_a.user-24000hz.au").write_bytes(bytes(24))
    assert recording_in(tmp_path / "1-sess_a.user-24000hz.au") is None
