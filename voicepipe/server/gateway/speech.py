"""`POST /v1/audio/speech`: any TTS of this server, by OpenAI's published request.

Audio is streamed in every format. Nothing is sent before the first audio, so that a refusal has its own status. There
is no queue: the TTS waits for a client that reads slowly, and a client that disconnects cancels the request.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from typing import Any, Final

from aiohttp import web
from msgspec import Struct

from voicepipe.audio.encode_stream import FORMATS
from voicepipe.auth.scopes import AUDIO
from voicepipe.clock import monotonic_ms
from voicepipe.errors import ProtocolError, StageBroken
from voicepipe.ports.provider_events import CachedSpeech, ProviderChanged, UnusedSpeech
from voicepipe.ports.speech_text import ClauseNormalizer
from voicepipe.ports.synthesizer import RATE_HZ, SpeechEvent, Spoken, Voice
from voicepipe.protocol.audio_rest_speech import SpeechRequest, audio_delta, audio_done, read_speech_request
from voicepipe.protocol.chat_response import failed
from voicepipe.protocol.json_fields import JsonObject
from voicepipe.protocol.session_config import DEFAULT_VOICE
from voicepipe.server.audio_ports import SpeechRoute
from voicepipe.server.authenticate import Principal
from voicepipe.server.context import CONTEXT, ServerContext
from voicepipe.server.errors import NotFound
from voicepipe.server.gateway.default_models import route_of
from voicepipe.server.gateway.exchange import AnswerResult, Exchange
from voicepipe.server.gateway.token_policy import check_may_reach, field_locked, token_session
from voicepipe.server.realtime import check_ready
from voicepipe.server.request_bodies import read_body
from voicepipe.server.streaming import EVENTS, StreamedResponse
from voicepipe.turn.clauses import MAX_CHARS, ClauseSplitter
from voicepipe.turn.cost import TtsUsage

PUSH_CHARS: Final = 32


async def speech(request: web.Request) -> web.StreamResponse:
    """Validate the request, then synthesize and send the audio."""
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(AUDIO)
    check_ready(context)
    requested = read_speech_request(await read_body(request))
    resolved = await _resolve(request, principal, requested, context)
    async with context.audio_slots.slot(principal) as slot:
        id_ = f"speech-{secrets.token_hex(16)}"
        responder = _SpeechResponder(id_, request, requested, resolved, context)
        return await Exchange("speech", id_, requested.model, slot, context).run(responder)


class _ResolvedSpeech(Struct, frozen=True):
    """The requested route, voice and format."""

    route: SpeechRoute
    voice: Voice
    clauses: tuple[str, ...]
    """The text to synthesize."""


async def _resolve(
    request: web.Request, principal: Principal, requested: SpeechRequest, context: ServerContext
) -> _ResolvedSpeech:
    claims = principal.claims
    route = route_of(requested.model, context.audio_models.speech, claims, context)
    if route is None:
        why = f"There is no synthesizer {requested.model[:64]!r} here. Use an agent, or a model of the settings."
        raise NotFound(why, param="model", code="model_not_found")
    name, speed = requested.voice_name, 1.0 if requested.speed is None else requested.speed
    if claims is not None:
        unpriced = (spec for spec in route.specs if context.audio_models.tts_usd(spec, 0) is None)
        handshake = context.authenticator.handshake(request)
        check_may_reach(claims, route.name, route.agent, handshake, unpriced=next(unpriced, None))
        secret_session = await token_session(claims, route.name, route.agent, context)
        secret_session.check_model(requested.model)
        if secret_session.is_locked("audio", "output", "voice") and name not in (None, secret_session.session.voice):
            raise field_locked("voice")
        if secret_session.is_locked("audio", "output", "speed") and requested.speed not in (
            None,
            secret_session.session.speed,
        ):
            raise field_locked("speed")
        name = name or secret_session.session.voice
        speed = secret_session.session.speed if requested.speed is None else speed
    voice = Voice(model=route.model_name, voice=_voice(route, name), speed=speed, language=route.language)
    # In a thread: normalizing 4096 characters takes some 10 ms, and far more for hostile text.
    spoken = await asyncio.to_thread(lambda: tuple(clauses(requested.input, voice.language)))
    if not spoken:
        raise ProtocolError("Expected a text with words to speak, got none.", field="input")
    return _ResolvedSpeech(route, voice, spoken)


def _voice(route: SpeechRoute, requested: str | None) -> str | None:
    """Return the voice to use. Clients often name another vendor's voices: the agent's own voice replaces a voice that
    this provider does not have."""
    known = route.synthesizer.voices
    choices = (name for name in (requested, route.voice) if name is not None and name != DEFAULT_VOICE)
    return next((name for name in choices if known is None or name in known), None)


class _SpeechResponder:
    """Answers a request with the audio of its text."""

    def __init__(
        self,
        id_: str,
        request: web.Request,
        requested: SpeechRequest,
        resolved: _ResolvedSpeech,
        context: ServerContext,
    ) -> None:
        self._requested, self._resolved, self._models = requested, resolved, context.audio_models
        self._format = FORMATS[requested.format_name]
        self._is_sse = requested.stream_format == "sse"
        self._id = id_
        self._spec = resolved.route.specs[0]
        self._out = StreamedResponse(request, EVENTS if self._is_sse else self._format.content_type, self._headers)
        self._clauses = resolved.clauses
        self._n_spoken = 0
        """Number of clauses with some audio."""

        self._tts_usage = TtsUsage()

        self._n_samples = 0
        self._began_ms = monotonic_ms()
        self._ttfb_ms: int | None = None

    @property
    def spec(self) -> str:
        return self._spec

    @property
    def sent_response(self) -> web.StreamResponse | None:
        return self._out.sent_response

    async def answer(self) -> web.StreamResponse:
        async with self._resolved.route.synthesizer.open(self._resolved.voice) as speech:
            for clause in self._clauses:
                speech.push(clause)
            speech.finish()
            writer = await self._encode(self._format.open, RATE_HZ)
            async for event in speech:
                if isinstance(event, Spoken):
                    self._record_spoken(event)
                    await self._send(await self._encode(writer.push, event.samples))
                else:
                    self._record_provider(event)
            if not self._n_samples:
                raise StageBroken("tts", provider=self.spec, why="the answer had no audio", retryable=True)
            await self._send(await self._encode(writer.finish))
        return await self._out.end(audio_done(self._voicepipe_field()) if self._is_sse else b"")

    async def fail(self, error: bytes) -> web.StreamResponse:
        if self._is_sse:
            return await self._out.end(failed(error))
        self._out.cut()
        assert self.sent_response is not None  # `Exchange` calls `fail` only then
        return self.sent_response

    def _record_provider(self, event: SpeechEvent) -> None:
        match event:
            case ProviderChanged(provider):
                self._spec = provider
            case UnusedSpeech(provider, n_chars):
                self._tts_usage.add_unused(provider, n_chars)
            case CachedSpeech(provider, n_chars):
                self._tts_usage.add_cached(provider, n_chars)

    def result(self, *, failed: bool) -> AnswerResult:
        if failed and not self._n_samples:
            return AnswerResult(None, {"ttfb_ms": None}, is_unanswered=True)
        # Only text that was synthesized is charged: a client that disconnects early does not pay for the rest.
        figures = {"ttfb_ms": self._ttfb_ms, "spoken_ms": self._spoken_ms(), "characters": self._n_chars()}
        return AnswerResult(self._cost_usd(), {**figures, "cost_usd": self._cost_usd()})

    def _record_spoken(self, spoken: Spoken) -> None:
        self._tts_usage.add_played(self._spec, sum(map(len, self._clauses[self._n_spoken : spoken.clause + 1])))
        self._n_spoken, self._n_samples = spoken.clause + 1, self._n_samples + len(spoken.samples)
        if self._ttfb_ms is None:
            self._ttfb_ms = monotonic_ms() - self._began_ms

    async def _send(self, sound: bytes) -> None:
        if sound:
            await self._out.send(audio_delta(sound) if self._is_sse else sound)

    def _encode(self, work: Callable[..., Any], *arguments: Any) -> Awaitable[Any]:
        return _call(work, *arguments) if self._format.light else asyncio.to_thread(work, *arguments)

    def _n_chars(self) -> int:
        return sum(map(len, self._clauses[: self._n_spoken]))

    def _spoken_ms(self) -> int:
        return 1_000 * self._n_samples // RATE_HZ

    def _cost_usd(self) -> float | None:
        """Return the cost, each spec at its own price; None: one of them has none."""
        used = [*self._tts_usage.played.items(), *self._tts_usage.unused.items()]
        usd = [self._models.tts_usd(spec, max(0, n_chars)) for spec, n_chars in used]
        return None if None in usd else sum(each or 0.0 for each in usd)

    def _headers(self) -> dict[str, str]:
        route = self.spec.encode("ascii", "replace").decode()
        return {"X-Request-Id": self._id, "X-Voicepipe-Route": route, "X-Voicepipe-TTFB-Ms": str(self._ttfb_ms)}

    def _voicepipe_field(self) -> JsonObject:
        fields: JsonObject = {"route": self.spec, "ttfb_ms": self._ttfb_ms, "spoken_ms": self._spoken_ms()}
        fields |= {"characters": self._n_chars(), "cost_usd": self._cost_usd()}
        return fields | ({"ignored": list(self._requested.ignored)} if self._requested.ignored else {})


async def _call(work: Callable[..., Any], *arguments: Any) -> Any:
    return work(*arguments)


def clauses(text: str, language: str | None) -> Iterator[str]:
    """Yield the text of each TTS request, in spoken form: without markup, numbers as words.

    The first piece is short, so that audio starts soon. Later pieces have the maximum length: they add no delay, and
    some vendors need a request for each piece.
    """
    splitter, normalizer = ClauseSplitter(), ClauseNormalizer(language)
    # In small pieces, as a model streams: the splitter scans all text that it has not split yet.
    deltas = (text[at : at + PUSH_CHARS] for at in range(0, len(text), PUSH_CHARS))
    written = [clause for delta in deltas for clause in splitter.push(delta)] + splitter.flush()
    spoken = filter(None, map(normalizer.read, written))
    yield from islice(spoken, 1)
    piece = ""
    for clause in spoken:
        if piece and len(piece) + 1 + len(clause) > MAX_CHARS:
            yield piece
            piece = ""
        piece = f"{piece} {clause}".lstrip()
    if piece:
        yield piece
