"""Gemini models behind Google's own `streamGenerateContent`.

Source of the wire: ai.google.dev, "generateContent", "Thinking", "Function calling", "Thought signatures".
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from urllib.parse import quote

from voicepipe.ports.model import Model, ModelEvent, ModelRequest
from voicepipe.providers.google.answer import AnswerReader
from voicepipe.providers.google.options import GeminiOptions
from voicepipe.providers.google.request import request_body
from voicepipe.providers.google.thought_signatures import ThoughtSignatures
from voicepipe.providers.llm.event_stream import streamed
from voicepipe.providers.net import http
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.registry import ProviderSettings, Spec


def open_model(spec: Spec, settings: ProviderSettings) -> Model:
    """Return the model `spec.model` at the server of `settings`.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    return _GeminiModel(address_of(spec, settings), GeminiOptions.of(spec, settings))


def address_of(spec: Spec, settings: ProviderSettings) -> ProviderAddress:
    """Return the address of such a model.

    Raises:
        ConfigError: as in `open_model`.
    """
    return ProviderAddress.of("llm", spec, settings, auth_scheme="", key_header="x-goog-api-key")


class _GeminiModel:
    def __init__(self, address: ProviderAddress, options: GeminiOptions) -> None:
        self.name = address.name
        self._address, self._options = address, options
        self._signatures = ThoughtSignatures()

    def open(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        return self._open(request)

    async def warm(self, request: ModelRequest) -> None:
        # Only connects: a request with the prompt would be billed as an answer.
        await http.preconnect(self._address, "/models")

    @asynccontextmanager
    async def _open(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        body = request_body(self._address, request, self._options, self._signatures)
        path = f"/models/{quote(request.model, safe='')}:streamGenerateContent?alt=sse"
        async with streamed(self._address, path, body, AnswerReader(self._address, self._signatures)) as events:
            yield events
