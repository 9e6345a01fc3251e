"""Audio files: read wav, flac, ogg and mp3; write wav."""

from __future__ import annotations

import io
import wave
from os import PathLike
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from voicepipe.audio.samples import FULL_SCALE, Samples, to_pcm
from voicepipe.errors import VoicepipeError


class UnreadableSound(VoicepipeError):
    """A file does not exist or is not readable audio. The text names the file and the reason."""


def read_sound(source: str | PathLike[str] | BinaryIO, rate_hz: int) -> Samples:
    """Read a whole audio file (wav, flac, ogg, mp3) as mono at `rate_hz`.

    Channels are averaged; other rates are converted. Blocks: not for the event loop.

    Returns:
        int16, (n_samples,).

    Raises:
        UnreadableSound: no such file, or not audio.
    """
    import soundfile  # both are costly to import and rarely needed
    import soxr

    try:
        if isinstance(source, str | PathLike):
            # libsndfile calls every failure of the system "System error": the system itself reports which it was.
            open(source, "rb").close()
        channels, from_hz = soundfile.read(source, dtype="float32", always_2d=True)
    except OSError as why:
        raise UnreadableSound(f"{source}: {why.strerror or why}") from why
    except soundfile.SoundFileError as why:
        raise UnreadableSound(f"{source}: {getattr(why, 'error_string', why)}") from why
    mono: npt.NDArray[np.float32] = channels.mean(axis=1)
    if from_hz != rate_hz:
        mono = soxr.resample(mono, from_hz, rate_hz)
    return np.clip(np.rint(mono * FULL_SCALE), -FULL_SCALE, FULL_SCALE - 1).astype(np.int16)


def wav_bytes(samples: Samples, rate_hz: int) -> bytes:
    """Return a mono 16-bit WAV file of `samples`, int16, (n_samples,)."""
    file = io.BytesIO()
    with wave.open(file, "wb") as wav:
        wav.setnchannels(1)
        wav.setsampwidth(2)
        wav.setframerate(rate_hz)
        wav.writeframes(to_pcm(samples))
    return file.getvalue()


def write_wav(path: str | PathLike[str], samples: Samples, rate_hz: int) -> None:
    """Write `samples`, int16, (n_samples,), as a mono 16-bit WAV file."""
    with open(path, "wb") as file:
        file.write(wav_bytes(samples, rate_hz))
