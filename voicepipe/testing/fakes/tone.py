"""A fake's speech: an audible tone that tests can measure and distinguish from silence."""

from __future__ import annotations

import io
import struct
import wave
from functools import lru_cache

import numpy as np

from voicepipe.ports.transcriber import Samples

AMPLITUDE = 8_000
"""About -15 dBFS as a sine: as loud as well-levelled speech."""

PITCH_HZ = 220
FADE_MS = 5
"""Length of the fades at both ends, against clicks."""


def tone_samples(text: str, *, ms_per_char: int, rate_hz: int) -> int:
    """Return the number of samples of `tone`."""
    return max(1, len(text.strip())) * ms_per_char * rate_hz // 1_000


def tone(text: str, *, ms_per_char: int = 40, rate_hz: int = 24_000) -> Samples:
    """Return a tone as long as the speech of `text`: int16, (n_samples,), at `rate_hz`. Read-only."""
    return _tone(tone_samples(text, ms_per_char=ms_per_char, rate_hz=rate_hz), rate_hz)


@lru_cache(maxsize=64)
def _tone(n_samples: int, rate_hz: int) -> Samples:
    # A second has a whole number of periods: one second is computed and repeated, since some tests use many minutes.
    second = np.sin(2 * np.pi * PITCH_HZ * np.arange(rate_hz) / rate_hz)
    samples = np.resize(np.rint(AMPLITUDE * second).astype(np.int16), n_samples)
    n_fade = min(n_samples, FADE_MS * rate_hz // 1_000 + 1)
    for at in (np.arange(n_fade), np.arange(n_samples - n_fade, n_samples)):
        fade = np.clip(np.minimum(at + 1, n_samples - at) / (FADE_MS * rate_hz / 1_000), 0, 1)
        samples[at] = np.rint(AMPLITUDE * fade * second[at % rate_hz])
    samples.setflags(write=False)
    return samples


def wav_header(rate_hz: int) -> bytes:
    """Return the header of a mono 16-bit WAV stream of unknown length: both sizes are the largest number."""
    unknown = 0xFFFF_FFFF
    form = struct.pack("<HHIIHH", 1, 1, rate_hz, 2 * rate_hz, 2, 16)
    return (
        b"RIFF"
        + struct.pack("<I", unknown)
        + b"WAVEfmt "
        + struct.pack("<I", 16)
        + form
        + b"data"
        + struct.pack("<I", unknown)
    )


def read_wav(file: bytes) -> Samples:
    """Return the audio of a mono 16-bit WAV file: int16, (n_samples,).

    Raises:
        ValueError: it is another kind of file.
    """
    try:
        with wave.open(io.BytesIO(file)) as reader:
            if (reader.getnchannels(), reader.getsampwidth()) != (1, 2):
                raise ValueError(f"expected mono 16-bit, got {reader.getparams()}")
            return np.frombuffer(reader.readframes(reader.getnframes()), dtype="<i2").astype(np.int16)
    except (wave.Error, EOFError) as error:
        raise ValueError(f"expected a wav file: {error}") from None
