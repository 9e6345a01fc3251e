"""Gemini models behind Google's own `streamGenerateContent`.

Source of the wire: ai.google.dev, "generateContent", "Thinking", "Function calling", "Thought signatures".
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from urllib.parse import quote

from voicepipe.providers.llm import gemini_answer, gemini_request
from voicepipe.providers.llm.gemini_options import GeminiOptions
from voicepipe.providers.llm.signatures import Signatures
from voicepipe.providers.llm.streamed import Streamed
from voicepipe.providers.net import http
from voicepipe.providers.net.peer import Peer
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.stages.model import Model, ModelEvent, ModelRequest


def open_model(spec: Spec, settings: ProviderSettings) -> Model:
    """Return the model `spec.model` at the server of `settings`.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    return _GeminiModel(peer(spec, settings), GeminiOptions.of(spec, settings))


def peer(spec: Spec, settings: ProviderSettings) -> Peer:
    """Return the endpoint of such a model.

    Raises:
        ConfigError: as in `open_model`.
    """
    return Peer.of("llm", spec, settings, auth_scheme="", key_header="x-goog-api-key")


class _GeminiModel:
    def __init__(self, peer: Peer, options: GeminiOptions) -> None:
        self.name = peer.name
        self._peer, self._options = peer, options
        self._signatures = Signatures()

    def open(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        return self._open(request)

    async def warm(self, request: ModelRequest) -> None:
        # Only connects: a request with the prompt would be billed as an answer.
        await http.touch(self._peer, "/models")

    @asynccontextmanager
    async def _open(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        body = gemini_request.body(self._peer, request, self._options, self._signatures)
        path = f"/models/{quote(request.model, safe='')}:streamGenerateContent?alt=sse"
        async with http.post(self._peer, path, json=body, reached=request.reached) as answer:
            yield Streamed(self._peer, answer, gemini_answer.AnswerReader(self._peer, self._signatures))
