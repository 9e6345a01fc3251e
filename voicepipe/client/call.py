"""A call: one WebSocket to a server, opened, spoken into and listened to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import pybase64
import websockets
from websockets.asyncio.client import ClientConnection

from voicepipe.audio.samples import Samples, to_pcm
from voicepipe.client import events as e
from voicepipe.client.address import DEFAULT_URL, Address
from voicepipe.client.answer import Answer, Gathering
from voicepipe.client.failures import CallEnded, CallFailed, CallRefused, NoAnswer, ServerUnreachable
from voicepipe.client.microphone import FRAME_MS, RATE_HZ, Microphone
from voicepipe.client.wishes import Wishes
from voicepipe.stages.helpers import helpers

__all__ = ["FRAME_MS", "RATE_HZ", "Call", "connect"]

CONNECT_S: Final = 10.0
"""For the handshake; a server whose models are still loading refuses at once."""

MAX_FRAME_BYTES: Final = 16 << 20
"""The server's own bound, inbound."""

PATIENCE_MS: Final = 30_000
"""How long after the last sign of life an answer is waited for."""

SETTLE_MS: Final = 400
"""How long a caller who has finished listens on before the answer is taken for the last: a server needs some 100 ms
to notice that one goes on speaking."""


@asynccontextmanager
async def connect(
    url: str = DEFAULT_URL, *, key: str | None = None, agent: str | None = None, wishes: Wishes | None = None
) -> AsyncIterator[Call]:
    """Call a server; leaving the block hangs up.

    Args:
        url: see `Address.parse`.
        key: an API key or an `ek_` client secret, for servers that ask for one.
        agent: who is to answer; None leaves it to the key, or to the server's default.
        wishes: what the session is to be like.

    Raises:
        ConfigError: the address makes no sense.
        ServerUnreachable: nobody answers there.
        CallRefused: the server said no, and why.
        CallFailed: it accepted the call and then refused the wishes or broke the protocol.
    """
    line = await _dial(Address.parse(url, agent=agent), key)
    try:
        call = Call(line, wishes or Wishes())
        await call.agree()
        yield call
    finally:
        await line.close()


class Call:
    """One call that stands. Use it from one task at a time."""

    def __init__(self, line: ClientConnection, wishes: Wishes) -> None:
        self.session_id = self.model = ""
        self._line, self._wishes = line, wishes
        self._sent_samples = 0

    @property
    def sent_ms(self) -> int:
        """How much audio was sent so far."""
        return self._sent_samples * 1_000 // RATE_HZ

    # --- the whole turn -----------------------------------------------------------------------

    async def turn(self, sound: Samples, *, patience_ms: int = PATIENCE_MS) -> Answer:
        """Speak a recording in real time, then be silent until the answer is complete.

        Args:
            sound: int16, (n_samples,), 24 kHz.
            patience_ms: how long to wait for the next sign of life once the recording is over.

        Raises:
            NoAnswer: none came; says how far the server got.
            CallEnded: the line was closed before.
        """
        gathering = Gathering(written=self._wishes.text_only)
        microphone = Microphone(sound, first_ms=self.sent_ms)
        async with helpers() as owned:
            owned.start(microphone.run(self.send), name="microphone")
            while event := await self._next_within(_wait_ms(gathering, microphone, patience_ms)):
                gathering.take(event, microphone.position_ms())
        answer = gathering.answer() if gathering.complete else None
        if answer is None:
            raise NoAnswer(gathering.how_far())
        return answer

    async def ask(self, text: str, *, patience_ms: int = PATIENCE_MS) -> Answer:
        """Ask in writing. The answer's `t0_ms` and `latency_ms` are None: nothing was spoken.

        Raises:
            NoAnswer: none came; says how far the server got.
            CallEnded: the line was closed before.
        """
        gathering = Gathering(written=self._wishes.text_only)
        await self.write(text)
        await self.respond()
        while not gathering.complete and (event := await self._next_within(patience_ms)):
            gathering.take(event, self.sent_ms)
        answer = gathering.answer()
        if answer is None:
            raise NoAnswer(gathering.how_far())
        return answer

    # --- piece by piece -----------------------------------------------------------------------

    async def send(self, samples: Samples) -> None:
        """Send more of the microphone's sound: int16, (n_samples,), 24 kHz.

        Raises:
            CallEnded: the line is closed.
        """
        audio = pybase64.b64encode(to_pcm(samples)).decode()
        await self._send({"type": "input_audio_buffer.append", "audio": audio})
        self._sent_samples += len(samples)

    async def commit(self) -> None:
        """Say that the caller has finished, where the session does not find out by itself."""
        await self._send({"type": "input_audio_buffer.commit"})

    async def write(self, text: str) -> None:
        """Put a written message of the caller into the conversation."""
        content = [{"type": "input_text", "text": text}]
        await self._send(
            {"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": content}}
        )

    async def give(self, call_id: str, output: str) -> None:
        """Give back what a called function returned; `respond` makes the agent go on."""
        item = {"type": "function_call_output", "call_id": call_id, "output": output}
        await self._send({"type": "conversation.item.create", "item": item})

    async def respond(self) -> None:
        """Ask for an answer now."""
        await self._send({"type": "response.create"})

    async def cancel(self) -> None:
        """Stop the answer that is being made."""
        await self._send({"type": "response.cancel"})

    async def next_event(self) -> e.ServerEvent:
        """Wait for what the server says next.

        Raises:
            CallEnded: the line is closed.
            CallFailed: it sent what is no event.
        """
        try:
            return e.read(await self._line.recv())
        except websockets.ConnectionClosed as closed:
            raise _ended(closed) from closed

    async def __aiter__(self) -> AsyncIterator[e.ServerEvent]:
        """Everything that the server says, until the line is closed."""
        while True:
            try:
                yield await self.next_event()
            except CallEnded:
                return

    # --- within -------------------------------------------------------------------------------

    async def agree(self) -> None:
        """Wait for the session and have it as wished; `connect` does this.

        Raises:
            CallFailed: the server refused the wishes, or does not speak as expected.
        """
        await self._ready()
        await self._send({"type": "session.update", "session": self._wishes.to_wire()})
        await self._ready()

    async def _ready(self) -> None:
        while event := await self._next_within(PATIENCE_MS):
            match event:
                case e.SessionReady():
                    self.session_id, self.model = event.session_id, event.model
                    return
                case e.ServerComplained(_, message):
                    raise CallFailed(f"the server refused the session's settings: {message}")
        raise CallFailed("the server opened the call and did not say that the session stands")

    async def _next_within(self, wait_ms: int) -> e.ServerEvent | None:
        """Return the next event, or None when none came in time."""
        try:
            async with asyncio.timeout(wait_ms / 1_000):
                return await self.next_event()
        except TimeoutError:
            return None

    async def _send(self, event: dict[str, Any]) -> None:
        try:
            await self._line.send(msgspec.json.encode(event), text=True)
        except websockets.ConnectionClosed as closed:
            raise _ended(closed) from closed


def _wait_ms(gathering: Gathering, microphone: Microphone, patience_ms: int) -> int:
    """How long the next event may take: until the recording is over, and then a while."""
    left_ms = microphone.sound_left_ms()
    if gathering.complete:
        return max(0, left_ms + SETTLE_MS)
    return max(0, left_ms) + patience_ms


async def _dial(address: Address, key: str | None) -> ClientConnection:
    try:
        return await websockets.connect(
            address.websocket,
            additional_headers={"Authorization": f"Bearer {key}"} if key else None,
            compression=None,  # base64 of speech hardly shrinks
            max_size=MAX_FRAME_BYTES,
            open_timeout=CONNECT_S,
            proxy=None if address.on_loopback else True,
        )
    except websockets.InvalidStatus as refusal:
        raise _refused(refusal) from refusal
    except (OSError, websockets.WebSocketException) as why:
        raise ServerUnreachable(address.websocket, str(why) or type(why).__name__) from why


def _refused(refusal: websockets.InvalidStatus) -> CallRefused:
    """Take the server's own words from `{"error": {"message", "code"}}`, if it speaks so."""
    response = refusal.response
    try:
        error: dict[str, Any] = msgspec.json.decode(response.body or b"", type=dict[str, Any])["error"]
        return CallRefused(response.status_code, str(error["message"]), code=str(error.get("code") or ""))
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        return CallRefused(response.status_code, response.reason_phrase or "without a reason")


def _ended(closed: websockets.ConnectionClosed) -> CallEnded:
    close = closed.rcvd or closed.sent
    return CallEnded(close.code if close else 1006, close.reason if close else "")
