"""A fake of Asterisk: the requests of its dialplan, its WebSocket channel and its REST interface, on real sockets.

Asterisk's side is written from its own documentation and from `channels/chan_websocket.c`, not from the code that it
tests: see the sources in `voicepipe.phone.asterisk`. The dialplan is the one of web/docs/phone-asterisk.md.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
from aiohttp import web

from voicepipe.testing.fakes.carrier import FRAME_BYTES, ApiCall, CarrierApi, CarrierCall, running

ARI_USER: Final = "voicepipe"
ARI_PASSWORD: Final = "ari-password"
NUMBER: Final = "+493012345"

XOFF_FRAMES: Final = 900
"""Frames of 20 ms in the queue from which on Asterisk requests a pause; from 1,000 on it drops what comes."""

MAX_MESSAGE_BYTES: Final = 65_500


async def curl(http: aiohttp.ClientSession, url: str, fields: dict[str, str], secret: str) -> tuple[int, str]:
    """Request a webhook as `CURL` does, with `CURLOPT(userpwd)`; return the status and the text."""
    credentials = base64.b64encode(f"asterisk:{secret}".encode()).decode()
    async with http.post(url, data=fields, headers={"Authorization": f"Basic {credentials}"}) as answer:
        return answer.status, await answer.text()


class AsteriskApi(CarrierApi):
    """The REST interface (ARI), which makes calls."""

    def __init__(self) -> None:
        super().__init__()
        credentials = base64.b64encode(f"{ARI_USER}:{ARI_PASSWORD}".encode()).decode()
        self._authorization = f"Basic {credentials}"

    def answered(self, call: ApiCall) -> web.Response:
        """Return the new channel."""
        if call.authorization != self._authorization:
            return web.json_response({"message": "Authentication required"}, status=401)
        assert (call.method, call.path, call.content_type) == ("POST", "/ari/channels", "application/json")
        fields = json.loads(call.body)
        assert fields["endpoint"].startswith("Local/+")
        assert {"context", "extension", "priority", "variables"} <= fields.keys()
        channel = {"id": "1795463712.4", "name": "Local/+4915112345678@voicepipe-out-00000000;1", "state": "Down"}
        return web.json_response(channel)


class AsteriskCall(CarrierCall):
    """One call with the WebSocket channel."""

    async def start(self) -> None:
        """Send `MEDIA_START`."""
        start = {
            "connection_id": "voicepipe",
            "channel": "WebSocket/voicepipe/0x7f2c5c007170",
            "channel_id": "1795463712.9",
            "format": "ulaw",
            "optimal_frame_size": FRAME_BYTES,
            "ptime": 20,
            "channel_variables": {"MEDIA_WEBSOCKET_CONNECTION_ID": "voicepipe"},
        }
        await self._send("MEDIA_START", **start)

    async def _send(self, event: str, **fields: object) -> None:
        await self.send_raw(json.dumps({"event": event, **fields}, separators=(",", ":")))

    async def send_audio(self, frame: bytes, number: int) -> None:
        """Send mu-law as it is."""
        await self.send_raw(frame)

    async def send_mark(self, name: str) -> None:
        """Send `MEDIA_MARK_PROCESSED`."""
        await self._send("MEDIA_MARK_PROCESSED", channel_id="1795463712.9", correlation_id=name)

    async def press(self, digits: str) -> None:
        """Send `DTMF_END` for each key."""
        for digit in digits:
            await self._send("DTMF_END", channel_id="1795463712.9", digit=digit)

    async def hang_up(self) -> None:
        """End the connection: there is no message before it."""
        await self._websocket.close()

    async def take(self, message: aiohttp.WSMessage) -> None:
        """Take mu-law, `MARK_MEDIA` and `FLUSH_MEDIA`."""
        if message.type is aiohttp.WSMsgType.BINARY:
            assert len(message.data) <= MAX_MESSAGE_BYTES, "Asterisk would hang up"
            assert len(message.data) % FRAME_BYTES == 0, "Asterisk would drop what fills no frame"
            self.queue_audio(message.data)
            assert self.unplayed_bytes < XOFF_FRAMES * FRAME_BYTES, "Asterisk would send MEDIA_XOFF, and soon drop"
            return
        assert len(message.data) <= 128, "Asterisk would not read it"
        fields = json.loads(message.data)
        match fields["command"]:
            case "MARK_MEDIA":
                self.queue_mark(fields["correlation_id"])
            case "FLUSH_MEDIA":
                self.clear()  # marks that wait are dropped
            case other:
                raise ValueError(other)


@asynccontextmanager
async def calling(
    http: aiohttp.ClientSession, url: str, secret: str, *, number: str = "+4915112345678", call_id: str = "1795463712.1"
) -> AsyncIterator[AsteriskCall]:
    """Call a number whose webhook is at `url`, and yield the call once its media stream has begun."""
    fields = {"call": call_id, "from": number, "to": NUMBER.lstrip("+")}
    status, token = await curl(http, url, fields, secret)
    assert status == 200, status
    assert token, "busy"
    assert set(token) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"), "see v() of `Dial`"
    async with http.ws_connect(f"{url}/stream?token={token}", protocols=("media",), max_msg_size=0) as websocket:
        call = AsteriskCall(websocket, call_id)
        async with running(call):
            yield call


async def outcome(http: aiohttp.ClientSession, url: str, call: AsteriskCall, secret: str) -> str:
    """Request where a call goes whose WebSocket the server has closed; return the number, or nothing."""
    status, number = await curl(http, f"{url}/next", {"call": call.call_id}, secret)
    assert status == 200
    return number
