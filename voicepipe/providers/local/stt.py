"""Local STT: the adapter of Moonshine tiny, English only."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from msgspec import Struct

from voicepipe.audio.silence_trim import quietest_cut
from voicepipe.errors import StageError
from voicepipe.ports.transcriber import Final as FinalText
from voicepipe.ports.transcriber import (
    Samples,
    Transcriber,
    TranscriberCapabilities,
    TranscriptEvent,
    TranscriptionOptions,
)
from voicepipe.providers.local import wire
from voicepipe.providers.local.connection import Exchange, Link, link, new_session
from voicepipe.registry import ProviderSettings, Spec

MODEL: Final = "moonshine-tiny"

PIECE_MS: Final = 15_000
"""Longer speech is cut: decoding time grows faster than length, and past 30 s the model repeats itself."""

EARLIEST_CUT_MS: Final = 8_000
"""The cut is at the quietest point after this, within the piece."""

MAX_PIECES: Final = 40
"""Maximum number of pieces of one utterance: ten minutes. Past that the oldest piece is dropped and counted."""

MAX_FLUSHES: Final = 10
"""Utterances of one session whose text is pending."""

_PIECE_SAMPLES: Final = PIECE_MS * wire.STT_RATE_HZ // 1000


def open_transcriber(spec: Spec, settings: ProviderSettings) -> Transcriber:
    """Make the adapter; `registry` names this function.

    Raises:
        ConfigError: another model, no socket, or missing packages.
    """
    return LocalTranscriber(link("stt", spec, settings, model=MODEL))


class LocalTranscriber:
    """Moonshine in the engine process. It transcribes an utterance as a whole, when it is flushed."""

    capabilities = TranscriberCapabilities(
        rate_hz=wire.STT_RATE_HZ, streams=False, short_words=False, reports_language=False, english_only=True
    )

    def __init__(self, link: Link) -> None:
        self.name = link.provider
        self._link = link

    @asynccontextmanager
    async def open(self, transcription: TranscriptionOptions) -> AsyncIterator[LocalStream]:
        """Open one session's STT stream. The prompt is ignored: the model takes none.

        Raises:
            StageRefused: another model, or another language than English, was requested.
        """
        if transcription.model != MODEL:
            raise self._link.refused(f"expected the model {MODEL!r}, got {transcription.model!r}")
        if transcription.language and transcription.language.lower().split("-")[0] != "en":
            raise self._link.refused(f"expected the language English, got {transcription.language!r}")
        stream = LocalStream(self._link)
        try:
            yield stream
        finally:
            stream.close()


@dataclass(slots=True, eq=False)
class _Piece:
    """A closed piece of an utterance, and its text once it is transcribed."""

    samples: Samples
    text: str | None = None


@dataclass(slots=True)
class _Utterance:
    number: int
    pieces: deque[_Piece] = field(default_factory=lambda: deque(maxlen=MAX_PIECES))
    """Closed pieces. Full: the oldest is dropped, see `push`."""

    rest: list[Samples] = field(default_factory=list)
    """Audio after the last closed piece, less than `PIECE_MS`."""

    rest_samples: int = 0


class _Flush(Struct, frozen=True):
    """A flush, with the utterance as it was at that time."""

    utterance: int
    number: int
    pieces: tuple[_Piece, ...]

    @property
    def text(self) -> str:
        """The text of all pieces, once each has its text."""
        return " ".join(piece.text for piece in self.pieces if piece.text)


class LocalStream:
    """The STT stream of one session. Closed pieces of long speech are decoded while the user goes on speaking, so that
    a flush never waits for more than one piece."""

    def __init__(self, link: Link) -> None:
        self.dropped_samples = 0
        """Audio that was dropped before a flush."""
        self._link, self._session = link, new_session()
        self._utterance = _Utterance(0)
        self._flushes: dict[int, _Flush] = {}
        """utterance -> its latest flush. One for each: a later flush of the same utterance replaces one that waits.
        Full means that the engine is ten utterances behind: the oldest is dropped."""
        self._wake = asyncio.Event()
        self._exchange: Exchange | None = None
        self._failure: StageError | None = None
        self._closed = False

    def begin(self, utterance: int) -> None:
        """Start a new utterance with the next `push`."""
        self._utterance = _Utterance(utterance)

    def push(self, samples: Samples) -> None:
        """Append audio: int16, (n_samples,), at 16 kHz. It is copied."""
        utterance = self._utterance
        utterance.rest.append(samples.copy())
        utterance.rest_samples += samples.size
        while utterance.rest_samples >= _PIECE_SAMPLES:
            self._close_piece(utterance)

    def flush(self, flush: int) -> None:
        """Request the text of all audio since `begin`."""
        utterance = self._utterance
        rest = _Piece(_joined(utterance.rest))
        if len(self._flushes) == MAX_FLUSHES and utterance.number not in self._flushes:
            del self._flushes[next(iter(self._flushes))]
        self._flushes[utterance.number] = _Flush(utterance.number, flush, (*utterance.pieces, rest))
        self._wake.set()

    def close(self) -> None:
        """End the iteration, and cancel the running decode."""
        self._closed = True
        self._wake.set()
        if self._exchange is not None:
            self._exchange.close()

    def __aiter__(self) -> LocalStream:
        return self

    async def __anext__(self) -> TranscriptEvent:
        """Return the next final; one for each flush that was not replaced by a later one.

        Raises:
            StageError: the engine refused, stalled or broke; again on each later call.
        """
        while not self._closed:
            if self._failure is not None:
                raise self._failure
            pending = next(iter(self._flushes.values()), None)
            undecoded = _undecoded(pending.pieces if pending else tuple(self._utterance.pieces))
            if undecoded is not None:
                await self._decode(undecoded)
            elif pending is not None:
                del self._flushes[pending.utterance]
                return FinalText(pending.utterance, pending.number, pending.text, "en")
            else:
                self._wake.clear()
                await self._wake.wait()
        raise StopAsyncIteration

    def _close_piece(self, utterance: _Utterance) -> None:
        samples = _joined(utterance.rest)
        cut = quietest_cut(samples[:_PIECE_SAMPLES], wire.STT_RATE_HZ, from_ms=EARLIEST_CUT_MS)
        if len(utterance.pieces) == MAX_PIECES:
            self.dropped_samples += utterance.pieces[0].samples.size
        utterance.pieces.append(_Piece(samples[:cut]))
        utterance.rest, utterance.rest_samples = [samples[cut:]], samples.size - cut
        self._wake.set()

    async def _decode(self, piece: _Piece) -> None:
        self._exchange = Exchange(self._link)
        try:
            await self._exchange.send(wire.Transcribe(self._session, piece.samples.tobytes()))
            reply = await self._exchange.next()
            if not isinstance(reply, wire.Transcribed):
                raise self._link.broken("the engine answered without a text")
            piece.text = reply.text
        except StageError as error:
            if not self._closed:
                self._failure = error
        finally:
            self._exchange.close()


def _undecoded(pieces: tuple[_Piece, ...]) -> _Piece | None:
    return next((piece for piece in pieces if piece.text is None), None)


def _joined(parts: list[Samples]) -> Samples:
    return np.concatenate(parts) if parts else np.zeros(0, np.int16)
