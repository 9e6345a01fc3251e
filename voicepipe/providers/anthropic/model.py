"""Claude models behind Anthropic's Messages API.

Source of the wire: Anthropic API reference, "Messages", "Streaming messages", "Prompt caching", "Tool use".
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from voicepipe.ports.model import Model, ModelEvent, ModelRequest
from voicepipe.providers.anthropic.answer import AnswerReader
from voicepipe.providers.anthropic.options import AnthropicOptions
from voicepipe.providers.anthropic.request import request_body
from voicepipe.providers.llm.event_stream import streamed
from voicepipe.providers.net import http
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.registry import ProviderSettings, Spec


def open_model(spec: Spec, settings: ProviderSettings) -> Model:
    """Return the model `spec.model` at the server of `settings`.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    return _AnthropicModel(address_of(spec, settings), AnthropicOptions.of(spec, settings))


def address_of(spec: Spec, settings: ProviderSettings) -> ProviderAddress:
    """Return the address of such a model.

    Raises:
        ConfigError: as in `open_model`.
    """
    chosen = AnthropicOptions.of(spec, settings)
    bare = chosen.auth == "x-api-key"
    return ProviderAddress.of(
        "llm",
        spec,
        settings,
        auth_scheme="" if bare else "Bearer",
        key_header="x-api-key" if bare else "Authorization",
        more_headers={"anthropic-version": chosen.version},
    )


class _AnthropicModel:
    def __init__(self, address: ProviderAddress, options: AnthropicOptions) -> None:
        self.name = address.name
        self._address, self._options = address, options

    def open(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        return self._open(request)

    async def warm(self, request: ModelRequest) -> None:
        # Only connects: a request with the prompt would be billed as an answer.
        await http.preconnect(self._address, "/models")

    @asynccontextmanager
    async def _open(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        body = request_body(self._address, request, self._options)
        async with streamed(self._address, "/messages", body, AnswerReader(self._address)) as events:
            yield events
