"""A fake of Vonage: webhooks signed by JWT, NCCO, and a WebSocket with L16, on real sockets.

Vonage's side is written from its own documentation, not from the code that it tests: see the sources in
`voicepipe.phone.vonage`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from voicepipe.audio.g711 import decode_mulaw, encode_mulaw
from voicepipe.audio.samples import PcmJoiner, to_pcm
from voicepipe.clock import unix_s
from voicepipe.testing.fakes.carrier import FRAME_BYTES, ApiCall, CarrierApi, CarrierCall, reached, running

APPLICATION: Final = "78d335fa-323d-0114-9c3d-d6f0d48968cf"
NUMBER: Final = "493012345"

MAX_MESSAGES: Final = 3_072
"""Messages of 20 ms that Vonage queues."""


def private_key() -> RSAPrivateKey:
    """Return the key of an application."""
    return generate_private_key(public_exponent=65_537, key_size=2_048)


def pem(key: RSAPrivateKey) -> str:
    """Return a private key as the dashboard gives it."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def token(body: bytes, secret: str, iat: int | None = None) -> str:
    """Return the JWT that signs a webhook."""

    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    claims = {
        "iss": "Vonage",
        "iat": unix_s() if iat is None else iat,
        "jti": "c5ba8f24-1a14-4c10-bfdf-3fbe8ce511b5",
        "payload_hash": hashlib.sha256(body).hexdigest(),
        "api_key": "a1b2c3d",
        "application_id": APPLICATION,
    }
    signed = f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(claims)}"
    digest = hmac.new(secret.encode(), signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


async def post(http: aiohttp.ClientSession, url: str, fields: dict[str, Any], secret: str) -> tuple[int, list[Any]]:
    """Request a webhook as Vonage does; return the status and the NCCO."""
    body = json.dumps(fields, separators=(",", ":")).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token(body, secret)}"}
    async with http.post(url, data=body, headers=headers) as answer:
        text = await answer.text()
        return answer.status, json.loads(text) if answer.content_type == "application/json" and text else []


class VonageApi(CarrierApi):
    """The API that makes calls and takes commands."""

    def __init__(self, key: RSAPrivateKey) -> None:
        super().__init__()
        self._key = key.public_key()

    def answered(self, call: ApiCall) -> web.Response:
        """Return the new call; nothing for a command."""
        try:
            claims = jwt.decode(call.authorization.removeprefix("Bearer "), self._key, algorithms=["RS256"])
        except jwt.PyJWTError:
            return web.json_response({"title": "Unauthorized"}, status=401)
        assert claims["application_id"] == APPLICATION
        if call.path != "/v1/calls":
            return web.Response(status=200 if call.path.endswith("/dtmf") else 204)
        return web.json_response({"uuid": "63f61863-4a51-4f6b-86e1-46edebcf9356", "status": "started"}, status=201)


class VonageCall(CarrierCall):
    """One call with a WebSocket."""

    def __init__(self, websocket: aiohttp.ClientWebSocketResponse, connect: dict[str, Any], next_url: str) -> None:
        endpoint = connect["endpoint"][0]
        super().__init__(websocket, endpoint["headers"]["call"])
        self._content_type, self.headers = endpoint["content-type"], endpoint["headers"]
        self.next_url = next_url

    async def start(self) -> None:
        """Send `websocket:connected`, with the headers of the NCCO."""
        await self._send("websocket:connected", **{"content-type": self._content_type}, **self.headers)

    async def _send(self, event: str, **fields: object) -> None:
        await self.send_raw(json.dumps({"event": event, **fields}))

    async def send_audio(self, frame: bytes, number: int) -> None:
        """Send 320 bytes of L16."""
        await self.send_raw(to_pcm(decode_mulaw(frame)))

    async def send_mark(self, name: str) -> None:
        """Send `websocket:notify`."""
        await self._send("websocket:notify", payload=json.loads(name))

    async def press(self, digits: str) -> None:
        """Send `websocket:dtmf` for each key."""
        for digit in digits:
            await self._send("websocket:dtmf", digit=digit, duration=260)

    async def hang_up(self) -> None:
        """End the connection: there is no message before it."""
        await self._websocket.close()

    async def take(self, message: aiohttp.WSMessage) -> None:
        """Take audio, `notify` and `clear`."""
        if message.type is aiohttp.WSMsgType.BINARY:
            assert len(message.data) == 2 * FRAME_BYTES
            assert self.unplayed_bytes < MAX_MESSAGES * FRAME_BYTES
            self.queue_audio(encode_mulaw(PcmJoiner().push(message.data)))
            return
        fields = json.loads(message.data)
        match fields["action"]:
            case "notify":
                self.queue_mark(json.dumps(fields["payload"]))
            case "clear":
                self.clear()  # marks that wait are dropped
                await self._send("websocket:cleared")
            case other:
                raise ValueError(other)


@asynccontextmanager
async def calling(
    http: aiohttp.ClientSession, url: str, secret: str, *, number: str = "4915112345678", call_id: str = "63f61863-1"
) -> AsyncIterator[VonageCall]:
    """Call a number whose webhook is at `url`, and yield the call once its media stream has begun."""
    fields = {"from": number.lstrip("+"), "to": NUMBER, "uuid": call_id, "conversation_uuid": f"CON-{call_id}"}
    status, ncco = await post(http, url, fields, secret)
    assert status == 200, status
    (connect,) = ncco
    assert (connect["action"], connect["eventType"]) == ("connect", "synchronous")
    assert connect["endpoint"][0]["type"] == "websocket"
    assert connect["endpoint"][0]["content-type"] == "audio/l16;rate=8000"
    assert len(json.dumps(connect["endpoint"][0]["headers"])) <= 512
    leg = {
        "uuid": "leg-of-the-websocket",
        "to": connect["endpoint"][0]["uri"],
        "headers": connect["endpoint"][0]["headers"],
    }
    next_url = reached(connect["eventUrl"][0], url)
    for state in ("started", "ringing", "answered"):
        assert await post(http, next_url, {"status": state, **leg}, secret) == (200, [])
    async with http.ws_connect(reached(connect["endpoint"][0]["uri"], url), max_msg_size=0) as websocket:
        call = VonageCall(websocket, connect, next_url)
        async with running(call):
            yield call


async def outcome(http: aiohttp.ClientSession, call: VonageCall, secret: str) -> list[Any]:
    """Report that the server has closed the WebSocket; return the NCCO with which the call goes on."""
    fields = {"status": "disconnected", "uuid": "leg-of-the-websocket", "from": NUMBER, "headers": call.headers}
    status, ncco = await post(http, call.next_url, fields, secret)
    assert status == 200
    return ncco
