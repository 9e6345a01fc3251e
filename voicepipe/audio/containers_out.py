"""Sound in the formats of files, written as it comes: each piece can be sent on before the next one is known.

What a file's header would say of its end stays unsaid, as in every stream: players take it for "unknown".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol

from voicepipe.audio.samples import Samples, to_pcm

MP3_COMPRESSION: Final = 0.5
"""Of 0 (best) to 1: some 80 kbit/s at 24 kHz. Constant, since players guess the length of a stream by its rate."""

UNKNOWN_SIZE: Final = 0xFFFF_FFFF
"""What a WAV stream says of its sizes (EBU Tech 3306 reserves it)."""


class SoundWriter(Protocol):
    """Writes one sound. Its work blocks: in a thread, unless the format is `light`."""

    def push(self, samples: Samples) -> bytes:
        """The bytes that are complete with `samples`, int16, (n_samples,), mono; perhaps none."""
        ...

    def finish(self) -> bytes:
        """The rest."""
        ...


@dataclass(frozen=True, slots=True)
class Format:
    """One way to write sound."""

    name: str
    content_type: str
    light: bool
    """It takes no time worth a thread."""

    open: Callable[[int], SoundWriter]
    """From the rate of the sound, in Hz."""


class _Pcm:
    """Bare samples, little-endian 16 bit."""

    def __init__(self, rate_hz: int) -> None:
        self._before = b""

    def push(self, samples: Samples) -> bytes:
        before, self._before = self._before, b""
        return before + to_pcm(samples)

    def finish(self) -> bytes:
        return self._before


class _Wav(_Pcm):
    """The same behind a header."""

    def __init__(self, rate_hz: int) -> None:
        self._before = wav_stream_header(rate_hz)


def wav_stream_header(rate_hz: int) -> bytes:
    """The header of a mono 16-bit WAV stream whose length nobody knows yet.

    Source: Microsoft and IBM, Multimedia Programming Interface and Data Specifications 1.0, "WAVE".
    """
    form = struct.pack("<HHIIHH", 1, 1, rate_hz, 2 * rate_hz, 2, 16)
    size = struct.pack("<I", UNKNOWN_SIZE)
    return b"RIFF" + size + b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + size


class _Pipe:
    """A file that is read while it is written. Going back to mend the header changes nothing: it has left."""

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
        """There is nothing below it."""

    def read(self, n_bytes: int = -1) -> bytes:
        return b""

    def take(self) -> bytes:
        """What was written since the last time."""
        piece = bytes(self._new)
        self._new.clear()
        return piece


class _Encoded:
    """By libsndfile."""

    def __init__(self, rate_hz: int, container: str, codec: str, how: Mapping[str, Any]) -> None:
        import soundfile  # type: ignore[import-untyped]  # costly to import, and rarely needed

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
"""By the names that OpenAI's speech endpoint has for them."""
