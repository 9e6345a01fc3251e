"""The local voice: the adapter of Hibari."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import numpy as np

from voicepipe.errors import StageRefused
from voicepipe.providers.local import wire
from voicepipe.providers.local.link import Link, link, new_session
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.stages.synthesizer import RATE_HZ, Spoken, Synthesizer, Voice

MODEL: Final = "hibari"
VOICES: Final = ("heart",)
"""The one inside the wheel; the library would download others."""

SLOWEST: Final = 0.5
FASTEST: Final = 2.0
"""The voice was made for speeds between these (its documentation); others are brought to the nearer."""

MAX_CLAUSES: Final = 256
"""That may wait to be spoken, an hour of speech. Full refuses: nothing that a model means to say is longer."""

PIECE_CHARACTERS: Final = 200
"""Spoken in one call, at most: about 12 s of sound and 100 ms of work, which is what a cancel may have to wait for."""

WORD_CHARACTERS: Final = 40
"""Longer words are cut: each digit of a number can become a word of its own."""

_SLICE_SAMPLES: Final = RATE_HZ // 5


def open_synthesizer(spec: Spec, settings: ProviderSettings) -> Synthesizer:
    """The factory that `registry` names.

    Raises:
        ConfigError: another model, no socket, or missing packages.
    """
    return LocalSynthesizer(link("tts", spec, settings, model=MODEL))


class LocalSynthesizer:
    """Hibari in the engine process."""

    def __init__(self, link: Link) -> None:
        self.name = link.provider
        self._link = link

    @asynccontextmanager
    async def open(self, voice: Voice) -> AsyncIterator[LocalSpeech]:
        """Begin one turn's speech. The language is ignored: the voice reads everything as English.

        Raises:
            StageRefused: another model or voice than the one that is there.
        """
        if voice.model != MODEL:
            raise self._link.refused(f"expected the model {MODEL!r}, got {voice.model!r}")
        if voice.voice is not None and voice.voice not in VOICES:
            raise self._link.refused(f"expected one of the voices {', '.join(VOICES)}, got {voice.voice!r}")
        yield LocalSpeech(self._link, min(max(voice.speed, SLOWEST), FASTEST))


class LocalSpeech:
    """One turn's voice. Each piece of text is asked for when the sound before it has been taken, which is soon
    enough at fifty times real time, and makes a consumer that stops the end of it."""

    def __init__(self, link: Link, speed: float) -> None:
        self._link, self._speed, self._session = link, speed, new_session()
        # Room for the finish too. Full refuses, see MAX_CLAUSES.
        self._clauses: asyncio.Queue[str | None] = asyncio.Queue(maxsize=MAX_CLAUSES + 1)

    def say(self, clause: str) -> None:
        """Speak this clause after those before it.

        Raises:
            StageRefused: too many clauses wait.
        """
        if self._clauses.qsize() >= MAX_CLAUSES:
            why = f"expected {MAX_CLAUSES} waiting clauses at most"
            raise StageRefused(self._link.stage, provider=self._link.provider, why=why, retryable=False)
        self._clauses.put_nowait(clause)

    def finish(self) -> None:
        """No clause follows."""
        self._clauses.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[Spoken]:
        """Sound, 200 ms at a time. A clause without a speakable character has none.

        Raises:
            StageError: the engine refused, stalled or broke.
        """
        number = 0
        while (clause := await self._clauses.get()) is not None:
            for piece in pieces(clause):
                async with self._link.ask(wire.Speak(self._session, piece, self._speed)) as replies:
                    async for reply in replies:
                        if isinstance(reply, wire.Audio):
                            for spoken in _slices(number, reply.samples):
                                yield spoken
            number += 1


def pieces(clause: str) -> list[str]:
    """Cut a clause into texts of `PIECE_CHARACTERS` at most, between words, each with something to say."""
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
