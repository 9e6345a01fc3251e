"""Local TTS: the adapter of Hibari."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Final

import numpy as np

from voicepipe.errors import StageError
from voicepipe.ports.synthesizer import RATE_HZ, Spoken, Synthesizer, Voice
from voicepipe.providers.local import wire
from voicepipe.providers.local.connection import Exchange, Link, link, new_session
from voicepipe.registry import ProviderSettings, Spec

MODEL: Final = "hibari"
VOICES: Final = ("heart",)
"""The voice inside the wheel; the library would download others."""

SLOWEST: Final = 0.5
FASTEST: Final = 2.0
"""The speeds that the voice supports (its documentation); others are clamped to the nearer bound."""

MAX_CLAUSES: Final = 256
"""Maximum number of waiting clauses, half an hour of speech. Full: refuse; no model generates more in one turn."""

PIECE_CHARACTERS: Final = 200
"""Maximum length of one native call: about 12 s of audio and 100 ms of work, the longest delay of a cancel."""

WORD_CHARACTERS: Final = 30
"""Longer words are cut: the voice has no name for numbers of more than 36 digits, and fails at them."""

_SLICE_SAMPLES: Final = RATE_HZ // 5


def open_synthesizer(spec: Spec, settings: ProviderSettings) -> Synthesizer:
    """Make the adapter; `registry` names this function.

    Raises:
        ConfigError: another model, no socket, or missing packages.
    """
    return LocalSynthesizer(link("tts", spec, settings, model=MODEL))


class LocalSynthesizer:
    """Hibari in the engine process."""

    def __init__(self, link: Link) -> None:
        self.name = link.provider
        self.voices: frozenset[str] | None = frozenset(VOICES)
        self._link = link

    def keep_warm(self, voice: Voice) -> AbstractContextManager[None]:
        """Do nothing: the engine has loaded the voice."""
        return nullcontext()

    @asynccontextmanager
    async def open(self, voice: Voice) -> AsyncIterator[LocalSpeech]:
        """Begin one turn's speech. The language is ignored: the voice reads everything as English.

        Raises:
            StageRefused: another model or voice than the existing one was requested.
        """
        if voice.model != MODEL:
            raise self._link.refused(f"expected the model {MODEL!r}, got {voice.model!r}")
        if voice.voice is not None and voice.voice not in VOICES:
            raise self._link.refused(f"expected one of the voices {', '.join(VOICES)}, got {voice.voice!r}")
        speech = LocalSpeech(self._link, min(max(voice.speed, SLOWEST), FASTEST))
        try:
            yield speech
        finally:
            speech.close()


class LocalSpeech:
    """The speech of one turn. Each piece of text is requested when the earlier audio has been taken, which is soon
    enough at 50 times real time. So a consumer that stops also stops the synthesis."""

    def __init__(self, link: Link, speed: float) -> None:
        self._link, self._speed, self._session = link, speed, new_session()
        # Full: refuse, see MAX_CLAUSES. Items: (clause, piece of its text).
        self._waiting: deque[tuple[int, str]] = deque()
        self._sound: deque[Spoken] = deque()  # audio of one sentence at most: no more is requested while there is some
        self._speaking: tuple[int, Exchange] | None = None
        self._n_clauses = 0
        self._changed = asyncio.Event()
        self._failure: StageError | None = None
        self._finished = self._closed = False

    def push(self, clause: str) -> None:
        """Queue this clause after the earlier ones."""
        if len(self._waiting) >= MAX_CLAUSES:
            self._failure = self._link.refused(f"expected {MAX_CLAUSES} waiting clauses at most")
        self._waiting.extend((self._n_clauses, piece) for piece in pieces(clause))
        self._n_clauses += 1
        self._changed.set()

    def finish(self) -> None:
        """Mark the end: no clause follows."""
        self._finished = True
        self._changed.set()

    def close(self) -> None:
        """End the iteration, and cancel the running synthesis."""
        self._closed = True
        self._changed.set()
        if self._speaking is not None:
            self._speaking[1].close()

    def __aiter__(self) -> LocalSpeech:
        return self

    async def __anext__(self) -> Spoken:
        """Return audio, 200 ms at a time. A clause without a speakable character has none.

        Raises:
            StageError: the engine refused, stalled or broke, or too many clauses waited; again on each later call.
        """
        while not self._closed:
            if self._failure is not None:
                raise self._failure
            if self._sound:
                return self._sound.popleft()
            if self._speaking is not None or self._waiting:
                await self._speak()
            elif self._finished:
                break
            else:
                self._changed.clear()
                await self._changed.wait()
        raise StopAsyncIteration

    async def _speak(self) -> None:
        """Fetch the next sentence's audio, or detect that a piece is over."""
        try:
            if self._speaking is None:
                clause, text = self._waiting.popleft()
                self._speaking = clause, Exchange(self._link)
                await self._speaking[1].send(wire.Speak(self._session, text, self._speed))
            clause, exchange = self._speaking
            reply = await exchange.next()
            if isinstance(reply, wire.Audio):
                self._sound.extend(_slices(clause, reply.samples))
            else:
                exchange.close()
                self._speaking = None
        except StageError as error:
            if not self._closed:
                self._failure = error


def pieces(clause: str) -> list[str]:
    """Cut a clause into texts of `PIECE_CHARACTERS` at most, between words, each with speakable text."""
    words = [
        word[i : i + WORD_CHARACTERS]
        for word in clause.encode("utf-8", "replace").decode().split()
        for i in range(0, len(word), WORD_CHARACTERS)
    ]
    cut: list[str] = []
    for word in words:
        if cut and len(cut[-1]) + 1 + len(word) <= PIECE_CHARACTERS:
            cut[-1] += f" {word}"
        else:
            cut.append(word)
    return [text for text in cut if any(map(str.isalnum, text))]


def _slices(clause: int, sound: bytes) -> list[Spoken]:
    samples = np.frombuffer(sound, "<i2")
    return [Spoken(clause, samples[i : i + _SLICE_SAMPLES]) for i in range(0, samples.size, _SLICE_SAMPLES)]
