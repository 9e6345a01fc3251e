"""Find the STT of a request with a recording, and apply the client secret."""

from __future__ import annotations

from aiohttp import web
from msgspec import Struct

from voicepipe.ports.transcriber import TranscriptionOptions
from voicepipe.protocol.audio_rest_transcription import TranscriptionRequest
from voicepipe.protocol.session_types import Transcription
from voicepipe.server.audio_ports import TranscriptionRoute
from voicepipe.server.authenticate import Principal
from voicepipe.server.context import ServerContext
from voicepipe.server.errors import NotFound
from voicepipe.server.gateway.default_models import route_of
from voicepipe.server.gateway.token_policy import check_may_reach, field_locked, token_session


class ResolvedStt(Struct, frozen=True):
    """The requested route and transcription options."""

    route: TranscriptionRoute
    options: TranscriptionOptions


async def resolve_stt(
    request: web.Request,
    principal: Principal,
    requested: TranscriptionRequest,
    context: ServerContext,
    *,
    any_language: bool = False,
) -> ResolvedStt:
    """Return the route and the options, with the settings of a client secret's session.

    With `any_language` the agent's own language is not used: the speech may be in another language.

    Raises:
        AuthError: 403, when the client secret does not allow this model or agent.
        NotFound: 404, for a model that does not exist.
        ProtocolError: a field is locked.
    """
    claims = principal.claims
    route = route_of(requested.model, context.audio_models.transcription, claims, context)
    if route is None:
        why = f"There is no transcriber {requested.model[:64]!r} here. Use an agent, or a model of the settings."
        raise NotFound(why, param="model", code="model_not_found")
    language, prompt = requested.language, requested.prompt
    if claims is not None:
        unpriced = (spec for spec in route.specs if context.audio_models.stt_usd(spec, 0) is None)
        handshake = context.authenticator.handshake(request)
        check_may_reach(claims, route.name, route.agent, handshake, unpriced=next(unpriced, None))
        secret_session = await token_session(claims, route.name, route.agent, context)
        secret_session.check_model(requested.model)
        transcription = secret_session.session.transcription or Transcription()
        for field in ("language", "prompt"):
            if secret_session.is_locked("audio", "input", "transcription", field) and getattr(requested, field) not in (
                None,
                getattr(transcription, field),
            ):
                raise field_locked(field)
        language, prompt = language or transcription.language, prompt or transcription.prompt
    options = TranscriptionOptions(
        model=route.model_name,
        language=language or (None if any_language else route.language),
        prompt=prompt,
        temperature=requested.temperature,
    )
    return ResolvedStt(route, options)
