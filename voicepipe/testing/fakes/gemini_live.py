"""Gemini's Live API on a local socket.

Written from ai.google.dev, "Live API - WebSockets API reference": one `setup`, then content, audio between the signals
of an activity, and results of functions. What the vendor would refuse closes the connection, as there.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed

from voicepipe.testing.fakes.cues import InBandError, Status
from voicepipe.testing.fakes.speech_model import Ended, FakeSpeechVendor, SpeechCall, SpeechCue

KEY = "AIzaFakeKey0123456789"
"""The only valid key."""

PATH = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent"


class FakeGeminiLive(FakeSpeechVendor):
    """A call's `items` are its turns: its input, the user's words, its answers and results."""

    turn_complete = True
    """Whether an answer's `turnComplete` follows at once; otherwise only before the next one, as behind a playback."""

    def refusal_of(self, path: str, query: Mapping[str, str], headers: Headers) -> Status | None:
        if headers.get("x-goog-api-key") != KEY:
            return Status(401, "API key not valid.")
        return None if path == PATH else Status(404, "expected another address")

    def error_of(self, status: Status | InBandError) -> str:
        code = status.status if isinstance(status, Status) else status.code or 500
        return json.dumps({"error": {"code": code, "message": status.message, "status": "FAKE"}})

    async def take(self, call: SpeechCall, message: str | bytes) -> None:
        body = json.loads(message)
        (kind,) = body
        if kind == "realtimeInput":
            await self._take_input(call, body[kind])
            return
        call.messages.append(body)
        match kind:
            case "setup" if len(call.messages) == 1 and body["setup"]["model"].startswith("models/"):
                await self._send(call, setupComplete={})
            case "clientContent":
                call.items += body[kind]["turns"]
                if body[kind]["turnComplete"]:
                    await self._request(call)
            case "toolResponse":
                call.items += [{"returned": each} for each in body[kind]["functionResponses"]]
                await self._request(call)
            case _:
                await call.socket.close(1007, "Request contains an invalid argument.")

    async def _take_input(self, call: SpeechCall, message: dict[str, Any]) -> None:
        if "activityStart" in message:
            call.audio_bytes = 0
        elif "audio" in message:
            assert message["audio"]["mimeType"] == "audio/pcm;rate=16000"
            call.audio_bytes += len(base64.b64decode(message["audio"]["data"]))
        else:
            call.items.append({"role": "user", "input_ms": call.audio_bytes // 32})
            await self._request(call)

    async def _request(self, call: SpeechCall) -> None:
        if call.n and not self.turn_complete:
            await self._send(call, serverContent={"turnComplete": True}, usageMetadata=self._usage())
        call.n += 1
        call.answering = call.group.create_task(self._answer(call, self.next_cue()))

    async def _answer(self, call: SpeechCall, cue: SpeechCue) -> None:
        try:
            n = 0
            for n, pcm in enumerate(cue.pieces()):
                await self._pause(call, cue, n)
                blob = {"mimeType": "audio/pcm;rate=24000", "data": base64.b64encode(pcm).decode()}
                await self._send(call, serverContent={"modelTurn": {"parts": [{"inlineData": blob}]}})
                if n == 0:
                    for word in cue.words():
                        await self._send(call, serverContent={"outputTranscription": {"text": word}})
            if not cue.text:
                await self._pause(call, cue, 0)
            if cue.calls:
                calls = [
                    {"id": each.call_id, "name": each.name, "args": json.loads("".join(each.arguments))}
                    for each in cue.calls
                ]
                await self._send(call, toolCall={"functionCalls": calls}, usageMetadata=self._usage())
                return
            call.items.append({"role": "model", "text": cue.text})
            await self._send(call, serverContent={"generationComplete": True})
            if self.turn_complete:
                await self._send(call, serverContent={"turnComplete": True}, usageMetadata=self._usage())
        except (Ended, ConnectionClosed):
            pass

    async def _pause(self, call: SpeechCall, cue: SpeechCue, n_pieces: int) -> None:
        if cue.hold is not None and cue.hold.after == n_pieces:
            cue.hold.reached.set()
            await cue.hold.release.wait()
        await self.fault(call, cue.fault, n_pieces)

    def _usage(self) -> dict[str, Any]:
        prompt = [{"modality": "TEXT", "tokenCount": 120}, {"modality": "AUDIO", "tokenCount": 80}]
        response = [{"modality": "AUDIO", "tokenCount": 150}]
        return {"promptTokensDetails": prompt, "responseTokensDetails": response, "totalTokenCount": 350}

    async def _send(self, call: SpeechCall, **message: Any) -> None:
        # The vendor sends its JSON in binary frames.
        await call.socket.send(json.dumps(message).encode())
