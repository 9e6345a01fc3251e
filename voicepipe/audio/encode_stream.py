"""Write audio in file formats as a stream: each piece can be sent before the next piece is known.

Header fields that depend on the end stay unset, as in every stream. Players read them as "unknown".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

from msgspec import Struct

from voicepipe.audio.samples import Samples, to_pcm

MP3_COMPRESSION: Final = 0.5
"""0 (best) to 1: about 80 kbit/s at 24 kHz. Constant bit rate, since players estimate the length of a stream from its
rate.
"""

UNKNOWN_SIZE: Final = 0xFFFF_FFFF
"""The size fields of a WAV stream (EBU Tech 3306 reserves this value)."""


class SoundWriter(Protocol):
    """Writes one audio stream. Its methods block: use a thread, unless the format is `light`."""

    def push(self, samples: Samples) -> bytes:
        """Return the bytes that are complete after `samples`, int16, (n_samples,), mono; may be empty."""
        ...

    def finish(self) -> bytes:
        """Return the remaining bytes."""
        ...


class Format(Struct, frozen=True):
    """One output format."""

    name: str
    content_type: str
    light: bool
    """Encoding is too cheap to need a thread."""

    open: Callable[[int], SoundWriter]
    """Makes a writer for a sample rate in Hz."""


class _Pcm:
    """Raw samples, little-endian 16 bit."""

    def __init__(self, rate_hz: int) -> None:
        self._before = b""

    def push(self, samples: Samples) -> bytes:
        before, self._before = self._before, b""
        return before + to_pcm(samples)

    def finish(self) -> bytes:
        return self._before


class _Wav(_Pcm):
    """Raw samples behind a WAV header."""

    def __init__(self, rate_hz: int) -> None:
        self._before = wav_stream_header(rate_hz)


def wav_stream_header(rate_hz: int) -> bytes:
    """Return the header of a mono 16-bit WAV stream of unknown length.

    Source: Microsoft and IBM, Multimedia Programming Interface and Data Specifications 1.0, "WAVE".
    """
    form = struct.pack("<HHIIHH", 1, 1, rate_hz, 2 * rate_hz, 2, 16)
    size = struct.pack("<I", UNKNOWN_SIZE)
    return b"RIFF" + size + b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + size


class _Pipe:
    """A file that is read while it is written. Seeking back to correct the header has no effect: the header was already
    sent.
    """

    def __init__(self) -> None:
        self._at = self._end = 0
        self._new = bytearray()

    def write(self, data: bytes) -> int:
        piece = bytes(data)
        self._new += piece[max(0, self._end - self._at) :]
        self._at += len(piece)
        self._end = max(self._end, self._at)
        return len(piece)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._end)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        """Do nothing: there is no lower layer."""

    def take(self) -> bytes:
        """Return the bytes written since the last `take`."""
        piece = bytes(self._new)
        self._new.clear()
        return piece


class _Encoded:
    """A writer that encodes with libsndfile."""

    def __init__(self, rate_hz: int, container: str, codec: str, how: Mapping[str, Any]) -> None:
        import soundfile  # costly to import, and rarely needed

        self._pipe = _Pipe()
        self._file = soundfile.SoundFile(self._pipe, "w", rate_hz, 1, codec, format=container, **how)

    def push(self, samples: Samples) -> bytes:
        self._file.write(samples)
        return self._pipe.take()

    def finish(self) -> bytes:
        self._file.close()
        return self._pipe.take()


def _encoded(container: str, codec: str, **how: Any) -> Callable[[int], SoundWriter]:
    return lambda rate_hz: _Encoded(rate_hz, container, codec, how)


_CONSTANT: Final = {"bitrate_mode": "CONSTANT", "compression_level": MP3_COMPRESSION}

FORMATS: Final[Mapping[str, Format]] = MappingProxyType(
    {
        each.name: each
        for each in (
            Format("mp3", "audio/mpeg", False, _encoded("MP3", "MPEG_LAYER_III", **_CONSTANT)),
            Format("opus", "audio/ogg", False, _encoded("OGG", "OPUS")),
            Format("flac", "audio/flac", False, _encoded("FLAC", "PCM_16")),
            Format("wav", "audio/wav", True, _Wav),
            Format("pcm", "audio/pcm", True, _Pcm),
        )
    }
)
"""By the format names of OpenAI's speech endpoint."""
