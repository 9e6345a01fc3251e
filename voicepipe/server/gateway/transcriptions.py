"""`POST /v1/audio/transcriptions`: any STT of this server, by OpenAI's published request.

Long recordings are split at pauses and transcribed in pieces, within the limits of every transcriber. A file is decoded
in a separate process; a client that disconnects cancels the request.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
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
from voicepipe.server.gateway.exchange import AnswerResult, Exchange
from voicepipe.server.gateway.recording_transcription import RecordingTranscription
from voicepipe.server.gateway.stt_route import ResolvedStt, resolve_stt
from voicepipe.server.gateway.uploaded_recording import UploadedRecording, uploaded_recording
from voicepipe.server.streaming import EVENTS, StreamedResponse
from voicepipe.values import replace

MAX_SUGGESTED: Final = 8
"""Maximum number of models that an error suggests."""


async def transcriptions(request: web.Request) -> web.StreamResponse:
    """Validate the request, then transcribe and send the answer."""
    async with uploaded_recording(request) as upload:
        requested = read_transcription_fields(upload.fields)
        resolved = await resolve_stt(request, upload.principal, requested, upload.context)
        resolved = _with_times(resolved, requested, upload)
        id_ = f"transcription-{secrets.token_hex(16)}"
        async with upload.transcription(resolved) as transcription:
            responder = _TranscriptionResponder(id_, request, requested, transcription, resolved.options.language)
            return await Exchange("transcription", id_, requested.model, upload.slot, upload.context).run(responder)


def _with_times(stt: ResolvedStt, requested: TranscriptionRequest, upload: UploadedRecording) -> ResolvedStt:
    """Return the route with the options for times of words and for speakers.

    Raises:
        ProtocolError: the STT does not support it; the text names the models of this server that do.
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
    suggestion = f"These models of this server do: {', '.join(others[:MAX_SUGGESTED])}. " if others else ""
    why = f"{name[:64]} gives no {what}. {suggestion}The page on the gateway lists the providers that do."
    return ProtocolError(why, field=field, code="unsupported_parameter")


class _TranscriptionResponder:
    """Answers a request with the transcript of its recording."""

    def __init__(
        self,
        id_: str,
        request: web.Request,
        requested: TranscriptionRequest,
        transcription: RecordingTranscription,
        hint: str | None,
    ) -> None:
        """`hint`: the language in the request to the STT."""
        self._id, self._requested, self._transcription, self._hint = id_, requested, transcription, hint
        self._out = StreamedResponse(request, EVENTS, self._headers)
        self._pieces: list[TranscriptPiece] = []
        self._speakers, self._segments = Speakers(), list[SpeakerSegment]()

    @property
    def spec(self) -> str:
        return self._transcription.spec

    @property
    def sent_response(self) -> web.StreamResponse | None:
        return self._out.sent_response

    async def answer(self) -> web.StreamResponse:
        async with self._transcription.pieces() as pieces:
            async for piece in pieces:
                self._pieces.append(piece)
                if self._requested.format == "diarized_json":
                    await self._send_segments(piece)
                elif self._requested.stream:
                    await self._out.send(text_delta(f" {piece.text}" if len(self._pieces) > 1 else piece.text))
        transcript = self._transcript()
        if self._requested.stream:
            return await self._out.end(text_done(transcript, self._voicepipe_field()))
        content_type, body = whole_answer(transcript, self._requested.format, self._voicepipe_field())
        return web.Response(body=body, content_type=content_type, charset="utf-8", headers=self._headers())

    async def _send_segments(self, piece: TranscriptPiece) -> None:
        for segment in self._speakers.segments(piece.words):
            space = " " if self._segments else ""
            self._segments.append(segment)
            if self._requested.stream:
                delta = text_delta(space + segment.text, segment.id)
                await self._out.send(delta + segment_done(segment))

    async def fail(self, error: bytes) -> web.StreamResponse:
        return await self._out.end(failed(error))

    def result(self, *, failed: bool) -> AnswerResult:
        if failed and not self._transcription.n_transcribed:
            return AnswerResult(None, {"first_ms": None}, is_unanswered=True)
        cost_usd = self._transcription.cost_usd()
        figures = {"first_ms": self._transcription.first_ms, "audio_ms": round(1_000 * self._transcription.duration_s)}
        return AnswerResult(cost_usd, {**figures, "cost_usd": cost_usd})

    def _transcript(self) -> Transcript:
        language = self._transcription.language or self._hint
        return Transcript(
            pieces=self._pieces,
            duration_s=self._transcription.duration_s,
            language=language,
            segments=self._segments,
            with_words="word" in self._requested.granularities,
            with_pieces="segment" in self._requested.granularities,
        )

    def _headers(self) -> dict[str, str]:
        return {"X-Request-Id": self._id, "X-Voicepipe-Route": self.spec.encode("ascii", "replace").decode()}

    def _voicepipe_field(self) -> JsonObject:
        fields: JsonObject = {
            "route": self.spec,
            "first_ms": self._transcription.first_ms,
            "cost_usd": self._transcription.cost_usd(),
        }
        return fields | ({"ignored": list(self._requested.ignored)} if self._requested.ignored else {})
