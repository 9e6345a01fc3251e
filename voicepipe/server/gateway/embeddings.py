"""`POST /v1/embeddings`: the embedding models of the settings, by OpenAI's published request.

A vendor's model name is not routed to another model: vectors of two models can't be compared.
"""

from __future__ import annotations

import math
import secrets
from typing import Final

from aiohttp import web

from voicepipe.auth.scopes import CHAT
from voicepipe.protocol.embeddings import EmbeddingRequest, embeddings_answer, read_embedding_request
from voicepipe.protocol.json_fields import JsonObject
from voicepipe.server.authenticate import Principal
from voicepipe.server.context import CONTEXT, ServerContext
from voicepipe.server.embedding_ports import EmbeddingRoute
from voicepipe.server.errors import NotFound
from voicepipe.server.gateway.chat import MAX_BODY_BYTES
from voicepipe.server.gateway.exchange import AnswerResult, Exchange
from voicepipe.server.gateway.token_policy import check_may_reach
from voicepipe.server.realtime import check_ready
from voicepipe.server.request_bodies import read_body
from voicepipe.turn.cost import estimated_tokens

MAX_TOKENS: Final = 10_000_000
"""A larger count of tokens is an error of the provider."""


async def embeddings(request: web.Request) -> web.StreamResponse:
    """Validate the request, forward it to the provider, and return the answer."""
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(CHAT)
    check_ready(context)
    requested = read_embedding_request(await read_body(request, MAX_BODY_BYTES))
    route = _route(request, principal, requested.model, context)
    async with context.chat_slots.slot(principal) as slot:
        responder = _EmbeddingResponder(requested, route, context)
        return await Exchange("embedding", responder.id, requested.model, slot, context).run(responder)


def _route(request: web.Request, principal: Principal, name: str, context: ServerContext) -> EmbeddingRoute:
    route = context.embedding_models.find(name)
    if route is None:
        why = f"There is no embedding model {name[:64]!r} here. Name one of server.embedding_models, or an agent."
        raise NotFound(why, param="model", code="model_not_found")
    if principal.claims is not None:
        unpriced = route.spec if context.embedding_models.cost_usd(route.spec, 0) is None else None
        handshake = context.authenticator.handshake(request)
        check_may_reach(principal.claims, route.name, route.agent, handshake, unpriced=unpriced)
    return route


class _EmbeddingResponder:
    """Answers a request with vectors."""

    def __init__(self, requested: EmbeddingRequest, route: EmbeddingRoute, context: ServerContext) -> None:
        self.id = f"embd-{secrets.token_hex(16)}"
        self._requested, self._route, self._models = requested, route, context.embedding_models
        self._n_tokens: int | None = None

    @property
    def spec(self) -> str:
        return self._route.spec

    async def answer(self) -> web.StreamResponse:
        answered = await self._route.model.pass_on(self._requested)
        n_reported = 0 if answered.usage is None else answered.usage.prompt_tokens
        is_possible = 0 < n_reported <= MAX_TOKENS
        self._n_tokens = n_reported if is_possible else math.ceil(estimated_tokens(self._requested.n_chars))
        extension: JsonObject = {"route": self.spec, "cost_usd": self._cost_usd(), "estimated": not is_possible}
        body = embeddings_answer(self._requested.model, answered.data, self._n_tokens, extension)
        headers = {"X-Request-Id": self.id, "X-Voicepipe-Route": self.spec.encode("ascii", "replace").decode()}
        return web.Response(body=body, content_type="application/json", headers=headers)

    def result(self, *, failed: bool) -> AnswerResult:
        if self._n_tokens is None:
            return AnswerResult(None, {}, is_unanswered=failed)
        return AnswerResult(self._cost_usd(), {"input_tokens": self._n_tokens, "cost_usd": self._cost_usd()})

    def _cost_usd(self) -> float | None:
        return self._models.cost_usd(self.spec, self._n_tokens or 0)
