"""Read the manifest of the STT bench: recordings and their texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec

from voicepipe.audio.files import UnreadableSound, read_sound
from voicepipe.bench.stt import SttUtterance
from voicepipe.errors import ConfigError


class ManifestRecording(msgspec.Struct, frozen=True):
    """A line of the manifest; other fields are ignored."""

    path: str
    """Relative to the manifest's folder."""

    text: str | None = None
    """The spoken text; lines without it are skipped."""

    speech_end_ms: int | None = None
    """End of the last word; None: the recording's end."""


def read_manifest(path: Path) -> Callable[[int], Sequence[SttUtterance]]:
    """Read a file with a JSON object on each line; return a function that gives its utterances at a rate in Hz.

    Raises:
        ConfigError: it cannot be read, a line is no such object, no line has a text, or a recording is not audio.
    """
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        recordings = [msgspec.json.decode(line, type=ManifestRecording) for line in lines]
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as why:
        expected = '{"path": "a.wav", "text": "what is said"} on each line'
        raise ConfigError(f"--manifest: expected {expected}, got {str(path)!r}: {why}") from None
    spoken = [each for each in recordings if each.text]
    if not spoken:
        raise ConfigError(f"--manifest: expected recordings with a text, got none in {str(path)!r}")

    @lru_cache
    def utterances(rate_hz: int) -> Sequence[SttUtterance]:
        return [_read(path.parent, each, rate_hz) for each in spoken]

    return utterances


def _read(folder: Path, recording: ManifestRecording, rate_hz: int) -> SttUtterance:
    try:
        samples = read_sound(folder / recording.path, rate_hz)
    except UnreadableSound as why:
        raise ConfigError(f"--manifest: {why}") from None
    end_ms = recording.speech_end_ms
    speech = samples if end_ms is None else samples[: end_ms * rate_hz // 1_000]
    return SttUtterance(recording.path, speech, rate_hz, recording.text or "")
