"""Decode the audio of a speech answer's body to samples at the port's rate. No I/O.

A request for headerless PCM is answered with PCM, with a WAV file, or with another format.
"""

from __future__ import annotations

import struct
from email.message import Message
from functools import lru_cache

import numpy as np

from voicepipe.audio.resample import Resampler
from voicepipe.audio.samples import PcmJoiner, Samples
from voicepipe.ports.synthesizer import RATE_HZ

HEADER_BYTES = 65_536
"""Maximum length of a WAV header; a usual one has 44 bytes."""

_COMPRESSED = {b"ID3": "mp3", b"OggS": "ogg", b"fLaC": "flac"}
_COMPRESSED_TYPES = ("mpeg", "mp3", "ogg", "opus", "flac", "aac", "webm", "mp4")
_PCM, _EXTENSIBLE = 0x0001, 0xFFFE
_NONE: Samples = np.zeros(0, dtype=np.int16)


class NotSpeech(ValueError):
    """A body that cannot be played. The text names the expected and the received format."""


@lru_cache(maxsize=64)  # a vendor has one or two
def _kind_and_rate(content_type: str) -> tuple[str, int]:
    """Return what a Content-Type names: its type, and its rate in Hz; 0: it names none."""
    header = Message()
    header["Content-Type"] = content_type
    named = header.get_param("rate")
    return header.get_content_type(), int(named) if isinstance(named, str) and named.isdecimal() else 0


class SoundReader:
    """Takes one clause's body chunk by chunk, and returns its samples at `RATE_HZ`."""

    def __init__(self, content_type: str, *, rate_hz: int) -> None:
        """`content_type` is the received header, or empty; `rate_hz` that of headerless PCM whose header names none.

        Raises:
            NotSpeech: the type is of compressed audio.
        """
        kind, named_hz = _kind_and_rate(content_type)
        if any(name in kind for name in _COMPRESSED_TYPES):
            raise NotSpeech(f"expected pcm or wav, got {kind}")
        self._rate_hz = named_hz or rate_hz
        self._head: bytes | None = b""
        self._begins_at = 0
        self._left_bytes: int | None = None
        self._channels = 1
        self._joiner = PcmJoiner()
        self._odd_samples = _NONE
        self._resampler: Resampler | None = None
        self.n_samples = 0
        """Number of samples returned so far."""

    def push(self, chunk: bytes) -> Samples:
        """Return the samples that `chunk` completes: int16, (n_samples,), perhaps empty.

        Raises:
            NotSpeech: the body is compressed, or a WAV file of another kind than 16-bit PCM.
        """
        if self._head is not None:
            self._head += chunk
            if len(self._head) < 4 or (self._head[:4] == b"RIFF" and not self._read_header(self._head)):
                return _NONE
            self._refuse_compressed(self._head)
            chunk, self._head = self._head[self._begins_at :], None
            self._resampler = Resampler(self._rate_hz, RATE_HZ)
        return self._sound(chunk)

    def finish(self) -> Samples:
        """Return the rest, at the body's end. A WAV file that ends in its header has none."""
        last = _NONE
        if self._head and self._head[:4] != b"RIFF":  # less than 4 bytes in total
            self._resampler = Resampler(self._rate_hz, RATE_HZ)
            last = self._sound(self._head)
        if self._resampler is not None:
            rest = self._resampler.flush()
            self.n_samples += len(rest)
            last = np.concatenate([last, rest])
        return last

    def _sound(self, chunk: bytes) -> Samples:
        if self._left_bytes is not None:  # bytes after a WAV file's data are not audio
            chunk = chunk[: self._left_bytes]
            self._left_bytes -= len(chunk)
        samples = self._joiner.push(chunk)
        if self._channels > 1:
            samples = np.concatenate([self._odd_samples, samples])
            whole = len(samples) - len(samples) % self._channels
            self._odd_samples = samples[whole:]
            samples = samples[:whole].reshape(-1, self._channels).mean(axis=1).astype(np.int16)
        assert self._resampler is not None
        made = self._resampler.push(samples)
        self.n_samples += len(made)
        return made

    def _read_header(self, head: bytes) -> bool:
        """Find the data of a WAV file; False while its header is incomplete.

        Source: Microsoft Multimedia Standards Update, "New Multimedia Data Types", 1994 (chunks of WAVE).
        """
        at, known = 12, False
        while at + 8 <= len(head):
            name, size = head[at : at + 4], struct.unpack_from("<I", head, at + 4)[0]
            if name == b"data":
                if not known:
                    raise NotSpeech("expected a wav file with a format before its data, got one without")
                # Streaming servers do not have the size and write 0 or the largest number.
                self._left_bytes = size if 0 < size < 0x7FFF0000 else None
                self._begins_at = at + 8
                return True
            if name == b"fmt " and at + 24 <= len(head):
                self._read_format(head, at + 8)
                known = True
            at += 8 + size + size % 2
        if len(head) > HEADER_BYTES:
            raise NotSpeech(f"expected a wav header of at most {HEADER_BYTES} bytes, got a longer one")
        return False

    def _read_format(self, head: bytes, at: int) -> None:
        coding, channels, rate_hz, _, _, bits = struct.unpack_from("<HHIIHH", head, at)
        if coding not in (_PCM, _EXTENSIBLE) or bits != 16 or not 1 <= channels <= 8 or not rate_hz:
            raise NotSpeech(f"expected 16-bit pcm in the wav file, got coding {coding}, {bits} bits, {rate_hz} Hz")
        self._channels, self._rate_hz = channels, rate_hz

    def _refuse_compressed(self, head: bytes) -> None:
        for magic, name in _COMPRESSED.items():
            if head.startswith(magic):
                raise NotSpeech(f"expected pcm or wav, got {name}")
