"""`POST /v1/audio/transcriptions`: any STT of this server behind OpenAI's published request.

Long recordings are cut where they are quiet and transcribed piece by piece, within every transcriber's limits. A file
is decoded in a separate process; a client that disconnects cancels its request.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from voicepipe.audio.decode_file import TooLong
from voicepipe.audio.files import UnreadableSound
from voicepipe.auth.scopes import AUDIO
from voicepipe.clock import monotonic_ms
from voicepipe.errors import ProtocolError, StageBroken
from voicepipe.ports.provider_events import ProviderChanged
from voicepipe.ports.transcriber import Final as FinalText
from voicepipe.ports.transcriber import Samples, TranscriptEvent, TranscriptionOptions, TranscriptStream
from voicepipe.protocol.audio_rest_transcription import (
    Transcript,
    TranscriptionRequest,
    TranscriptPiece,
    read_transcription_fields,
    text_delta,
    text_done,
    whole_answer,
)
from voicepipe.protocol.chat_response import failed
from voicepipe.protocol.json_fields import JsonObject
from voicepipe.protocol.session_types import Transcription
from voicepipe.server.audio_ports import TranscriptionRoute
from voicepipe.server.authenticate import Principal
from voicepipe.server.context import CONTEXT, ServerContext
from voicepipe.server.decoding import DECODING, Recording
from voicepipe.server.errors import NotFound
from voicepipe.server.gateway.exchange import Exchange, Settled
from voicepipe.server.gateway.token_policy import check_may_reach, field_locked, token_session
from voicepipe.server.gateway.usual_models import route_of
from voicepipe.server.realtime import check_ready
from voicepipe.server.streaming import EVENTS, StreamedResponse
from voicepipe.server.upload import read_upload

LONGEST_S: Final = 7_200
"""Maximum length of one file's audio: 25 MB of compressed speech may be many hours."""

PUSH_MS: Final = 250
"""Length of the pieces of audio that a transcriber gets: one WebSocket message each, at some vendors."""


async def transcriptions(request: web.Request) -> web.StreamResponse:
    """Validate the request, then transcribe and send the answer."""
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(AUDIO)
    check_ready(context)
    context.audio_places.check(principal)  # nothing is read while all places are taken
    decoding = request.app[DECODING]
    await decoding.warm()
    upload = await read_upload(request)
    assert upload.file is not None
    async with context.audio_places.place(
        principal
    ) as place:  # only now: a client that uploads slowly must not block others
        requested = read_transcription_fields(upload.fields)
        resolved = await _resolve(request, principal, requested, context)
        id_ = f"transcription-{secrets.token_hex(16)}"
        rate_hz = resolved.route.transcriber.capabilities.rate_hz
        with _refusing():
            async with decoding.opened(upload.file, rate_hz, longest_s=LONGEST_S) as recording:
                work = _TranscriptionWork(id_, request, requested, resolved, recording, context)
                return await Exchange("stt", id_, requested.model, place, context).run(work)


@dataclass(frozen=True, slots=True)
class _Resolved:
    """The requested route and its options."""

    route: TranscriptionRoute
    stt_request: TranscriptionOptions


async def _resolve(
    request: web.Request, principal: Principal, requested: TranscriptionRequest, context: ServerContext
) -> _Resolved:
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
        held = await token_session(claims, route.name, route.agent, context)
        held.check_model(requested.model)
        its = held.session.transcription or Transcription()
        for field in ("language", "prompt"):
            if held.is_locked(f"audio.input.transcription.{field}") and getattr(requested, field) not in (
                None,
                getattr(its, field),
            ):
                raise field_locked(field)
        language, prompt = language or its.language, prompt or its.prompt
    stt_request = TranscriptionOptions(
        model=route.model_name,
        language=language or route.language,
        prompt=prompt,
        temperature=requested.temperature,
    )
    return _Resolved(route, stt_request)


@contextmanager
def _refusing() -> Iterator[None]:
    """Raise a fault of the file as an error of the request."""
    try:
        yield
    except UnreadableSound as why:
        code = "audio_too_long" if isinstance(why, TooLong) else "invalid_file_format"
        raise ProtocolError(f"file: {why}", field="file", code=code) from None


class _TranscriptionWork:
    """A recording and its transcript."""

    def __init__(
        self,
        id_: str,
        request: web.Request,
        requested: TranscriptionRequest,
        resolved: _Resolved,
        recording: Recording,
        context: ServerContext,
    ) -> None:
        self._requested, self._resolved, self._recording, self._models = (
            requested,
            resolved,
            recording,
            context.audio_models,
        )
        self._id = id_
        self._spec = resolved.route.specs[0]
        self._out = StreamedResponse(request, EVENTS, self._headers)
        self._pieces: list[TranscriptPiece] = []
        self._n_answers = 0
        self._language: str | None = None
        self._began_ms = monotonic_ms()
        self._first_ms: int | None = None

    @property
    def spec(self) -> str:
        return self._spec

    @property
    def line(self) -> web.StreamResponse | None:
        return self._out.line

    async def answer(self) -> web.StreamResponse:
        async with self._resolved.route.transcriber.open(self._resolved.stt_request) as stream:
            async for piece in self._transcribed_pieces(stream):
                if self._requested.stream:
                    await self._out.send(text_delta(f" {piece.text}" if len(self._pieces) > 1 else piece.text))
        if not self._recording.read_s:
            raise ProtocolError("file: expected some sound, got none", field="file", code="audio_too_short")
        transcript = self._transcript()
        if self._requested.stream:
            return await self._out.end(text_done(transcript, self._ours()))
        content_type, body = whole_answer(transcript, self._requested.format, self._ours())
        return web.Response(body=body, content_type=content_type, charset="utf-8", headers=self._headers())

    async def fail(self, error: bytes) -> web.StreamResponse:
        return await self._out.end(failed(error))

    def settled(self, *, failed: bool) -> Settled:
        if failed and not self._n_answers:
            return Settled(None, {"first_ms": None}, in_vain=True)
        figures = {"first_ms": self._first_ms, "audio_ms": round(1_000 * self._recording.read_s)}
        return Settled(self._cost_usd(), {**figures, "cost_usd": self._cost_usd()})

    async def _transcribed_pieces(self, stream: TranscriptStream) -> AsyncIterator[TranscriptPiece]:
        """Return the pieces that contain speech."""
        rate_hz, events = self._resolved.route.transcriber.capabilities.rate_hz, aiter(stream)
        n_samples = n_pieces = 0
        while (samples := await self._next_piece()) is not None:
            n_pieces += 1
            _push(stream, n_pieces, samples, PUSH_MS * rate_hz // 1_000)
            final = await self._final(events, n_pieces)
            if final is None:
                raise StageBroken(
                    "stt",
                    provider=self.spec,
                    why="the STT ended before the recording was transcribed",
                    retryable=True,
                )
            self._n_answers = n_pieces
            self._language = self._language or final.language
            if self._first_ms is None:
                self._first_ms = monotonic_ms() - self._began_ms
            start_s, n_samples = n_samples / rate_hz, n_samples + len(samples)
            if words := final.text.strip():
                self._pieces.append(TranscriptPiece(start_s, n_samples / rate_hz, words))
                yield self._pieces[-1]

    async def _final(self, events: AsyncIterator[TranscriptEvent], number: int) -> FinalText | None:
        """Return the text of a piece; None: the stream is over."""
        async for event in events:
            match event:
                case ProviderChanged(provider):
                    self._spec = provider
                case FinalText(utterance=utterance, flush=1) if utterance == number:
                    return event
        return None

    async def _next_piece(self) -> Samples | None:
        with _refusing():
            return await self._recording.next_piece()

    def _transcript(self) -> Transcript:
        language = self._language or self._resolved.stt_request.language
        return Transcript(pieces=self._pieces, duration_s=self._recording.read_s, language=language)

    def _cost_usd(self) -> float | None:
        return self._models.stt_usd(self.spec, self._recording.read_s)

    def _headers(self) -> dict[str, str]:
        return {"X-Request-Id": self._id, "X-Voicepipe-Route": self.spec.encode("ascii", "replace").decode()}

    def _ours(self) -> JsonObject:
        fields: JsonObject = {"route": self.spec, "first_ms": self._first_ms, "cost_usd": self._cost_usd()}
        return fields | ({"ignored": list(self._requested.ignored)} if self._requested.ignored else {})


def _push(stream: TranscriptStream, number: int, samples: Samples, n_pushed: int) -> None:
    """Have one piece transcribed as a separate utterance."""
    stream.begin(number)
    for begin in range(0, len(samples), n_pushed):
        stream.push(samples[begin : begin + n_pushed])
    stream.flush(1)
