"""`POST /v1/audio/transcriptions`: any STT of this server behind OpenAI's published request.

Long recordings are cut where they are quiet and transcribed piece by piece, within every transcriber's limits. A file
is decoded in a separate process; a client that disconnects cancels its request.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from aiohttp import web

from voicepipe.errors import ProtocolError
from voicepipe.protocol.audio_rest_diarized import Speakers, SpeakerSegment
from voicepipe.protocol.audio_rest_transcript import (
    Transcript,
    TranscriptPiece,
    segment_done,
    text_delta,
    text_done,
    whole_answer,
)
from voicepipe.protocol.audio_rest_transcription import TranscriptionRequest, read_transcription_fields
from voicepipe.protocol.chat_response import failed
from voicepipe.protocol.json_fields import JsonObject
from voicepipe.server.audio_ports import TranscriptionRoute
from voicepipe.server.gateway.exchange import Exchange, Settled
from voicepipe.server.gateway.recorded_speech import RecordedSpeech
from voicepipe.server.gateway.stt_route import ResolvedStt, resolve_stt
from voicepipe.server.gateway.uploaded_recording import UploadedRecording, uploaded_recording
from voicepipe.server.streaming import EVENTS, StreamedResponse

MAX_NAMED: Final = 8
"""Maximum number of models that an error names."""


async def transcriptions(request: web.Request) -> web.StreamResponse:
    """Validate the request, then transcribe and send the answer."""
    async with uploaded_recording(request) as upload:
        requested = read_transcription_fields(upload.fields)
        resolved = await resolve_stt(request, upload.principal, requested, upload.context)
        resolved = _with_times(resolved, requested, upload)
        id_ = f"transcription-{secrets.token_hex(16)}"
        async with upload.opened(resolved) as speech:
            work = _TranscriptionWork(id_, request, requested, speech, resolved.options.language)
            return await Exchange("transcription", id_, requested.model, upload.slot, upload.context).run(work)


def _with_times(stt: ResolvedStt, requested: TranscriptionRequest, upload: UploadedRecording) -> ResolvedStt:
    """Return the route with the request for times of words and for speakers.

    Raises:
        ProtocolError: the STT has none; the text names those of this server that have.
    """
    words, speakers = "word" in requested.granularities, requested.format == "diarized_json"
    if words and not stt.route.transcriber.capabilities.word_times:
        others = [each.name for each in _others(upload) if each.transcriber.capabilities.word_times]
        raise _not_served("times of words", others, stt.route.name, "timestamp_granularities")
    if speakers and not stt.route.transcriber.capabilities.speakers:
        others = [each.name for each in _others(upload) if each.transcriber.capabilities.speakers]
        raise _not_served("speakers", others, stt.route.name, "response_format")
    return replace(stt, options=replace(stt.options, word_times=words, speakers=speakers))


def _others(upload: UploadedRecording) -> Iterable[TranscriptionRoute]:
    # A client secret does not learn the names of other models.
    return upload.context.audio_models.transcriptions() if upload.principal.claims is None else ()


def _not_served(what: str, others: list[str], name: str, field: str) -> ProtocolError:
    ours = f"These models of this server do: {', '.join(others[:MAX_NAMED])}. " if others else ""
    why = f"{name[:64]} gives no {what}. {ours}The page on the gateway lists the providers that do."
    return ProtocolError(why, field=field, code="unsupported_parameter")


class _TranscriptionWork:
    """A recording and its transcript."""

    def __init__(
        self, id_: str, request: web.Request, requested: TranscriptionRequest, speech: RecordedSpeech, hint: str | None
    ) -> None:
        """`hint` is the language in the request to the STT."""
        self._id, self._requested, self._speech, self._hint = id_, requested, speech, hint
        self._out = StreamedResponse(request, EVENTS, self._headers)
        self._pieces: list[TranscriptPiece] = []
        self._speakers, self._segments = Speakers(), list[SpeakerSegment]()

    @property
    def spec(self) -> str:
        return self._speech.spec

    @property
    def line(self) -> web.StreamResponse | None:
        return self._out.line

    async def answer(self) -> web.StreamResponse:
        async with self._speech.transcribed() as pieces:
            async for piece in pieces:
                self._pieces.append(piece)
                if self._requested.format == "diarized_json":
                    await self._divide(piece)
                elif self._requested.stream:
                    await self._out.send(text_delta(f" {piece.text}" if len(self._pieces) > 1 else piece.text))
        transcript = self._transcript()
        if self._requested.stream:
            return await self._out.end(text_done(transcript, self._ours()))
        content_type, body = whole_answer(transcript, self._requested.format, self._ours())
        return web.Response(body=body, content_type=content_type, charset="utf-8", headers=self._headers())

    async def _divide(self, piece: TranscriptPiece) -> None:
        for segment in self._speakers.segments(piece.words):
            space = " " if self._segments else ""
            self._segments.append(segment)
            if self._requested.stream:
                delta = text_delta(space + segment.text, segment.id)
                await self._out.send(delta + segment_done(segment))

    async def fail(self, error: bytes) -> web.StreamResponse:
        return await self._out.end(failed(error))

    def settled(self, *, failed: bool) -> Settled:
        if failed and not self._speech.n_answers:
            return Settled(None, {"first_ms": None}, in_vain=True)
        cost_usd = self._speech.cost_usd()
        figures = {"first_ms": self._speech.first_ms, "audio_ms": round(1_000 * self._speech.duration_s)}
        return Settled(cost_usd, {**figures, "cost_usd": cost_usd})

    def _transcript(self) -> Transcript:
        language = self._speech.language or self._hint
        return Transcript(
            pieces=self._pieces,
            duration_s=self._speech.duration_s,
            language=language,
            segments=self._segments,
            with_words="word" in self._requested.granularities,
            with_pieces="segment" in self._requested.granularities,
        )

    def _headers(self) -> dict[str, str]:
        return {"X-Request-Id": self._id, "X-Voicepipe-Route": self.spec.encode("ascii", "replace").decode()}

    def _ours(self) -> JsonObject:
        fields: JsonObject = {
            "route": self.spec,
            "first_ms": self._speech.first_ms,
            "cost_usd": self._speech.cost_usd(),
        }
        return fields | ({"ignored": list(self._requested.ignored)} if self._requested.ignored else {})
