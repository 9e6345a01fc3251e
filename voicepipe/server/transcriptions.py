"""`POST /v1/audio/transcriptions`: any STT of this server behind OpenAI's published request.

Long recordings are cut where they are quiet and transcribed piece by piece, within every transcriber's limits. A file
is decoded in a separate process; a client that disconnects cancels its request.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from aiohttp import web

from voicepipe.audio.containers_in import TooLong
from voicepipe.audio.files import UnreadableSound
from voicepipe.auth.scopes import AUDIO
from voicepipe.clock import monotonic_ms
from voicepipe.errors import ProtocolError, StageBroken
from voicepipe.protocol.audio_rest_transcription import (
    HeardPiece,
    Transcript,
    TranscriptionRequest,
    read_transcription_fields,
    text_delta,
    text_done,
    whole_answer,
)
from voicepipe.protocol.chat_response import failed
from voicepipe.protocol.fields import JsonObject
from voicepipe.protocol.session_parts import Transcription
from voicepipe.server.audio_route import TranscriptionRoute
from voicepipe.server.decoding import DECODING, Recording
from voicepipe.server.doorway import Visitor
from voicepipe.server.parts import PARTS, Parts
from voicepipe.server.realtime import check_ready
from voicepipe.server.refusals import Missing
from voicepipe.server.rest_exchange import Exchange, Settled
from voicepipe.server.rest_held import check_may_reach, field_locked, held_session
from voicepipe.server.rest_line import EVENTS, StreamedLine
from voicepipe.server.upload import read_upload
from voicepipe.stages.notes import TookOver
from voicepipe.stages.transcriber import Final as FinalText
from voicepipe.stages.transcriber import Heard, Hearing, Samples, TranscriptStream

LONGEST_S: Final = 7_200
"""Maximum length of one file's audio: 25 MB of compressed speech may be many hours."""

PUSH_MS: Final = 250
"""Length of the pieces of audio that a transcriber gets: one WebSocket message each, at some vendors."""


async def transcriptions(request: web.Request) -> web.StreamResponse:
    """Validate the request, then transcribe and send the answer."""
    parts = request.app[PARTS]
    visitor = await parts.doorway.admit(request)
    visitor.check_scope(AUDIO)
    check_ready(parts)
    parts.audio_places.check(visitor)  # nothing is read while all places are taken
    decoding = request.app[DECODING]
    await decoding.warm()
    upload = await read_upload(request)
    assert upload.file is not None
    with parts.audio_places.place(visitor):  # only now: a client that uploads slowly must not block others
        asked = read_transcription_fields(upload.fields)
        wanted = await _wanted(request, visitor, asked, parts)
        id_ = f"transcription-{secrets.token_hex(16)}"
        rate_hz = wanted.route.transcriber.capabilities.rate_hz
        with _refusing():
            async with decoding.opened(upload.file, rate_hz, longest_s=LONGEST_S) as recording:
                work = _TranscriptionWork(id_, request, asked, wanted, recording, parts)
                return await Exchange("stt", id_, asked.model, visitor, parts).run(work)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The requested route and its options."""

    route: TranscriptionRoute
    hearing: Hearing


async def _wanted(request: web.Request, visitor: Visitor, asked: TranscriptionRequest, parts: Parts) -> _Wanted:
    route, claims = parts.audio_models.transcription(asked.model), visitor.claims
    if route is None:
        why = f"There is no ear {asked.model[:64]!r} here. Ask for an agent, or for a model that the settings name."
        raise Missing(why, param="model", code="model_not_found")
    language, prompt = asked.language, asked.prompt
    if claims is not None:
        unpriced = (spec for spec in route.specs if parts.audio_models.hearing_usd(spec, 0) is None)
        shown = parts.doorway.shown(request)
        check_may_reach(claims, route.name, route.agent, shown, unpriced=next(unpriced, None))
        held = await held_session(claims, route.name, route.agent, parts)
        held.check_model(asked.model)
        its = held.session.transcription or Transcription()
        for field in ("language", "prompt"):
            if held.is_locked(f"audio.input.transcription.{field}") and getattr(asked, field) not in (
                None,
                getattr(its, field),
            ):
                raise field_locked(field)
        language, prompt = language or its.language, prompt or its.prompt
    hearing = Hearing(
        model=route.model_name,
        language=language or route.language,
        prompt=prompt,
        temperature=asked.temperature,
    )
    return _Wanted(route, hearing)


@contextmanager
def _refusing() -> Iterator[None]:
    """Raise what is wrong with the file as an error of the request."""
    try:
        yield
    except UnreadableSound as why:
        code = "audio_too_long" if isinstance(why, TooLong) else "invalid_file_format"
        raise ProtocolError(f"file: {why}", field="file", code=code) from None


class _TranscriptionWork:
    """One recording and its transcript."""

    def __init__(
        self,
        id_: str,
        request: web.Request,
        asked: TranscriptionRequest,
        wanted: _Wanted,
        recording: Recording,
        parts: Parts,
    ) -> None:
        self._asked, self._wanted, self._recording, self._models = asked, wanted, recording, parts.audio_models
        self._id = id_
        self._spec = wanted.route.specs[0]
        self._out = StreamedLine(request, EVENTS, self._headers)
        self._heard: list[HeardPiece] = []
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
        hearing = replace(self._wanted.hearing, note=self._took_over)
        async with self._wanted.route.transcriber.open(hearing) as stream:
            async for piece in self._pieces_heard(stream):
                if self._asked.stream:
                    await self._out.send(text_delta(f" {piece.text}" if len(self._heard) > 1 else piece.text))
        if not self._recording.read_s:
            raise ProtocolError("file: expected some sound, got none", field="file", code="audio_too_short")
        transcript = self._transcript()
        if self._asked.stream:
            return await self._out.end(text_done(transcript, self._ours()))
        content_type, body = whole_answer(transcript, self._asked.format, self._ours())
        return web.Response(body=body, content_type=content_type, charset="utf-8", headers=self._headers())

    async def fail(self, error: bytes) -> web.StreamResponse:
        return await self._out.end(failed(error))

    def _took_over(self, note: TookOver) -> None:
        self._spec = note.provider

    def settled(self, *, failed: bool) -> Settled:
        if failed and not self._n_answers:
            return Settled(None, {"first_ms": None}, in_vain=True)
        figures = {"first_ms": self._first_ms, "heard_ms": round(1_000 * self._recording.read_s)}
        return Settled(self._cost_usd(), {**figures, "cost_usd": self._cost_usd()})

    async def _pieces_heard(self, stream: TranscriptStream) -> AsyncIterator[HeardPiece]:
        """Return the pieces that contain speech."""
        rate_hz, texts = self._wanted.route.transcriber.capabilities.rate_hz, aiter(stream)
        n_samples = n_pieces = 0
        while (samples := await self._next_piece()) is not None:
            n_pieces += 1
            final = await _hear(stream, texts, n_pieces, samples, PUSH_MS * rate_hz // 1_000)
            if final is None:
                raise StageBroken("stt", provider=self.spec, why="it ended before all was heard", retryable=True)
            self._n_answers = n_pieces
            self._language = self._language or final.language
            if self._first_ms is None:
                self._first_ms = monotonic_ms() - self._began_ms
            start_s, n_samples = n_samples / rate_hz, n_samples + len(samples)
            if words := final.text.strip():
                self._heard.append(HeardPiece(start_s, n_samples / rate_hz, words))
                yield self._heard[-1]

    async def _next_piece(self) -> Samples | None:
        with _refusing():
            return await self._recording.next_piece()

    def _transcript(self) -> Transcript:
        language = self._language or self._wanted.hearing.language
        return Transcript(pieces=self._heard, duration_s=self._recording.read_s, language=language)

    def _cost_usd(self) -> float | None:
        return self._models.hearing_usd(self.spec, self._recording.read_s)

    def _headers(self) -> dict[str, str]:
        return {"X-Request-Id": self._id, "X-Voicepipe-Route": self.spec.encode("ascii", "replace").decode()}

    def _ours(self) -> JsonObject:
        told: JsonObject = {"route": self.spec, "first_ms": self._first_ms, "cost_usd": self._cost_usd()}
        return told | ({"ignored": list(self._asked.ignored)} if self._asked.ignored else {})


async def _hear(
    stream: TranscriptStream, texts: AsyncIterator[Heard], number: int, samples: Samples, n_pushed: int
) -> FinalText | None:
    """Transcribe one piece as a separate utterance; None: the stream is over."""
    stream.begin(number)
    for begin in range(0, len(samples), n_pushed):
        stream.push(samples[begin : begin + n_pushed])
    stream.flush(1)
    async for heard in texts:
        if isinstance(heard, FinalText) and (heard.utterance, heard.flush) == (number, 1):
            return heard
    return None
