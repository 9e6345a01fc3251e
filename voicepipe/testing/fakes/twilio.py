"""A fake of Twilio: a call that a webhook answers, and its media stream, in real time on a real socket.

Twilio's side is written from its own documentation, not from the code that it tests: the signature
(twilio.com/docs/usage/security), TwiML, and the messages of Media Streams.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import parse_qsl, urlsplit
from xml.etree import ElementTree

import aiohttp
from aiohttp import web

from voicepipe.testing.fakes.carrier import ApiCall, CarrierApi, running
from voicepipe.testing.fakes.json_carrier import JsonCall

ACCOUNT: Final = "AC00000000000000000000000000000000"


def sign(url: str, fields: dict[str, str], secret: str) -> str:
    """Return the value of `X-Twilio-Signature`."""
    text = url + "".join(f"{name}{fields[name]}" for name in sorted(fields))
    return base64.b64encode(hmac.new(secret.encode(), text.encode(), hashlib.sha1).digest()).decode()


async def post(
    http: aiohttp.ClientSession, url: str, fields: dict[str, str], secret: str
) -> tuple[int, ElementTree.Element]:
    """Request a webhook as Twilio does; return the status and its TwiML."""
    headers = {"X-Twilio-Signature": sign(url, fields, secret)}
    async with http.post(url, data=fields, headers=headers) as answer:
        text = await answer.text()
        is_xml = answer.content_type == "text/xml"
        return answer.status, ElementTree.fromstring(text) if is_xml else ElementTree.Element("none")


class TwilioCall(JsonCall):
    """One call with Media Streams."""

    STREAM_FIELD = "streamSid"
    SEQUENCE_FIELD = "sequenceNumber"

    def __init__(self, websocket: aiohttp.ClientWebSocketResponse, call_sid: str, next_url: str) -> None:
        super().__init__(websocket, call_sid, f"MZ{call_sid[2:]}")
        self._next_url = next_url
        self.stopped = {"accountSid": ACCOUNT, "callSid": call_sid}

    async def start(self) -> None:
        """Send `connected` and `start`."""
        await self.send_raw(json.dumps({"event": "connected", "protocol": "Call", "version": "1.0.0"}))
        start = {
            "streamSid": self.stream_id,
            "accountSid": ACCOUNT,
            "callSid": self.call_id,
            "tracks": ["inbound"],
            "customParameters": {},
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
        }
        await self.send("start", start=start)

    async def next(self, http: aiohttp.ClientSession, secret: str) -> ElementTree.Element:
        """Go on with the call as Twilio does when the server has closed the stream; return the TwiML."""
        status, twiml = await post(http, self._next_url, {"CallSid": self.call_id}, secret)
        assert status == 200
        return twiml


class TwilioApi(CarrierApi):
    """The API that makes calls."""

    def __init__(self, secret: str) -> None:
        super().__init__()
        self._authorization = f"Basic {base64.b64encode(f'{ACCOUNT}:{secret}'.encode()).decode()}"

    @property
    def dialed(self) -> list[dict[str, str]]:
        """Return the fields of each request for a call."""
        return [dict(parse_qsl(each.body.decode())) for each in self.calls]

    def answered(self, call: ApiCall) -> web.Response:
        """Return the new call."""
        if call.authorization != self._authorization:
            return web.json_response({"code": 20003, "message": "Authenticate", "status": 401}, status=401)
        assert (call.method, call.path) == ("POST", f"/2010-04-01/Accounts/{ACCOUNT}/Calls.json")
        return web.json_response({"sid": f"CA{len(self.calls) + 1:032}", "status": "queued"}, status=201)


@asynccontextmanager
async def calling(
    http: aiohttp.ClientSession,
    url: str,
    secret: str,
    *,
    number: str = "+4915112345678",
    to: str = "+493012345",
    call_sid: str = "CA00000000000000000000000000000001",
    **more: str,
) -> AsyncIterator[TwilioCall]:
    """Call a number whose webhook is at `url`, and yield the call once its media stream has begun."""
    fields = {"AccountSid": ACCOUNT, "CallSid": call_sid, "From": number, "To": to, "CallStatus": "ringing", **more}
    status, twiml = await post(http, url, fields, secret)
    assert status == 200, status
    stream, redirect = twiml.find("Connect/Stream"), twiml.find("Redirect")
    assert stream is not None
    assert redirect is not None
    stream_url = stream.attrib["url"]
    assert not urlsplit(stream_url).query, "Twilio refuses a stream's address with a query"
    async with http.ws_connect(stream_url, max_msg_size=0) as websocket:
        call = TwilioCall(websocket, call_sid, redirect.text or "")
        async with running(call):
            yield call
