"""A synthesizer made of several: the first with audio speaks, and when it breaks another continues with the next
word."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager

from voicepipe import clock
from voicepipe.ports.synthesizer import Speech, Voice
from voicepipe.router.speech_order import SpeechOrder
from voicepipe.router.tts.call import SynthesizerCandidate
from voicepipe.router.tts.speech import RoutedSpeech
from voicepipe.tasks import background_tasks


class RoutedSynthesizer:
    """Meets the port `Synthesizer`."""

    def __init__(self, speakers: tuple[SynthesizerCandidate, ...], speech_order: SpeechOrder) -> None:
        """`speakers`: the synthesizers of the lineup, best first."""
        self.name = speakers[0].candidate.spec
        self.voices = speakers[0].synthesizer.voices
        self._speakers = {each.candidate.spec: each for each in speakers}
        self._speech_order = speech_order

    @contextmanager
    def keep_warm(self, voice: Voice) -> Iterator[None]:
        """Keep the synthesizer ready that would speak first, and its fallback."""
        with ExitStack() as stack:
            for candidate in self._speech_order.order(voice.session, clock.monotonic_ms())[:2]:
                speaker = self._speakers[candidate.spec]
                stack.enter_context(speaker.synthesizer.keep_warm(speaker.voice(voice)))
            yield

    def open(self, voice: Voice) -> AbstractAsyncContextManager[Speech]:
        """Begin one turn's speech. A failure before the first audio is not raised while another synthesizer may
        speak.

        Raises:
            StageError: from the iterator: no synthesizer spoke to the end; it is the error of the last that was
                tried.
        """
        return self._open(voice)

    @asynccontextmanager
    async def _open(self, voice: Voice) -> AsyncIterator[Speech]:
        async with background_tasks() as owned:
            speech = RoutedSpeech(voice, self._speakers, self._speech_order, owned)
            try:
                yield speech
            finally:
                speech.close()
