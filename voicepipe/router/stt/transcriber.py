"""A transcriber made of several: when one breaks or its text is late, the next gets the utterance again from its
start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from voicepipe.ports.transcriber import TranscriberCapabilities, TranscriptionOptions, TranscriptStream
from voicepipe.router.speech_order import SpeechOrder
from voicepipe.router.stt.stream import FailoverStream, TranscriberCandidate
from voicepipe.tasks import background_tasks


class RoutedTranscriber:
    """Meets the port `Transcriber`."""

    def __init__(self, transcribers: tuple[TranscriberCandidate, ...], speech_order: SpeechOrder) -> None:
        """`transcribers`: the transcribers of the lineup, best first."""
        self.name = transcribers[0].candidate.spec
        self.capabilities = common(tuple(each.transcriber.capabilities for each in transcribers))
        self._transcribers = {each.candidate.spec: each for each in transcribers}
        self._speech_order = speech_order

    def open(self, transcription: TranscriptionOptions) -> AbstractAsyncContextManager[TranscriptStream]:
        """Begin one session's stream.

        Raises:
            StageError: from the iterator: all transcribers have failed, one after the other; it is the error of the
                last.
        """
        return self._open(transcription)

    @asynccontextmanager
    async def _open(self, transcription: TranscriptionOptions) -> AsyncIterator[TranscriptStream]:
        async with background_tasks() as owned:
            stream = FailoverStream(transcription, self._transcribers, self._speech_order, self.capabilities)
            owned.start(stream.run(), name=f"stt-router-{self.name}")
            try:
                yield stream
            finally:
                stream.close()


def common(several: tuple[TranscriberCapabilities, ...]) -> TranscriberCapabilities:
    """Return the capabilities to expect of a transcriber that may be any of these: the needs of the most demanding,
    the reliability of the least reliable."""
    return TranscriberCapabilities(
        rate_hz=max(each.rate_hz for each in several),
        streams=any(each.streams for each in several),
        partials=any(each.partials for each in several),
        finalize=all(each.finalize for each in several),
        short_words=all(each.short_words for each in several),
        turn_events=any(each.turn_events for each in several),
    )
