"""Transcribe a recording in pieces, split at pauses, within the limits of every transcriber."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from voicepipe.audio.decode_file import TooLong
from voicepipe.audio.files import UnreadableSound
from voicepipe.clock import monotonic_ms
from voicepipe.errors import ProtocolError, StageBroken
from voicepipe.ports.provider_events import ProviderChanged
from voicepipe.ports.transcriber import Final as FinalText
from voicepipe.ports.transcriber import Samples, TranscriptEvent, TranscriptionOptions, TranscriptStream
from voicepipe.protocol.audio_rest_transcript import TranscriptPiece
from voicepipe.server.audio_ports import AudioModels, TranscriptionRoute
from voicepipe.server.decoding import DecodedRecording

PUSH_MS: Final = 250
"""Length of the audio of one `push`: a WebSocket message, at some vendors."""


@contextmanager
def convert_file_errors() -> Iterator[None]:
    """Convert an error of the file to an error of the request."""
    try:
        yield
    except UnreadableSound as why:
        code = "audio_too_long" if isinstance(why, TooLong) else "invalid_file_format"
        raise ProtocolError(f"file: {why}", field="file", code=code) from None


class RecordingTranscription:
    """Transcribes one recording."""

    def __init__(
        self, route: TranscriptionRoute, options: TranscriptionOptions, recording: DecodedRecording, models: AudioModels
    ) -> None:
        """`models` have the prices."""
        self._route, self._options, self._recording, self._models = route, options, recording, models
        self.spec = route.specs[0]
        """The spec of the STT that transcribes."""

        self.language: str | None = None
        """The language that the STT reports, BCP-47; None: none."""

        self.n_transcribed = 0
        """Number of pieces that were transcribed."""

        self.first_ms: int | None = None
        """Time to the text of the first piece, in ms."""

        self._began_ms = monotonic_ms()

    @property
    def duration_s(self) -> float:
        """Seconds of the recording that were decoded."""
        return self._recording.read_s

    @asynccontextmanager
    async def pieces(self) -> AsyncIterator[AsyncIterator[TranscriptPiece]]:
        """Yield the pieces that contain speech, while the block runs.

        Raises:
            StageError: from the iterator too: the STT refused, stalled or broke.
            ProtocolError: from the iterator: the file is broken, too long or has no sound.
        """
        async with self._route.transcriber.open(self._options) as stream:
            yield self._transcribe(stream)

    def cost_usd(self) -> float | None:
        """Return the price of the audio so far; None: unknown."""
        return self._models.stt_usd(self.spec, self._recording.read_s)

    async def _transcribe(self, stream: TranscriptStream) -> AsyncIterator[TranscriptPiece]:
        rate_hz, events = self._route.transcriber.capabilities.rate_hz, aiter(stream)
        n_samples = n_pieces = 0
        while (samples := await self._next_samples()) is not None:
            n_pieces += 1
            _push(stream, n_pieces, samples, PUSH_MS * rate_hz // 1_000)
            final = await self._final(events, n_pieces)
            if final is None:
                why = "the STT ended before the recording was transcribed"
                raise StageBroken("stt", provider=self.spec, why=why, retryable=True)
            self.n_transcribed = n_pieces
            self.language = self.language or final.language
            if self.first_ms is None:
                self.first_ms = monotonic_ms() - self._began_ms
            start_s, n_samples = n_samples / rate_hz, n_samples + len(samples)
            if text := final.text.strip():
                if (self._options.word_times or self._options.speakers) and not final.words:
                    why = "expected the times of words, got none"
                    raise StageBroken("stt", provider=self.spec, why=why, retryable=True)
                piece_words = tuple(word.later(start_s) for word in final.words)
                yield TranscriptPiece(start_s, n_samples / rate_hz, text, final.language, piece_words)
        if not self._recording.read_s:
            raise ProtocolError("file: expected some sound, got none", field="file", code="audio_too_short")

    async def _final(self, events: AsyncIterator[TranscriptEvent], number: int) -> FinalText | None:
        """Return the final text of a piece; None: the stream is over."""
        async for event in events:
            match event:
                case ProviderChanged(provider):
                    self.spec = provider
                case FinalText(utterance=utterance, flush=1) if utterance == number:
                    return event
        return None

    async def _next_samples(self) -> Samples | None:
        with convert_file_errors():
            return await self._recording.next_piece()


def _push(stream: TranscriptStream, number: int, samples: Samples, n_pushed: int) -> None:
    """Have one piece transcribed as a separate utterance."""
    stream.begin(number)
    for begin in range(0, len(samples), n_pushed):
        stream.push(samples[begin : begin + n_pushed])
    stream.flush(1)
