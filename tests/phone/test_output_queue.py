"""The output queue of a call: a carrier's queue is limited, and only a key of the user drops the tones of keys."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections import deque

import pytest

from voicepipe.phone.asterisk import AsteriskSerializer
from voicepipe.phone.carrier import DtmfTones, StreamSerializer
from voicepipe.phone.dtmf_tones import tones
from voicepipe.phone.twilio import TwilioSerializer
from voicepipe.phone.vonage import QUEUE_MS, VonageSerializer
from voicepipe.protocol import binary
from voicepipe.server.phone.socket import MARK_TIMEOUT_MS, PhoneSocket

PIECE_MS = 200
PIECE = b"\x01" * PIECE_MS * 8


class CarrierSocket:
    """The carrier's end of a media stream: what it got, and what it says next."""

    hung_up = gone = has_message = False

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.next: deque[str | bytes] = deque()
        self.has_sent = asyncio.Event()
        self.reads = asyncio.Event()
        """Clear: what is sent is buffered, and the sender waits."""

        self.reads.set()

    async def receive(self) -> str | bytes | None:
        return self.next.popleft() if self.next else None

    async def send(self, frame: bytes) -> None:
        self.sent.append(frame)
        self.has_sent.set()
        await self.reads.wait()

    async def until_sent(self, n: int) -> None:
        """Wait until that many messages were sent."""
        while len(self.sent) < n:
            self.has_sent.clear()
            await self.has_sent.wait()

    async def close(self, code: int, reason: str) -> None:
        self.hung_up = True

    def abort(self) -> None:
        self.gone = True

    @property
    def audio(self) -> list[bytes]:
        """The binary messages."""
        return [each for each in self.sent if isinstance(each, binary.SoundFrame)]

    @property
    def commands(self) -> list[dict[str, object]]:
        """The JSON messages."""
        return [json.loads(each) for each in self.sent if not isinstance(each, binary.SoundFrame)]

    @property
    def played(self) -> list[object]:
        """The names of the JSON messages: media, marks and clear."""
        return [each.get("event") or each.get("action") or each.get("command") for each in self.commands]


async def speaking(serializer: StreamSerializer) -> tuple[PhoneSocket, CarrierSocket]:
    websocket = CarrierSocket()
    phone = PhoneSocket(websocket, serializer, lambda: None)
    await phone.send(b'{"type":"voicepipe.output_audio.started","stream":1,"item_id":"a"}')
    return phone, websocket


async def say(phone: PhoneSocket, n_pieces: int) -> None:
    for number in range(n_pieces):
        await phone.send(binary.agent_frame(1, number, PIECE))


async def reported(phone: PhoneSocket, websocket: CarrierSocket, message: object) -> list[dict[str, object]]:
    """Have the carrier send a message; return the events that the session gets."""
    websocket.next.append(json.dumps(message))
    events: list[dict[str, object]] = []
    while (event := await phone.receive()) is not None:
        events.append(json.loads(event))
    return events


SPEECH = b'{"type":"input_audio_buffer.speech_started"}'


async def test_an_answer_that_is_longer_than_the_queue_of_the_carrier_waits_and_is_played_whole() -> None:
    phone, websocket = await speaking(VonageSerializer())
    n_pieces = 70_000 // PIECE_MS
    await say(phone, n_pieces)
    await phone.send(b'{"type":"response.output_audio.done"}')
    assert len(websocket.audio) == QUEUE_MS // 20, "what Vonage can't queue it drops"
    marks = deque(each["payload"] for each in websocket.commands)
    n_played = 0
    while marks:
        events = await reported(phone, websocket, {"event": "websocket:notify", "payload": marks.popleft()})
        n_played += 1
        assert events[0]["played_ms"] == n_played * PIECE_MS
        assert events[0]["buffered_ms"] == (n_pieces - n_played) * PIECE_MS, "what is held back is still to be played"
        assert len(websocket.audio) * 20 - n_played * PIECE_MS <= QUEUE_MS
        marks += [each["payload"] for each in websocket.commands[n_played + len(marks) :]]
    assert n_played == n_pieces
    assert len(websocket.audio) == n_pieces * PIECE_MS // 20


@pytest.mark.parametrize(
    ("serializer", "start", "frame"),
    [
        (VonageSerializer(), '{"event":"websocket:connected","call":"c1"}', bytes(320)),
        (AsteriskSerializer(), '{"event":"MEDIA_START"}', b"\xff" * 160),
    ],
    ids=["vonage", "asterisk"],
)
async def test_a_carrier_that_confirms_no_mark_gets_a_long_answer_whole_as_it_plays_it(
    serializer: StreamSerializer, start: str, frame: bytes
) -> None:
    """Its queue empties in real time, and the clock is the user's own audio."""
    assert serializer.queue_ms is not None
    phone, websocket = await speaking(serializer)
    websocket.next.append(start)
    await phone.start()
    n_pieces = (serializer.queue_ms + 20_000) // PIECE_MS
    await say(phone, n_pieces)

    def sent_ms() -> int:
        return sum(len(each) for each in websocket.audio) * 20 // len(frame)

    total_ms, n_frames = n_pieces * PIECE_MS, 0
    while sent_ms() < total_ms and n_frames * 20 <= total_ms:
        websocket.next.append(frame)
        await phone.receive()
        n_frames += 1
        assert sent_ms() - n_frames * 20 <= serializer.queue_ms, "what does not fit the carrier drops"
    assert sent_ms() == total_ms
    assert n_frames * 20 == total_ms - serializer.queue_ms + MARK_TIMEOUT_MS


async def test_a_carrier_whose_playback_sticks_is_sent_no_more_than_its_queue_holds() -> None:
    """Each mark moves the clock: what the carrier has not confirmed plays from there on."""
    phone, websocket = await speaking(AsteriskSerializer())
    assert phone.serializer.queue_ms is not None
    n_pieces = 2 * phone.serializer.queue_ms // PIECE_MS
    await say(phone, n_pieces)
    for n_played in range(1, n_pieces + 1):
        stuck_ms = MARK_TIMEOUT_MS // 2
        websocket.next.extend([b"\xff" * 160] * ((PIECE_MS + stuck_ms) // 20))
        websocket.next.append(json.dumps({"event": "MEDIA_MARK_PROCESSED", "correlation_id": f"vp{n_played}"}))
        while await phone.receive() is not None:
            queued_ms = sum(len(each) for each in websocket.audio) // 8 - n_played * PIECE_MS
            assert queued_ms <= phone.serializer.queue_ms
    assert sum(len(each) for each in websocket.audio) // 8 == n_pieces * PIECE_MS


async def test_an_interruption_drops_queued_output() -> None:
    phone, websocket = await speaking(AsteriskSerializer())
    await say(phone, 100)
    n_sent = len(websocket.audio)
    assert n_sent < 100
    await phone.send(SPEECH)
    assert websocket.played[-1] == "FLUSH_MEDIA"
    (cut,) = await reported(phone, websocket, {"event": "STATUS"})
    assert (cut["item_id"], cut["played_ms"], cut["buffered_ms"]) == ("a", 0, 0)
    await reported(phone, websocket, {"event": "MEDIA_MARK_PROCESSED", "correlation_id": "vp1"})
    assert len(websocket.audio) == n_sent
    await say(phone, 1)
    assert len(websocket.audio) == n_sent + 1


async def test_a_voice_does_not_cut_the_tones_of_keys_nor_what_is_before_them() -> None:
    phone, websocket = await speaking(TwilioSerializer())
    await say(phone, 1)
    await phone.send_dtmf(DtmfTones(tones("47")))
    await say(phone, 2)
    assert websocket.played == ["media", "mark", "media", "mark"], "what is behind the tones is held back"
    await phone.send(SPEECH)
    assert "clear" not in websocket.played
    (before,) = await reported(phone, websocket, {"event": "mark", "mark": {"name": "vp1"}})
    assert (before["played_ms"], before["buffered_ms"]) == (PIECE_MS, 0), "what is held back was cut"
    assert await reported(phone, websocket, {"event": "mark", "mark": {"name": "vp2"}}) == []
    assert websocket.played == ["media", "mark", "media", "mark"]
    await say(phone, 1)
    assert websocket.played == ["media", "mark"] * 3


async def test_output_behind_tones_is_sent_after_them() -> None:
    phone, websocket = await speaking(AsteriskSerializer())
    await phone.send_dtmf(DtmfTones(tones("4")))
    await phone.send_dtmf(DtmfTones(tones("7")))
    await say(phone, 1)
    assert [len(each) for each in websocket.audio] == [1_600]
    await phone.send(SPEECH)
    await reported(phone, websocket, {"event": "MEDIA_MARK_PROCESSED", "correlation_id": "vp1"})
    assert [len(each) for each in websocket.audio] == [1_600, 1_600], "the second key is not cut either"
    assert websocket.played == ["MARK_MEDIA", "MARK_MEDIA"]


async def test_a_key_of_the_user_cuts_tones_too() -> None:
    phone, websocket = await speaking(TwilioSerializer())
    await phone.send_dtmf(DtmfTones(tones("4")))
    await say(phone, 1)
    cut, *_ = await reported(phone, websocket, {"event": "dtmf", "dtmf": {"digit": "5"}})
    assert (cut["type"], cut["item_id"], cut["audio_end_ms"]) == ("conversation.item.truncate", "a", 0)
    assert websocket.played == ["media", "mark", "clear"]
    await say(phone, 1)
    assert websocket.played[-2:] == ["media", "mark"]


async def test_output_behind_tones_is_sent_after_a_lost_mark() -> None:
    phone, websocket = await speaking(TwilioSerializer())
    await say(phone, 1)
    await phone.send_dtmf(DtmfTones(tones("47")))
    await say(phone, 1)
    n_frames = (PIECE_MS + len(tones("47")) // 8 + MARK_TIMEOUT_MS) // 20
    frame = json.dumps({"event": "media", "media": {"payload": b64encode(b"\xff" * 160).decode()}})
    websocket.next.extend([frame] * n_frames)
    for _ in range(n_frames - 1):
        await phone.receive()
    assert websocket.played == ["media", "mark"] * 2, "the mark may still come"
    await phone.receive()
    assert websocket.played == ["media", "mark"] * 3
    assert await reported(phone, websocket, {"event": "mark", "mark": {"name": "vp2"}}) == []


async def test_nothing_of_a_piece_that_is_cut_while_the_carrier_does_not_read_follows_the_clear() -> None:
    """Its sender wakes after the next answer has begun to be sent: it neither goes on nor ends that."""
    phone, websocket = await speaking(VonageSerializer())
    websocket.reads.clear()
    tasks = [asyncio.create_task(say(phone, 1))]
    await websocket.until_sent(1)
    tasks.append(asyncio.create_task(phone.send(SPEECH)))
    await websocket.until_sent(2)
    tasks.append(asyncio.create_task(say(phone, 2)))
    await websocket.until_sent(3)
    websocket.reads.set()
    await asyncio.gather(*tasks)
    assert len(websocket.audio) == 1 + 2 * PIECE_MS // 20
    assert websocket.played == ["clear", "notify", "notify"]


async def test_a_carrier_that_presses_keys_itself_gets_them_at_once() -> None:
    phone, websocket = await speaking(VonageSerializer())
    await say(phone, 400)
    await phone.send_dtmf((b'{"action":"keys"}',))
    assert websocket.played[-1] == "keys"
