"""Language models behind OpenAI's chat completions: OpenAI, Groq, vLLM, Ollama, OpenRouter and similar servers.

Source of the wire: OpenAI API reference, "Create chat completion" and "Streaming"; other servers' deviations are noted
where they are handled.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from voicepipe.ports.model import Model, ModelEvent, ModelRequest
from voicepipe.providers.llm.event_stream import streamed
from voicepipe.providers.net import http, options
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.openai.answer import AnswerReader
from voicepipe.providers.openai.options import OpenAiOptions
from voicepipe.providers.openai.request import call_ids, request_body
from voicepipe.registry import ProviderSettings, Spec


def open_model(spec: Spec, settings: ProviderSettings) -> Model:
    """Return the model `spec.model` at the server of `settings`.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    return _OpenAiModel(address_of(spec, settings), OpenAiOptions.of(spec, settings))


def address_of(spec: Spec, settings: ProviderSettings) -> ProviderAddress:
    """Return the address of such a model.

    Raises:
        ConfigError: as in `open_model`.
    """
    chosen = OpenAiOptions.of(spec, settings)
    more = options.members(chosen.headers, str)
    return ProviderAddress.of("llm", spec, settings, auth_scheme=chosen.auth_scheme, more_headers=more)


class _OpenAiModel:
    def __init__(self, address: ProviderAddress, options: OpenAiOptions) -> None:
        self.name = address.name
        self._address, self._options = address, options

    def open(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        return self._open(request)

    async def warm(self, request: ModelRequest) -> None:
        # Only connects: a request with the prompt would be billed as an answer.
        await http.preconnect(self._address, "/models")

    @asynccontextmanager
    async def _open(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        options = self._options
        affinity = {options.session_header: request.session} if options.session_header and request.session else {}
        body = request_body(self._address, request, options)
        known, repeats_calls = call_ids(request.messages, options), options.call_ids == "nine"
        reader = AnswerReader(self._address, known, repeats_calls=repeats_calls)
        async with streamed(self._address, "/chat/completions", body, reader, headers=affinity) as events:
            yield events
