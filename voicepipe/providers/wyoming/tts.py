"""Text to speech by servers of the user's own network that speak Wyoming, such as Piper's.

Each clause is requested on its own connection: there is no other way to stop it. Source: the README of the package
`wyoming`, "Text to Speech".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import Any

from voicepipe.audio.resample import Resampler
from voicepipe.audio.samples import PcmJoiner, Samples
from voicepipe.errors import StageError
from voicepipe.ports.synthesizer import RATE_HZ, Speech, Synthesizer, Voice
from voicepipe.providers.net import failures
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.tts.per_clause import per_clause
from voicepipe.providers.wyoming import protocol
from voicepipe.registry import ProviderSettings, Spec


def open_synthesizer(spec: Spec, settings: ProviderSettings) -> Synthesizer:
    """Return the TTS at the server of `settings`; `spec.model` names the voice unless an agent does, and `default` is
    the server's own choice.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    return _WyomingSynthesizer(protocol.peer_of("tts", spec, settings))


class _WyomingSynthesizer:
    def __init__(self, address: ProviderAddress) -> None:
        self.name = address.name
        self.voices: frozenset[str] | None = None
        self._address = address

    def keep_warm(self, voice: Voice) -> AbstractContextManager[None]:
        return nullcontext()  # a connection serves one clause; in a local network it takes a millisecond

    def open(self, voice: Voice) -> AbstractAsyncContextManager[Speech]:
        return per_clause(self._address, self._stream, voice)

    async def _stream(self, voice: Voice, clause: str, deliver: Callable[[Samples], Awaitable[None]]) -> None:
        spoken = _Sound(self._address)
        async with protocol.connected(self._address) as line:
            await line.write("synthesize", _question(voice, clause))
            while (event := await line.read()).type != "audio-stop":
                if event.type == "audio-chunk" and len(samples := spoken.push(event)):
                    await deliver(samples)
        if len(samples := spoken.finish()):
            await deliver(samples)
        if not spoken.n_samples and any(map(str.isalnum, clause)):
            raise failures.broken(self._address, "the answer had no audio")


def _question(voice: Voice, clause: str) -> dict[str, Any]:
    named = voice.voice or (voice.model if voice.model != "default" else None)
    who: dict[str, str] = {}
    if named:
        who["name"] = named
    elif voice.language:
        who["language"] = voice.language.replace("-", "_")
    return {"text": clause, "voice": who} if who else {"text": clause}


class _Sound:
    """The audio of one clause, at the port's rate."""

    def __init__(self, address: ProviderAddress) -> None:
        self._address = address
        self._joiner = PcmJoiner()
        self._resampler: Resampler | None = None
        self.n_samples = 0
        """Number of samples returned so far."""

    def push(self, event: protocol.WyomingEvent) -> Samples:
        if self._resampler is None:
            self._resampler = Resampler(self._rate_hz(event), RATE_HZ)
        return self._counted(self._resampler.push(self._joiner.push(event.payload)))

    def finish(self) -> Samples:
        return self._counted((self._resampler or Resampler(RATE_HZ, RATE_HZ)).flush())

    def _counted(self, samples: Samples) -> Samples:
        self.n_samples += len(samples)
        return samples

    def _rate_hz(self, event: protocol.WyomingEvent) -> int:
        rate, width, channels = (event.data.get(name) for name in ("rate", "width", "channels"))
        if (width, channels) != (2, 1) or not isinstance(rate, int) or not 8_000 <= rate <= 192_000:
            raise self._wrong(rate, width, channels)
        return rate

    def _wrong(self, rate: object, width: object, channels: object) -> StageError:
        why = f"expected 16-bit mono sound, got {width!r} bytes a sample, {channels!r} channels, {rate!r} Hz"
        return failures.broken(self._address, why, retryable=False)
