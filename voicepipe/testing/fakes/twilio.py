"""A fake of Twilio: a call that a webhook answers, and its media stream, in real time on a real socket.

Twilio's side is written from its own documentation, not from the code that it tests: the signature
(twilio.com/docs/usage/security), TwiML, and the messages of Media Streams. What is played moves on with the user's
audio, 20 ms at a time, and a mark comes back when everything before it was played or dropped.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit
from xml.etree import ElementTree

import aiohttp
from aiohttp import web

from voicepipe.clock import loop_s
from voicepipe.tasks import background_tasks
from voicepipe.testing.waiting import WAIT_S

FRAME_BYTES: Final = 160
"""20 ms of mu-law at 8 kHz."""

FRAME_S: Final = 0.02
SILENCE: Final = b"\xff" * FRAME_BYTES

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


class TwilioCall:
    """One call, from the point of view of the user on the phone and of the carrier."""

    def __init__(self, line: aiohttp.ClientWebSocketResponse, call_sid: str, next_url: str) -> None:
        self._line, self.call_sid, self._next_url = line, call_sid, next_url
        self.stream_sid = f"MZ{call_sid[2:]}"
        self.played = bytearray()
        """The agent's audio that the user has received, without the carrier's silence."""

        self.cleared: list[int] = []
        """Of each `clear`: the bytes that it dropped."""

        self.n_marks = 0
        self.garbage: list[str] = []
        """Messages that Twilio would not take."""

        self.close_code: int | None = None
        self._speech: deque[bytes] = deque()
        self._queue: deque[bytes | str] = deque()
        self._sequence, self._chunk = 0, 0
        self._changed = asyncio.Condition()

    async def send(self, event: str, **fields: object) -> None:
        """Send a message with its number."""
        self._sequence += 1
        message = {"event": event, "sequenceNumber": str(self._sequence), "streamSid": self.stream_sid, **fields}
        await self._line.send_str(json.dumps(message))

    async def send_raw(self, message: str | bytes) -> None:
        """Send anything."""
        await (self._line.send_str(message) if isinstance(message, str) else self._line.send_bytes(message))

    async def start(self) -> None:
        """Send `connected` and `start`."""
        await self.send_raw(json.dumps({"event": "connected", "protocol": "Call", "version": "1.0.0"}))
        media_format = {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}
        start = {
            "streamSid": self.stream_sid,
            "accountSid": ACCOUNT,
            "callSid": self.call_sid,
            "tracks": ["inbound"],
            "customParameters": {},
            "mediaFormat": media_format,
        }
        await self.send("start", start=start)

    def say(self, mulaw: bytes) -> None:
        """Speak, in real time, behind what is being said; silence follows."""
        padded = mulaw + SILENCE[: -len(mulaw) % FRAME_BYTES]
        self._speech.extend(padded[at : at + FRAME_BYTES] for at in range(0, len(padded), FRAME_BYTES))

    async def press(self, digits: str) -> None:
        """Press keys."""
        for digit in digits:
            await self.send("dtmf", dtmf={"track": "inbound_track", "digit": digit})

    async def hang_up(self) -> None:
        """End the call as the user: `stop`, and the end of the connection."""
        await self.send("stop", stop={"accountSid": ACCOUNT, "callSid": self.call_sid})
        await self._line.close()

    def cut(self) -> None:
        """Break the connection without a close frame."""
        connection = self._line._response.connection
        assert connection is not None
        assert connection.transport is not None
        connection.transport.abort()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds; it is looked at after each frame and message."""
        async with asyncio.timeout(WAIT_S), self._changed:
            await self._changed.wait_for(holds)

    async def ended(self) -> None:
        """Wait until the server has closed the media stream."""
        await self.until(lambda: self.close_code is not None)

    async def next(self, http: aiohttp.ClientSession, secret: str) -> ElementTree.Element:
        """Go on with the call as Twilio does when the server has closed the stream; return the TwiML."""
        status, twiml = await post(http, self._next_url, {"CallSid": self.call_sid}, secret)
        assert status == 200
        return twiml

    @property
    def unplayed_bytes(self) -> int:
        """The agent's audio that waits to be played."""
        return sum(len(each) for each in self._queue if isinstance(each, bytes))

    async def run(self) -> None:
        """Send and play audio in real time, until the stream ends."""
        async with asyncio.TaskGroup() as group:
            clock = group.create_task(self._tick(), name="clock")
            async for message in self._line:
                await self._take(message.data)
                await self._notify()
            self.close_code = self._line.close_code or 0
            clock.cancel()
            await self._notify()

    async def _tick(self) -> None:
        began_s, n_frames = loop_s(), 0
        while not self._line.closed:
            frame = self._speech.popleft() if self._speech else SILENCE
            self._chunk += 1
            media = {
                "track": "inbound",
                "chunk": str(self._chunk),
                "timestamp": str(20 * n_frames),
                "payload": base64.b64encode(frame).decode(),
            }
            try:
                await self.send("media", media=media)
                await self._play(FRAME_BYTES)
            except ConnectionError:
                return
            await self._notify()
            n_frames += 1
            await asyncio.sleep(max(0, began_s + n_frames * FRAME_S - loop_s()))

    async def _play(self, n_bytes: int) -> None:
        """Play that much of what is queued, and return the marks that it reaches."""
        while self._queue:
            first = self._queue[0]
            if isinstance(first, str):
                self._queue.popleft()
                await self.send("mark", mark={"name": first})
            elif n_bytes:
                piece, rest = first[:n_bytes], first[n_bytes:]
                self.played += piece
                n_bytes -= len(piece)
                if rest:
                    self._queue[0] = rest
                else:
                    self._queue.popleft()
            else:
                return

    async def _take(self, raw: Any) -> None:
        try:
            message = json.loads(raw)
            assert message["streamSid"] == self.stream_sid
            match message["event"]:
                case "media":
                    self._queue.append(base64.b64decode(message["media"]["payload"], validate=True))
                case "mark":
                    self.n_marks += 1
                    self._queue.append(message["mark"]["name"])
                case "clear":
                    self.cleared.append(self.unplayed_bytes)
                    marks = [each for each in self._queue if isinstance(each, str)]
                    self._queue.clear()
                    for name in marks:
                        await self.send("mark", mark={"name": name})
                case other:
                    raise ValueError(other)
        except (ValueError, KeyError, TypeError, AssertionError):
            self.garbage.append(str(raw))

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


class TwilioApi:
    """The API that makes calls."""

    def __init__(self) -> None:
        self.dialed: list[dict[str, str]] = []
        """The fields of each request."""

        self.answer: web.Response | None = None
        """What it answers in place of a call."""

    @asynccontextmanager
    async def serving(self, secret: str) -> AsyncIterator[str]:
        """Yield the API's address."""

        async def make_call(request: web.Request) -> web.Response:
            right = f"Basic {base64.b64encode(f'{ACCOUNT}:{secret}'.encode()).decode()}"
            if request.headers.get("Authorization") != right:
                return web.json_response({"code": 20003, "message": "Authenticate", "status": 401}, status=401)
            if self.answer is not None:
                return self.answer
            self.dialed.append({name: str(value) for name, value in (await request.post()).items()})
            return web.json_response({"sid": f"CA{len(self.dialed):032}", "status": "queued"}, status=201)

        app = web.Application()
        app.router.add_post(f"/2010-04-01/Accounts/{ACCOUNT}/Calls.json", make_call)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


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
    async with http.ws_connect(stream_url, max_msg_size=0) as line, background_tasks() as tasks:
        call = TwilioCall(line, call_sid, redirect.text or "")
        await call.start()
        tasks.start(call.run(), name="twilio-call")
        yield call
        assert call.garbage == []
