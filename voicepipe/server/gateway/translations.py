"""`POST /v1/audio/translations`: speech in any language to English text, by OpenAI's published request.

An STT that can translate does so. Otherwise an LLM translates the transcript: the LLM of the requested agent, or of the
default agent for a bare spec. The credential then needs the scope `chat`, too.
"""

from __future__ import annotations

import secrets

from aiohttp import web

from voicepipe.auth.scopes import CHAT
from voicepipe.protocol.audio_rest_transcript import Transcript, TranscriptPiece, whole_answer
from voicepipe.protocol.audio_rest_transcription import TranscriptionRequest, read_translation_fields
from voicepipe.protocol.json_fields import JsonObject
from voicepipe.server.gateway.chat_token_policy import check_may_request
from voicepipe.server.gateway.exchange import AnswerResult, Exchange
from voicepipe.server.gateway.recording_transcription import RecordingTranscription
from voicepipe.server.gateway.stt_route import ResolvedStt, resolve_stt
from voicepipe.server.gateway.translate_text import TextTranslator
from voicepipe.server.gateway.uploaded_recording import UploadedRecording, uploaded_recording
from voicepipe.values import replace

ENGLISH = "english"
"""The language of every translation, as the published answer names it."""


async def translations(request: web.Request) -> web.StreamResponse:
    """Validate the request, then transcribe, translate and send the answer."""
    async with uploaded_recording(request) as upload:
        requested = read_translation_fields(upload.fields)
        resolved = await resolve_stt(request, upload.principal, requested, upload.context, any_language=True)
        translator = None
        if resolved.route.transcriber.capabilities.translates:
            resolved = replace(resolved, options=replace(resolved.options, to_english=True))
        else:
            translator = _translator(request, requested, resolved, upload)
            if requested.prompt is not None:  # the prompt is English, and about the translation
                resolved = replace(resolved, options=replace(resolved.options, prompt=None))
        id_ = f"translation-{secrets.token_hex(16)}"
        async with upload.transcription(resolved) as transcription:
            responder = _TranslationResponder(id_, requested, transcription, translator)
            return await Exchange("translation", id_, requested.model, upload.slot, upload.context).run(responder)


def _translator(
    request: web.Request, requested: TranscriptionRequest, stt: ResolvedStt, upload: UploadedRecording
) -> TextTranslator:
    upload.principal.check_scope(CHAT)  # the prompt goes to an LLM
    context, claims = upload.context, upload.principal.claims
    route = context.chat_models.find(stt.route.agent or "default")
    assert route is not None, "there is always an agent of that name"
    if claims is not None:
        check_may_request(claims, route, context.authenticator.handshake(request), context)
    return TextTranslator(
        route,
        context.chat_models,
        style=requested.prompt,
        temperature=requested.temperature,
        metadata=tuple(claims.routing.items()) if claims is not None else (),
    )


class _TranslationResponder:
    """Answers a request with the translation of its recording."""

    def __init__(
        self,
        id_: str,
        requested: TranscriptionRequest,
        transcription: RecordingTranscription,
        translator: TextTranslator | None,
    ) -> None:
        """`translator`: None if the STT translates."""
        self._id, self._requested, self._transcription, self._translator = id_, requested, transcription, translator

    @property
    def spec(self) -> str:
        return self._transcription.spec

    async def answer(self) -> web.StreamResponse:
        async with self._transcription.pieces() as pieces:
            translated = [await self._in_english(piece) async for piece in pieces]
        transcript = Transcript(
            pieces=translated, duration_s=self._transcription.duration_s, language=ENGLISH, task="translate"
        )
        content_type, body = whole_answer(transcript, self._requested.format, self._voicepipe_field())
        headers = {"X-Request-Id": self._id, "X-Voicepipe-Route": self.spec.encode("ascii", "replace").decode()}
        return web.Response(body=body, content_type=content_type, charset="utf-8", headers=headers)

    def result(self, *, failed: bool) -> AnswerResult:
        if failed and not self._transcription.n_transcribed:
            return AnswerResult(None, {"first_ms": None}, is_unanswered=True)
        figures = {"first_ms": self._transcription.first_ms, "audio_ms": round(1_000 * self._transcription.duration_s)}
        cost_usd = self._cost_usd(failed=failed)
        return AnswerResult(cost_usd, {**figures, "llm": self._llm(), "cost_usd": cost_usd})

    async def _in_english(self, piece: TranscriptPiece) -> TranscriptPiece:
        if self._translator is None or (piece.language or "").lower().partition("-")[0] == "en":
            return piece
        return replace(piece, text=await self._translator.translate(piece.text))

    def _llm(self) -> str | None:
        return None if self._translator is None else self._translator.spec

    def _cost_usd(self, *, failed: bool = False) -> float | None:
        llm_usd = 0.0 if self._translator is None else self._translator.cost_usd(failed=failed)
        costs = [self._transcription.cost_usd(), llm_usd]
        return None if None in costs else sum(each or 0.0 for each in costs)

    def _voicepipe_field(self) -> JsonObject:
        return {
            "route": self.spec,
            "llm": self._llm(),
            "first_ms": self._transcription.first_ms,
            "cost_usd": self._cost_usd(),
        }
