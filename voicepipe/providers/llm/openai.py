"""Language models behind OpenAI's chat completions: OpenAI, Groq, vLLM, Ollama, OpenRouter and their like.

Source of the wire: OpenAI API reference, "Create chat completion" and "Streaming"; what other servers do
differently is noted where it is handled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from voicepipe.errors import StageError
from voicepipe.providers.llm import openai_answer, openai_request
from voicepipe.providers.net import failures, http
from voicepipe.providers.net.openai import OpenAiOptions
from voicepipe.providers.net.peer import Peer
from voicepipe.providers.net.sse import EventTooLong, SseReader
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.stages.model import Model, ModelEvent, ModelRequest

WHOLE_ANSWER_BYTES = 1 << 20
"""The most that is read of an answer which does not stream."""


def open_model(spec: Spec, settings: ProviderSettings) -> Model:
    """The model `spec.model` at the server that `settings` name.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    options = OpenAiOptions.of(spec, settings)
    return _OpenAiModel(Peer.of("llm", spec, settings, auth_scheme=options.auth_scheme), options)


class _OpenAiModel:
    def __init__(self, peer: Peer, options: OpenAiOptions) -> None:
        self.name = peer.name
        self._peer, self._options = peer, options

    def open(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        return self._open(request)

    async def warm(self, request: ModelRequest) -> None:
        # Only the connection: reading the prompt would be billed as an answer.
        await http.touch(self._peer, "/models")

    @asynccontextmanager
    async def _open(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        options = self._options
        affinity = {options.session_header: request.session} if options.session_header and request.session else {}
        body = openai_request.body(self._peer, request, options)
        async with http.post(self._peer, "/chat/completions", json=body, headers=affinity) as answer:
            yield _Events(self._peer, answer)


class _Events:
    """The answer's events, read from the vendor as they are asked for."""

    def __init__(self, peer: Peer, answer: http.Answer) -> None:
        self._peer, self._answer = peer, answer
        self._sse = SseReader()
        self._reader = openai_answer.AnswerReader(peer)
        # Holds what one read of the socket gave, and is emptied before the next.
        self._made: deque[ModelEvent] = deque()
        self._failure: StageError | None = None
        self._over = False

    def __aiter__(self) -> _Events:
        return self

    async def __anext__(self) -> ModelEvent:
        while not self._made:
            if self._failure is not None:
                raise self._failure
            if self._over:
                raise StopAsyncIteration
            try:
                await self._read()
            except StageError as error:
                self._failure = error  # raised when what came before it is taken
            self._made.extend(self._reader.take())
        return self._made.popleft()

    async def _read(self) -> None:
        if self._answer.content_type == "application/json":  # an error under 200, or a server that does not stream
            self._over = True
            self._reader.whole(await self._answer.body(limit_bytes=WHOLE_ANSWER_BYTES))
            return
        for data in await self._data():
            self._reader.data(data)
            if self._reader.done:
                self._over = True
                break
        if self._over:
            self._reader.end()

    async def _data(self) -> list[bytes]:
        try:
            chunk = await self._answer.read()
        except StageError:
            if not self._reader.finished:
                raise
            chunk = b""  # the vendor had said that the answer is complete: only its token counts are lost
        try:
            events = self._sse.push(chunk)
        except EventTooLong as error:
            raise failures.broken(self._peer, str(error)) from None
        if not chunk:
            self._over = True
            last = self._sse.finish()
            events = [last] if last is not None else []
        return [event.data for event in events]
