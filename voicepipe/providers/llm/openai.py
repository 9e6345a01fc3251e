"""Language models behind OpenAI's chat completions: OpenAI, Groq, vLLM, Ollama, OpenRouter and similar servers.

Source of the wire: OpenAI API reference, "Create chat completion" and "Streaming"; other servers' deviations are noted
where they are handled.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from voicepipe.providers.llm import openai_answer, openai_request
from voicepipe.providers.llm.streamed import Streamed
from voicepipe.providers.net import http, options
from voicepipe.providers.net.openai import OpenAiOptions
from voicepipe.providers.net.peer import Peer
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.stages.model import Model, ModelEvent, ModelRequest


def open_model(spec: Spec, settings: ProviderSettings) -> Model:
    """Return the model `spec.model` at the server of `settings`.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    return _OpenAiModel(peer(spec, settings), OpenAiOptions.of(spec, settings))


def peer(spec: Spec, settings: ProviderSettings) -> Peer:
    """Return the endpoint of such a model.

    Raises:
        ConfigError: as in `open_model`.
    """
    chosen = OpenAiOptions.of(spec, settings)
    more = options.members(chosen.headers, str)
    return Peer.of("llm", spec, settings, auth_scheme=chosen.auth_scheme, more_headers=more)


class _OpenAiModel:
    def __init__(self, peer: Peer, options: OpenAiOptions) -> None:
        self.name = peer.name
        self._peer, self._options = peer, options

    def open(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        return self._open(request)

    async def warm(self, request: ModelRequest) -> None:
        # Only connects: a request with the prompt would be billed as an answer.
        await http.touch(self._peer, "/models")

    @asynccontextmanager
    async def _open(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        options = self._options
        affinity = {options.session_header: request.session} if options.session_header and request.session else {}
        body = openai_request.body(self._peer, request, options)
        async with http.post(
            self._peer, "/chat/completions", json=body, headers=affinity, reached=request.reached
        ) as answer:
            known = openai_request.call_ids(request.messages, options)
            yield Streamed(self._peer, answer, openai_answer.AnswerReader(self._peer, known))
