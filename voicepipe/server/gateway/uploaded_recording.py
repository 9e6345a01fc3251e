"""Receive a request with a recording: check its credential, take a slot, then read its file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from voicepipe.auth.scopes import AUDIO
from voicepipe.server.authenticate import Principal
from voicepipe.server.context import CONTEXT, ServerContext
from voicepipe.server.decoding import DECODING, Decoding
from voicepipe.server.gateway.recorded_speech import RecordedSpeech, refusing_files
from voicepipe.server.gateway.request_slots import RequestSlot
from voicepipe.server.gateway.stt_route import ResolvedStt
from voicepipe.server.realtime import check_ready
from voicepipe.server.upload import read_upload

MAX_DURATION_S: Final = 7_200
"""Maximum length of one file's audio: 25 MB of compressed speech may be many hours."""


@dataclass(frozen=True, slots=True)
class UploadedRecording:
    """A request with its file, which has a slot."""

    fields: Mapping[str, Sequence[str]]
    file: bytearray
    principal: Principal
    slot: RequestSlot
    context: ServerContext
    decoding: Decoding

    @asynccontextmanager
    async def opened(self, stt: ResolvedStt) -> AsyncIterator[RecordedSpeech]:
        """Decode the recording for this STT while the block runs, in a separate process.

        Raises:
            ProtocolError: from the block too: the file is not audio that can be read here.
        """
        rate_hz = stt.route.transcriber.capabilities.rate_hz
        with refusing_files():
            async with self.decoding.opened(self.file, rate_hz, max_duration_s=MAX_DURATION_S) as recording:
                yield RecordedSpeech(stt.route, stt.options, recording, self.context.audio_models)


@asynccontextmanager
async def uploaded_recording(request: web.Request) -> AsyncIterator[UploadedRecording]:
    """Admit the client, read its form, and hold its slot while the block runs.

    Raises:
        AuthError, Overload, TooManyRequests: the client may not do that, or not now.
        ProtocolError: it is no form with a file.
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
