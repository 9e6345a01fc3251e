"""The encoding of an audio stream: little-endian int16 PCM, or G.711."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from voicepipe.audio import g711
from voicepipe.audio.formats import G711_HZ
from voicepipe.audio.formats import FormatName as FormatName
from voicepipe.audio.formats import TelephoneFormat as TelephoneFormat
from voicepipe.audio.samples import PcmJoiner, Samples, silence, to_pcm


class AudioEncoding(Struct, frozen=True):
    """The encoding of one channel of samples."""

    rate_hz: int
    name: FormatName = "audio/pcm"

    @property
    def sample_bytes(self) -> int:
        """Return the length of a sample."""
        return 2 if self.name == "audio/pcm" else 1

    @property
    def bytes_per_ms(self) -> int:
        """Return the length of 1 ms."""
        return self.sample_bytes * self.rate_hz // 1_000

    def encode(self, samples: Samples) -> bytes:
        """Return the bytes of samples, int16, (n_samples,).

        Samples that were decoded from the same kind of G.711 become the bytes that they were, but for mu-law's second
        zero: 0x7F becomes 0xFF.
        """
        match self.name:
            case "audio/pcmu":
                return g711.encode_mulaw(samples)
            case "audio/pcma":
                return g711.encode_alaw(samples)
            case "audio/pcm":
                return to_pcm(samples)

    def decode(self, audio: bytes | bytearray) -> Samples:
        """Return the samples of whole samples' bytes: int16, (n_samples,); may be read-only."""
        match self.name:
            case "audio/pcmu":
                return g711.decode_mulaw(audio)
            case "audio/pcma":
                return g711.decode_alaw(audio)
            case "audio/pcm":
                return PcmJoiner().push(audio)

    def silence(self, n_bytes: int) -> bytes:
        """Return silence of that length. In G.711 zero bytes are the loudest samples, or near them."""
        return self.encode(silence(n_bytes // self.sample_bytes))


MULAW: Final = AudioEncoding(G711_HZ, "audio/pcmu")
ALAW: Final = AudioEncoding(G711_HZ, "audio/pcma")
