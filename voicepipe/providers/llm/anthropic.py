"""Claude models behind Anthropic's Messages API.

Source of the wire: Anthropic API reference, "Messages", "Streaming messages", "Prompt caching", "Tool use".
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from voicepipe.providers.llm import anthropic_answer, anthropic_request
from voicepipe.providers.llm.anthropic_options import AnthropicOptions
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
    return _AnthropicModel(peer(spec, settings), AnthropicOptions.of(spec, settings))


def peer(spec: Spec, settings: ProviderSettings) -> Peer:
    """Return the endpoint of such a model.

    Raises:
        ConfigError: as in `open_model`.
    """
    chosen = AnthropicOptions.of(spec, settings)
    bare = chosen.auth == "x-api-key"
    return Peer.of(
        "llm",
        spec,
        settings,
        auth_scheme="" if bare else "Bearer",
        key_header="x-api-key" if bare else "Authorization",
        more_headers={"anthropic-version": chosen.version},
    )


class _AnthropicModel:
    def __init__(self, peer: Peer, options: AnthropicOptions) -> None:
        self.name = peer.name
        self._peer, self._options = peer, options

    def open(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        return self._open(request)

    async def warm(self, request: ModelRequest) -> None:
        # Only connects: a request with the prompt would be billed as an answer.
        await http.touch(self._peer, "/models")

    @asynccontextmanager
    async def _open(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        body = anthropic_request.body(self._peer, request, self._options)
        async with http.post(self._peer, "/messages", json=body, reached=request.reached) as answer:
            yield Streamed(self._peer, answer, anthropic_answer.AnswerReader(self._peer))
