"""A fake of a call whose media stream has JSON messages with base64 audio."""

from __future__ import annotations

import base64
import json
from typing import Any, ClassVar

import aiohttp

from voicepipe.testing.fakes.carrier import CarrierCall


class JsonCall(CarrierCall):
    """The messages that Twilio and Telnyx share, with each carrier's name of the fields."""

    STREAM_FIELD: ClassVar[str]
    """The field with the stream's ID."""

    SEQUENCE_FIELD: ClassVar[str]
    """The field with the message's number."""

    requires_stream_id: ClassVar[bool] = True
    """Whether messages to the carrier have the stream's ID."""

    def __init__(self, websocket: aiohttp.ClientWebSocketResponse, call_id: str, stream_id: str) -> None:
        super().__init__(websocket, call_id)
        self.stream_id, self._sequence = stream_id, 0
        self.stopped: dict[str, str] = {}
        """The part of `stop` that names the call."""

    async def send(self, event: str, **fields: object) -> None:
        """Send a message with its number."""
        self._sequence += 1
        numbered = {self.SEQUENCE_FIELD: str(self._sequence), self.STREAM_FIELD: self.stream_id}
        await self.send_raw(json.dumps({"event": event, **numbered, **fields}))

    async def send_audio(self, frame: bytes, number: int) -> None:
        """Send `media`."""
        payload = base64.b64encode(frame).decode()
        timestamp = str(20 * (number - 1))
        media = {"track": "inbound", "chunk": str(number), "timestamp": timestamp, "payload": payload}
        await self.send("media", media=media)

    async def send_mark(self, name: str) -> None:
        """Send `mark`."""
        await self.send("mark", mark={"name": name})

    async def press(self, digits: str) -> None:
        """Send `dtmf` for each key."""
        for digit in digits:
            await self.send("dtmf", dtmf={"track": "inbound_track", "digit": digit})

    async def hang_up(self) -> None:
        """Send `stop`, and end the connection."""
        await self.send("stop", stop=self.stopped)
        await self._websocket.close()

    async def take(self, message: aiohttp.WSMessage) -> None:
        """Take `media`, `mark` and `clear`."""
        assert message.type is aiohttp.WSMsgType.TEXT
        fields: dict[str, Any] = json.loads(message.data)
        assert fields.get(self.STREAM_FIELD) == (self.stream_id if self.requires_stream_id else None)
        match fields["event"]:
            case "media":
                self.queue_audio(base64.b64decode(fields["media"]["payload"], validate=True))
            case "mark":
                self.queue_mark(fields["mark"]["name"])
            case "clear":
                for name in self.clear():
                    await self.send_mark(name)
            case other:
                raise ValueError(other)
