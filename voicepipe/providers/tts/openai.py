"""Text to speech behind OpenAI's audio speech: OpenAI, Groq, Kokoro-FastAPI, Speaches and their like.

One request for each clause. While a clause's sound is passed on, the next one's request is already under way.
Source of the wire: OpenAI API reference, "Create speech"; its guide says that `pcm` is 24 kHz, 16 bit, little-endian.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any

import msgspec

from voicepipe.audio.samples import Samples
from voicepipe.errors import StageError, StageRefused
from voicepipe.providers.net import failures, http
from voicepipe.providers.net.openai import OpenAiOptions, extra
from voicepipe.providers.net.peer import Peer
from voicepipe.providers.tts.sound import NotSpeech, SoundReader
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.stages.helpers import Helpers, helpers
from voicepipe.stages.synthesizer import Speech, Spoken, Synthesizer, Voice

AHEAD = 1
"""Clauses that are asked for before their turn. One hides the next request's wait; more would be paid for in vain
when the caller interrupts."""

MOST_CLAUSES = 1_024
"""The clauses that wait to be asked for. A turn has tens."""


def open_synthesizer(spec: Spec, settings: ProviderSettings) -> Synthesizer:
    """The voice `spec.model` at the server that `settings` name.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    options = OpenAiOptions.of(spec, settings)
    return _OpenAiSynthesizer(Peer.of("tts", spec, settings, auth_scheme=options.auth_scheme), options)


class _OpenAiSynthesizer:
    def __init__(self, peer: Peer, options: OpenAiOptions) -> None:
        self.name = peer.name
        self.voices: frozenset[str] | None = None
        self._peer, self._options = peer, options
        self._extra = extra(options.tts_extra)

    def keep_warm(self, voice: Voice) -> AbstractContextManager[None]:
        return nullcontext()  # the pool of connections keeps those of the last turns

    def open(self, voice: Voice) -> AbstractAsyncContextManager[Speech]:
        return self._open(voice)

    @asynccontextmanager
    async def _open(self, voice: Voice) -> AsyncIterator[Speech]:
        async with helpers() as owned:
            speech = _Clauses(self, voice, owned)
            try:
                yield speech
            finally:
                speech.close()

    async def stream(self, voice: Voice, clause: str, deliver: Callable[[Samples], Awaitable[None]]) -> None:
        """Hand the clause's sound to `deliver` as it comes: int16, (n_samples,), never empty, at the port's rate.

        Raises:
            StageError: the vendor refused, stalled or broke.
        """
        async with http.post(self._peer, "/audio/speech", json=self._body(voice, clause)) as answer:
            if answer.content_type.endswith("json") or answer.content_type.startswith("text/"):
                raise failures.in_band(self._peer, await answer.body(limit_bytes=http.ERROR_BODY_BYTES))
            try:
                reader = SoundReader(answer.header.get("Content-Type", ""), rate_hz=self._options.speech_rate_hz)
                while chunk := await answer.read():
                    if len(samples := reader.push(chunk)):
                        await deliver(samples)
            except NotSpeech as error:
                raise failures.broken(self._peer, str(error), retryable=False) from None
            if len(samples := reader.finish()):
                await deliver(samples)
            if not reader.n_samples and any(map(str.isalnum, clause)):
                raise failures.broken(self._peer, "the answer held no sound")

    def refusal(self, why: str) -> StageRefused:
        """The error for something that this adapter itself won't do."""
        return StageRefused(self._peer.stage, provider=self.name, why=why, retryable=False)

    def _body(self, voice: Voice, clause: str) -> bytes:
        fields: dict[str, Any] = {
            "model": voice.model,
            "input": clause,
            "response_format": self._options.speech_format,
        }
        if name := voice.voice or self._options.default_voice:
            fields["voice"] = name
        if voice.speed != 1.0:
            fields["speed"] = voice.speed
        return msgspec.json.encode(fields | self._extra)


class _Clause:
    """One clause under way: its request's task fills the queue, and ends it with None or a failure."""

    def __init__(self, number: int, text: str) -> None:
        self.number, self.text = number, text
        # Full means that the turn has 2 s of this clause in hand: the task waits, so the vendor's socket fills.
        self.sound: asyncio.Queue[Samples | StageError | None] = asyncio.Queue(maxsize=10)

    def abandon(self) -> None:
        """Tell whoever waits for its sound that none follows."""
        if self.sound.empty():
            self.sound.put_nowait(None)


class _Clauses:
    """One turn's voice."""

    def __init__(self, synthesizer: _OpenAiSynthesizer, voice: Voice, owned: Helpers) -> None:
        self._synthesizer, self._voice, self._owned = synthesizer, voice, owned
        self._n_said = 0
        # Full means a turn without end: refused, and the iterator says so.
        self._waiting: deque[_Clause] = deque()
        self._asked: deque[_Clause] = deque()  # at most 1 + AHEAD, kept so by _ask
        self._changed = asyncio.Event()
        self._finished = False
        self._failure: StageError | None = None

    def say(self, clause: str) -> None:
        if len(self._waiting) == MOST_CLAUSES:
            self._failure = self._synthesizer.refusal(f"more than {MOST_CLAUSES} clauses wait")
            return
        self._waiting.append(_Clause(self._n_said, clause))
        self._n_said += 1
        self._ask()

    def finish(self) -> None:
        self._finished = True
        self._changed.set()

    def close(self) -> None:
        """Nothing more is said; wakes whoever still listens."""
        self._waiting.clear()
        for clause in self._asked:
            clause.abandon()
        self._asked.clear()
        self.finish()

    def __aiter__(self) -> _Clauses:
        return self

    async def __anext__(self) -> Spoken:
        while self._failure is None:
            while not self._asked:
                if self._finished:
                    raise StopAsyncIteration
                self._changed.clear()
                await self._changed.wait()
            clause = self._asked[0]
            sound = await clause.sound.get()
            if isinstance(sound, StageError):
                self._failure = sound
            elif sound is not None:
                return Spoken(clause.number, sound)
            elif self._asked:  # empty once the context is left
                self._asked.popleft()
                self._ask()
        raise self._failure

    def _ask(self) -> None:
        while self._waiting and len(self._asked) <= AHEAD:
            clause = self._waiting.popleft()
            self._asked.append(clause)
            self._owned.start(self._speak(clause), name=f"tts-clause-{clause.number}")
        self._changed.set()

    async def _speak(self, clause: _Clause) -> None:
        end: StageError | None = None
        try:
            await self._synthesizer.stream(self._voice, clause.text, clause.sound.put)
        except StageError as error:
            end = error
        await clause.sound.put(end)
