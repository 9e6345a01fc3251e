"""A fake of Plivo: webhooks with the V3 signature, XML, and audio streaming, on real sockets.

Plivo's side is written from its own documentation, not from the code that it tests: see the sources in
`voicepipe.phone.plivo`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from xml.etree import ElementTree

import aiohttp
from aiohttp import web

from voicepipe.testing.fakes.carrier import ApiCall, CarrierApi, running
from voicepipe.testing.fakes.json_carrier import JsonCall

AUTH_ID: Final = "MAXXXXXXXXXXXXXXXXXX"
NUMBER: Final = "493012345"
NONCE: Final = "05429567804466091622"


def sign(url: str, fields: dict[str, str], secret: str) -> str:
    """Return the value of `X-Plivo-Signature-V3` for a POST."""
    path, _, query = url.partition("?")
    text = path
    if query or fields:
        text += "?" + "&".join(sorted(query.split("&")))
    if query and fields:
        text += "."
    text += "".join(f"{name}{fields[name]}" for name in sorted(fields)) + f".{NONCE}"
    return base64.b64encode(hmac.new(secret.encode(), text.encode(), hashlib.sha256).digest()).decode()


async def post(
    http: aiohttp.ClientSession, url: str, fields: dict[str, str], secret: str
) -> tuple[int, ElementTree.Element]:
    """Request a webhook as Plivo does; return the status and its XML."""
    signatures = f"{sign(url, fields, 'the main account')},{sign(url, fields, secret)}"
    headers = {"X-Plivo-Signature-V3": signatures, "X-Plivo-Signature-V3-Nonce": NONCE}
    async with http.post(url, data=fields, headers=headers) as answer:
        text = await answer.text()
        is_xml = answer.content_type == "text/xml"
        return answer.status, ElementTree.fromstring(text) if is_xml else ElementTree.Element("none")


class PlivoApi(CarrierApi):
    """The API that makes calls."""

    def __init__(self, secret: str) -> None:
        super().__init__()
        self._authorization = f"Basic {base64.b64encode(f'{AUTH_ID}:{secret}'.encode()).decode()}"

    def answered(self, call: ApiCall) -> web.Response:
        """Return the new call."""
        if call.authorization != self._authorization:
            return web.Response(text="Could not verify your access level for that URL.", status=401)
        assert (call.method, call.path) == ("POST", f"/v1/Account/{AUTH_ID}/Call/")
        assert {"from", "to", "answer_url"} <= json.loads(call.body).keys()
        answer = {"api_id": "97ceeb52-58b6-11e1-86da-77300b68f8bb", "message": "call fired"}
        return web.json_response({**answer, "request_uuid": "9834029e-58b6-11e1-b8b7-a5bd0e4e126f"}, status=201)


class PlivoCall(JsonCall):
    """One call with audio streaming."""

    STREAM_FIELD = "streamId"
    SEQUENCE_FIELD = "sequenceNumber"

    def __init__(self, websocket: aiohttp.ClientWebSocketResponse, call_id: str, next_url: str) -> None:
        super().__init__(websocket, call_id, "87654321-4321-4321-4321-cba987654321")
        self.pressed = ""
        """The keys that the agent has pressed."""

        self.next_url = next_url

    async def start(self) -> None:
        """Send `start`."""
        start = {
            "callId": self.call_id,
            "streamId": self.stream_id,
            "accountId": AUTH_ID,
            "tracks": ["inbound"],
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000},
        }
        await self.send_raw(json.dumps({"event": "start", "sequenceNumber": 1, "start": start}))

    async def send_mark(self, name: str) -> None:
        """Send `playedStream`."""
        await self.send_raw(json.dumps({"event": "playedStream", "streamId": self.stream_id, "name": name}))

    async def hang_up(self) -> None:
        """End the connection: there is no message before it."""
        await self._websocket.close()

    async def take(self, message: aiohttp.WSMessage) -> None:
        """Take `playAudio`, `checkpoint`, `clearAudio` and `sendDTMF`."""
        fields: dict[str, Any] = json.loads(message.data)
        match fields["event"]:
            case "playAudio":
                media = fields["media"]
                assert (media["contentType"], media["sampleRate"]) == ("audio/x-mulaw", 8000)
                self.queue_audio(base64.b64decode(media["payload"], validate=True))
                return
            case "sendDTMF":
                self.pressed += fields["dtmf"]
                return
            case "checkpoint":
                self.queue_mark(fields["name"])
            case "clearAudio":
                self.clear()  # checkpoints that wait are dropped
                await self.send("clearedAudio")
            case other:
                raise ValueError(other)
        assert fields["streamId"] == self.stream_id


@asynccontextmanager
async def calling(
    http: aiohttp.ClientSession,
    url: str,
    secret: str,
    *,
    number: str = "+4915112345678",
    call_id: str = "12345678-1234-1234-1234-123456789abc",
) -> AsyncIterator[PlivoCall]:
    """Call a number whose webhook is at `url`, and yield the call once its media stream has begun."""
    call_fields = {"CallUUID": call_id, "From": number.lstrip("+"), "To": NUMBER, "Direction": "inbound"}
    status, xml = await post(http, url, {**call_fields, "CallStatus": "ringing", "Event": "StartApp"}, secret)
    assert status == 200, status
    stream, redirect = xml.findall("*")
    assert (stream.tag, redirect.tag) == ("Stream", "Redirect")
    right = {"bidirectional": "true", "keepCallAlive": "true", "contentType": "audio/x-mulaw;rate=8000"}
    assert stream.attrib == right
    async with http.ws_connect(stream.text or "", max_msg_size=0) as websocket:
        call = PlivoCall(websocket, call_id, redirect.text or "")
        async with running(call):
            yield call
    ended = {**call_fields, "CallStatus": "completed", "Event": "Hangup", "HangupCause": "NORMAL_CLEARING"}
    assert (await post(http, url, ended, secret))[0] == 200, "the end of a call is reported to the same address"
