"""A fake of Telnyx: webhooks signed with Ed25519, commands by its API, and media streaming, on real sockets.

Telnyx's side is written from its own documentation, not from the code that it tests: see the sources in
`voicepipe.phone.telnyx`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from voicepipe.audio import g711
from voicepipe.clock import unix_s
from voicepipe.testing.fakes.carrier import ApiCall, CarrierApi, reached, running
from voicepipe.testing.fakes.json_carrier import JsonCall

APP_ID: Final = "1494404757140276705"
ALAW_OF_MULAW: Final = g711.encode_alaw(g711.decode_mulaw(bytes(range(256))))
"""A table for `bytes.translate`."""

USER_ID: Final = "3E6F995F-85F7-4705-9741-53B116D28237"
API_KEY: Final = "KEY-of-the-telnyx-api"


class Signer:
    """Signs the webhooks of an account."""

    def __init__(self) -> None:
        self._key = Ed25519PrivateKey.generate()

    @property
    def public_key(self) -> str:
        """Return the account's public key, as the portal shows it."""
        return base64.b64encode(self._key.public_key().public_bytes_raw()).decode()

    def headers(self, body: bytes, timestamp: int | None = None) -> dict[str, str]:
        """Return the headers of a signed webhook."""
        at = str(unix_s() if timestamp is None else timestamp)
        signature = self._key.sign(f"{at}|".encode() + body)
        return {"telnyx-signature-ed25519": base64.b64encode(signature).decode(), "telnyx-timestamp": at}


def webhook(event_type: str, **payload: str) -> bytes:
    """Return the body of a webhook."""
    call_fields = {"connection_id": APP_ID, **payload}
    data = {
        "record_type": "event",
        "event_type": event_type,
        "id": "0ccc7b54-4df3-4bca-a65a-3da1ecc777f0",
        "payload": call_fields,
    }
    return json.dumps({"data": data, "meta": {"attempt": 1}}).encode()


async def post(http: aiohttp.ClientSession, url: str, body: bytes, signer: Signer) -> int:
    """Request a webhook as Telnyx does; return the status."""
    headers = {"Content-Type": "application/json", **signer.headers(body)}
    async with http.post(url, data=body, headers=headers) as answer:
        return answer.status


class TelnyxApi(CarrierApi):
    """The API that takes commands."""

    refused = ""
    """A command that it does not take."""

    def answered(self, call: ApiCall) -> web.Response:
        """Return the result of a command."""
        if call.authorization != f"Bearer {API_KEY}":
            return web.json_response({"errors": [{"code": "10009", "title": "Authentication failed"}]}, status=401)
        assert (call.method, call.content_type) == ("POST", "application/json")
        if self.refused and call.path.endswith(f"/{self.refused}"):
            return web.json_response({"errors": [{"code": "90018", "title": "Call has already ended"}]}, status=422)
        if call.path == "/v2/calls":
            return web.json_response({"data": {"call_control_id": f"v3:dialed-{len(self.calls)}", "is_alive": False}})
        return web.json_response({"data": {"result": "ok"}})

    async def command(self, call_id: str, action: str) -> dict[str, Any]:
        """Return the fields of a command to a call, once it has come."""
        fields: dict[str, Any] = json.loads((await self.until(f"/v2/calls/{call_id}/actions/{action}")).body)
        return fields


class TelnyxCall(JsonCall):
    """One call with media streaming."""

    STREAM_FIELD = "stream_id"
    SEQUENCE_FIELD = "sequence_number"
    requires_stream_id = False

    def __init__(self, websocket: aiohttp.ClientWebSocketResponse, call_id: str, encoding: str) -> None:
        super().__init__(websocket, call_id, "32DE0DEA-53CB-4B21-89A4-9E1819C043BC")
        self._encoding = encoding
        self.stopped = {"user_id": USER_ID, "call_control_id": call_id}

    async def start(self) -> None:
        """Send `connected` and `start`."""
        await self.send_raw(json.dumps({"event": "connected", "version": "1.0.0"}))
        start = {
            "user_id": USER_ID,
            "call_control_id": self.call_id,
            "call_session_id": "ff55a038-6f5d-11ef-9692-02420aeffb1f",
            "from": "+13122010094",
            "to": "+13122123456",
            "media_format": {"encoding": self._encoding, "sample_rate": 8000, "channels": 1},
        }
        await self.send("start", start=start)


@asynccontextmanager
async def calling(
    http: aiohttp.ClientSession,
    url: str,
    signer: Signer,
    api: TelnyxApi,
    *,
    number: str = "+4915112345678",
    call_id: str = "v3:T02llQxIyaRkhfRKxgAP8nY511EhFLizdvdUKJiSw8d6A9BborherQ",
    encoding: str = "PCMU",
    dialed: bool = False,
) -> AsyncIterator[TelnyxCall]:
    """Call a number whose webhook is at `url`, and yield the call once its media stream has begun.

    `dialed`: the server has called the user, and a person has answered.
    """
    user, to = (number, "+493012345") if not dialed else ("+493012345", number)
    event = "call.machine.detection.ended" if dialed else "call.initiated"
    direction = "outgoing" if dialed else "incoming"
    body = webhook(event, call_control_id=call_id, direction=direction, result="human", **{"from": user, "to": to})
    assert await post(http, url, body, signer) == 200
    stream = await api.command(call_id, "streaming_start" if dialed else "answer")
    assert stream["stream_bidirectional_mode"] == "rtp"
    assert stream["stream_bidirectional_codec"] == stream["stream_codec"] == "PCMU"
    async with http.ws_connect(reached(stream["stream_url"], url), max_msg_size=0) as websocket:
        call = TelnyxCall(websocket, call_id, encoding)
        async with running(call):
            yield call
