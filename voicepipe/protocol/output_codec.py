"""Encode the agent's audio for the wire: 24 kHz samples to the bytes of the session's format."""

from __future__ import annotations

from typing import Final

from voicepipe.audio.encoding import AudioEncoding
from voicepipe.audio.formats import G711_HZ
from voicepipe.audio.resample import Resampler
from voicepipe.audio.samples import Samples
from voicepipe.protocol.session_types import PCM_HZ, AudioFormat

MAX_DELTA_SAMPLES: Final = PCM_HZ // 5
"""200 ms, the maximum for one delta: 12.8 kB of base64 as pcm. Clients' frame limits begin at 1 MiB."""


class OutputCodec:
    """Encodes one reply's audio. G.711 is resampled as a stream, so one codec serves one reply, in order."""

    def __init__(self, form: AudioFormat) -> None:
        self._encode = AudioEncoding(form.rate_hz, form.name).encode
        self._resampler = Resampler(PCM_HZ, G711_HZ) if form.is_g711 else None

    def push(self, samples: Samples) -> list[bytes]:
        """Return the encoded bytes of `samples`, int16, (n_samples,), 24 kHz, in pieces of at most MAX_DELTA_SAMPLES.

        G.711 keeps back a few milliseconds until `flush`.
        """
        if len(samples) <= MAX_DELTA_SAMPLES:
            pieces = [samples] if len(samples) else []
        else:
            pieces = [samples[i : i + MAX_DELTA_SAMPLES] for i in range(0, len(samples), MAX_DELTA_SAMPLES)]
        if self._resampler is None:
            return [self._encode(piece) for piece in pieces]
        coded = (self._encode(self._resampler.push(piece)) for piece in pieces)
        return [piece for piece in coded if piece]

    def flush(self) -> bytes:
        """Return what was kept back; perhaps nothing."""
        return b"" if self._resampler is None else self._encode(self._resampler.flush())
