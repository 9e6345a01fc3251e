"""Whatever a client sends, it gets an error that names the field, and the session lives on."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import numpy as np
import pytest
import websockets
from websockets.exceptions import ConnectionClosed

from voicepipe.ports.transcriber import Samples
from voicepipe.testing.user import calling

BAD = {
    "not JSON": ("{oops", None),
    "not an object": ("[1, 2]", None),
    "no type": ('{"audio": "AAAA"}', "type"),
    "unknown type": ('{"type": "input_audio_buffer.sing"}', "type"),
    "audio is not base64": ('{"type": "input_audio_buffer.append", "audio": "***"}', "audio"),
    "audio is a number": ('{"type": "input_audio_buffer.append", "audio": 7}', "audio"),
    "audio is missing": ('{"type": "input_audio_buffer.append"}', "audio"),
    "threshold is a word": (
        '{"type": "session.update", "session": {"type": "realtime", "audio": {"input": {"turn_detection":'
        ' {"type": "server_vad", "threshold": "high"}}}}}',
        "session.audio.input.turn_detection.threshold",
    ),
    "item of an unknown kind": ('{"type": "conversation.item.create", "item": {"type": "song"}}', "item.type"),
    "index is a word": (
        '{"type": "conversation.item.truncate", "item_id": "a", "content_index": "b", "audio_end_ms": 1}',
        "content_index",
    ),
    "unknown item": ('{"type": "conversation.item.retrieve", "item_id": "nobody"}', "item_id"),
    "nothing to commit": ('{"type": "input_audio_buffer.commit"}', None),
    "nothing to cancel": ('{"type": "response.cancel"}', None),
}


@pytest.mark.parametrize(("frame", "field"), BAD.values(), ids=BAD)
async def test_a_bad_frame_is_answered_with_its_field(server: Any, frame: str, field: str | None) -> None:
    """The error names what was wrong; the next event of the client works."""
    async with calling(server.base_url) as user:
        await user.line.send_str(frame)
        error = (await user.until("error"))["error"]
        assert error["param"] == field
        assert error["message"]
        await user.send("session.update", session={"type": "realtime", "instructions": "Go on."})
        assert (await user.until("session.updated"))["session"]["instructions"] == "Go on."


async def test_binary_garbage_is_answered(server: Any) -> None:
    """Bytes that are no event get an error, not a closed line."""
    async with calling(server.base_url) as user:
        await user.line.send_bytes(bytes(range(256)) * 4)
        assert (await user.until("error"))["error"]["code"] == "invalid_event"
        await user.send("input_audio_buffer.clear")
        await user.until("input_audio_buffer.cleared")


async def test_an_error_names_the_event_that_caused_it(server: Any) -> None:
    """Clients find their failed request by its id."""
    async with calling(server.base_url) as user:
        await user.send("conversation.item.delete", item_id="nobody", event_id="evt_17")
        assert (await user.until("error"))["error"]["event_id"] == "evt_17"


async def test_a_frame_over_16_mib_closes_with_1009(server: Any) -> None:
    """A message too big ends the line, and no other one."""
    async with calling(server.base_url) as other:
        url = f"{server.base_url.replace('http', 'ws')}/v1/realtime"
        async with websockets.connect(url, compression=None, max_size=None) as line:
            await line.recv()
            frame = json.dumps({"type": "input_audio_buffer.append", "audio": "A" * (16 << 20)})
            with pytest.raises(ConnectionClosed) as closed:
                await asyncio.gather(line.send(frame), line.recv())
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
        await other.send("input_audio_buffer.clear")
        await other.until("input_audio_buffer.cleared")


async def test_audio_may_be_cut_anywhere(server: Any, question: Samples) -> None:
    """Odd byte counts across appends are the same speech."""
    pcm = question.tobytes()
    async with calling(server.base_url) as user:
        for first in range(0, len(pcm), 4_801):
            audio = base64.b64encode(pcm[first : first + 4_801]).decode()
            await user.send("input_audio_buffer.append", audio=audio)
        assert (await user.until("response.done"))["response"]["status"] == "completed"
    received = (await server.vendor.stt.nth(0)).samples.astype(float)
    assert np.abs(received).max() > 1_000
    assert np.abs(np.diff(received)).mean() < np.abs(received).mean(), "speech, not the noise of bytes that slipped"
