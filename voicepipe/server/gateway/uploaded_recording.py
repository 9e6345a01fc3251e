"""Receive a request with a recording: check the credential, read the file, take a slot."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from msgspec import Struct

from voicepipe.auth.scopes import AUDIO
from voicepipe.server.authenticate import Principal
from voicepipe.server.context import CONTEXT, ServerContext
from voicepipe.server.decoding import DECODING, Decoding
from voicepipe.server.gateway.recording_transcription import RecordingTranscription, convert_file_errors
from voicepipe.server.gateway.request_slots import RequestSlot
from voicepipe.server.gateway.stt_route import ResolvedStt
from voicepipe.server.realtime import check_ready
from voicepipe.server.upload import read_upload

MAX_DURATION_S: Final = 7_200
"""Maximum length of one file's audio: 25 MB of compressed speech may be many hours."""


class UploadedRecording(Struct, frozen=True):
    """A request with a file and a slot."""

    fields: Mapping[str, Sequence[str]]
    file: bytearray
    principal: Principal
    slot: RequestSlot
    context: ServerContext
    decoding: Decoding

    @asynccontextmanager
    async def transcription(self, stt: ResolvedStt) -> AsyncIterator[RecordingTranscription]:
        """Decode the recording for an STT in a separate process while the block runs.

        Raises:
            ProtocolError: also from the block: the file is not audio that the server can read.
        """
        rate_hz = stt.route.transcriber.capabilities.rate_hz
        with convert_file_errors():
            async with self.decoding.opened(self.file, rate_hz, max_duration_s=MAX_DURATION_S) as recording:
                yield RecordingTranscription(stt.route, stt.options, recording, self.context.audio_models)


@asynccontextmanager
async def uploaded_recording(request: web.Request) -> AsyncIterator[UploadedRecording]:
    """Authenticate the client, read the form, and hold a slot while the block runs.

    Raises:
        AuthError, Overload, TooManyRequests: the client may not do that, or not now.
        ProtocolError: the body is no form with a file.
    """
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(AUDIO)
    check_ready(context)
    context.audio_slots.check(principal)  # nothing is read while all slots are taken
    decoding = request.app[DECODING]
    await decoding.warm()
    upload = await read_upload(request)
    assert upload.file is not None
    # Only now: a client that uploads slowly must not block others.
    async with context.audio_slots.slot(principal) as slot:
        yield UploadedRecording(upload.fields, upload.file, principal, slot, context, decoding)
