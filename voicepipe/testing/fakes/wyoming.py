"""An STT and a TTS that speak Wyoming, on a local socket.

async with FakeWyoming() as vendor:
    vendor.stt.cue(SttCue(text="what time is it"))
    ...                                           # open the STT or the TTS at vendor.base_url

Events are written from the README of the protocol's own package, `wyoming`: "Speech to Text", "Text to Speech". A
status is sent as an error's code, since the protocol has no other way to refuse.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from types import TracebackType
from typing import Any

import numpy as np

from voicepipe.testing.fakes.cues import (
    CuePoints,
    Cut,
    Fault,
    Garbage,
    Hang,
    HangUp,
    InBandError,
    Malformed,
    NoEnd,
    Stall,
    Status,
    SttCue,
    TtsCue,
)
from voicepipe.testing.fakes.script import ReceivedRequest, Script
from voicepipe.testing.fakes.tone import tone


def event(kind: str, data: dict[str, Any], payload: bytes = b"", *, inline: bool = False) -> bytes:
    """Return an event's bytes; its data follow the line, or are `inline`: servers may do either."""
    body = b"" if inline else json.dumps(data).encode()
    head: dict[str, Any] = {"type": kind, "version": "fake", "payload_length": len(payload) or None}
    head |= {"data": data} if inline else {"data_length": len(body)}
    return json.dumps(head).encode() + b"\n" + body + payload


class FakeWyoming:
    """A server that transcribes and speaks on cue. The kernel picks its port."""

    def __init__(self) -> None:
        self.stt: Script[SttCue, ReceivedRequest] = Script(SttCue())
        self.tts: Script[TtsCue, ReceivedRequest] = Script(TtsCue())
        self._server: asyncio.Server | None = None

    @property
    def base_url(self) -> str:
        """Return the `base_url` of a provider for this fake."""
        assert self._server is not None
        return f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> FakeWyoming:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()
        for received in (*self.stt.received, *self.tts.received):
            await received.ended.wait()

    # --- a connection -------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async for kind, question, sound in _questions(reader):
                received = ReceivedRequest(question)
                received.samples = np.frombuffer(sound, dtype="<i2").astype(np.int16)
                try:
                    await self._answer_while_connected(kind, received, reader, writer)
                finally:
                    received.ended.set()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client left during its request
        finally:
            writer.transport.abort()

    async def _answer_while_connected(
        self, kind: str, received: ReceivedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        async with asyncio.TaskGroup() as group:
            answering = group.create_task(self._answer(kind, received, writer), name="fake-wyoming")
            with suppress(OSError):
                await reader.read(1)  # the client disconnects, with or without its answer
            if not answering.done():
                received.gone.set()
            answering.cancel()
        writer.transport.abort()

    async def _answer(self, kind: str, received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if kind == "stt":
            self.stt.arrive(received)
            await _notify(writer, self.stt.take(received))
        else:
            self.tts.arrive(received)
            await _speak(writer, str(received.question["text"]), self.tts.take(received))
        with suppress(OSError):  # the client may have left
            await writer.drain()
            writer.write_eof()  # so that the written data arrives before the connection is cut


async def _questions(reader: asyncio.StreamReader) -> AsyncIterator[tuple[str, dict[str, Any], bytes]]:
    question: dict[str, Any] = {}
    sound = b""
    while line := await reader.readline():
        head = json.loads(line)
        data = json.loads(await reader.readexactly(head["data_length"]))
        payload = await reader.readexactly(head["payload_length"])
        match head["type"]:
            case "transcribe":
                question = data
            case "audio-chunk":
                assert (data["rate"], data["width"], data["channels"]) == (16_000, 2, 1)
                sound += payload
            case "audio-stop":
                yield "stt", question, sound
            case "synthesize":
                yield "tts", data, b""


def _error(fault: Fault | None) -> bytes | None:
    match fault:
        case Status(status, message):
            return event("error", {"text": message, "code": str(status)})
        case InBandError(message=message):
            return event("error", {"text": message, "code": "fake"})
        case Malformed():
            return b'{"type": \n'
        case Garbage():
            return b"\x00\xff\xfe\x80"
    return None


async def _notify(writer: asyncio.StreamWriter, cue: SttCue) -> None:
    """Send the transcript; a fault's position counts bytes of it."""
    await asyncio.sleep(cue.delay_ms / 1_000)
    await CuePoints(None, cue.hold).reach(1_000_000)
    pieces = event("transcript-start", {}) + event("transcript-chunk", {"text": cue.text})
    answer = cue.raw or pieces + event("transcript", {"text": cue.text, "language": cue.language}, inline=True)
    if (wrong := _error(cue.fault)) is not None:
        writer.write(wrong)
        return
    match cue.fault:
        case None:
            writer.write(answer)
        case Cut(after):
            writer.write(answer[:after])
        case HangUp() | NoEnd():
            pass
        case fault:  # Hang and Stall
            writer.write(answer[: getattr(fault, "after", 0)])
            await asyncio.Event().wait()


async def _speak(writer: asyncio.StreamWriter, text: str, cue: TtsCue) -> None:
    """Send the audio; a fault's position counts bytes of it."""
    if (wrong := _error(cue.fault)) is not None:
        writer.write(wrong)
        return
    if isinstance(cue.fault, HangUp):
        return
    if isinstance(cue.fault, Hang):
        await asyncio.Event().wait()
    shape = {"rate": cue.rate_hz, "width": 2, "channels": 1}
    await asyncio.sleep(cue.ttfb_ms / 1_000)
    writer.write(event("audio-start", shape))
    sound = tone(text, ms_per_char=cue.ms_per_char, rate_hz=cue.rate_hz).astype("<i2").tobytes()
    cue_points = CuePoints(cue.fault, cue.hold)
    begins = sorted({0, *range(0, len(sound), cue.chunk_bytes), *_marked(cue, len(sound))})
    for begin, end in zip(begins, [*begins[1:], len(sound)], strict=True):
        if await cue_points.reach(begin) is not None:
            return
        writer.write(event("audio-chunk", shape, sound[begin:end]))
        await asyncio.sleep(cue.gap_ms / 1_000)
    if await cue_points.reach(len(sound)) is None:
        writer.write(event("audio-stop", {"timestamp": None}))


def _marked(cue: TtsCue, n_bytes: int) -> list[int]:
    marked = [cue.hold.after] if cue.hold is not None else []
    if isinstance(cue.fault, Cut | Stall):
        marked.append(cue.fault.after)
    return [place for place in marked if place < n_bytes]
