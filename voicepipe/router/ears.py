"""A transcriber made of several: when one breaks or its text is late, the next gets the utterance again from its
start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from voicepipe.router.lineup import Lineup
from voicepipe.router.relay import Hearer, Relay
from voicepipe.stages.helpers import helpers
from voicepipe.stages.transcriber import Hearing, TranscriberCapabilities, TranscriptStream


class RoutedTranscriber:
    """Meets the port `Transcriber`."""

    def __init__(self, hearers: tuple[Hearer, ...], lineup: Lineup) -> None:
        """`hearers`: the transcribers of the lineup, best first."""
        self.name = hearers[0].candidate.spec
        self.capabilities = common(tuple(each.transcriber.capabilities for each in hearers))
        self._hearers = {each.candidate.spec: each for each in hearers}
        self._lineup = lineup

    def open(self, hearing: Hearing) -> AbstractAsyncContextManager[TranscriptStream]:
        """Begin one session's stream.

        Raises:
            StageError: from the iterator: all transcribers have failed, one after the other; it is the error of the
                last.
        """
        return self._open(hearing)

    @asynccontextmanager
    async def _open(self, hearing: Hearing) -> AsyncIterator[TranscriptStream]:
        async with helpers() as owned:
            relay = Relay(hearing, self._hearers, self._lineup, self.capabilities)
            owned.start(relay.run(), name=f"relay-{self.name}")
            try:
                yield relay
            finally:
                relay.close()


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
