"""The audio of an item, retrieved over the socket and over REST, where the server holds it."""

from __future__ import annotations

import base64
import io
import threading
from typing import Any

import aiohttp
import numpy as np
import pytest
import soundfile

from voicepipe.audio.g711 import encode_mulaw
from voicepipe.audio.samples import Samples
from voicepipe.protocol import item_audio
from voicepipe.session.read_limit import RETRIEVE_EVENTS, ReadLimit
from voicepipe.testing.user import User, calling
from voicepipe.testing.waiting import WAIT_S, eventually

HELD = {"server.item_audio_s": 30}
MANUAL = {"audio": {"input": {"turn_detection": None}}}


async def committed(user: User, speech: Samples) -> str:
    await user.speak(speech)
    await user.send("input_audio_buffer.commit")
    item_id: str = (await user.until("input_audio_buffer.committed"))["item_id"]
    await user.until("conversation.item.done")
    return item_id


async def retrieved(user: User, item_id: str) -> dict[str, Any]:
    await user.send("conversation.item.retrieve", item_id=item_id)
    part: dict[str, Any] = (await user.until("conversation.item.retrieved"))["item"]["content"][0]
    return part


async def over_rest(server: Any, session: str, item_id: str) -> tuple[int, Any]:
    url = f"{server.url}/v1/sessions/{session}/items/{item_id}/audio"
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        if answer.status != 200:
            return answer.status, (await answer.json())["error"]
        assert answer.content_type == "audio/wav"
        samples, rate_hz = soundfile.read(io.BytesIO(await answer.read()), dtype="int16")
        assert rate_hz == 24_000
        return 200, samples


async def test_what_the_user_said(fake_server: Any, speech: Samples) -> None:
    async with fake_server(HELD) as server, calling(server.url, session=MANUAL) as user:
        session = user.events[0]["session"]["id"]
        item_id = await committed(user, speech)
        part = await retrieved(user, item_id)
        assert part["type"] == "input_audio"
        assert base64.b64decode(part["audio"]) == speech.astype("<i2").tobytes()
        status, samples = await over_rest(server, session, item_id)
        assert status == 200
        assert np.array_equal(samples, speech)
        status, error = await over_rest(server, session, "item_of_no_turn")
        assert (status, error["code"], error["param"]) == (404, "item_audio_not_found", "item")
        await user.send("conversation.item.delete", item_id=item_id)
        await user.until("conversation.item.deleted")
        assert (await over_rest(server, session, item_id))[0] == 404
    async with fake_server(HELD) as server:
        assert (await over_rest(server, session, item_id))[0] == 404


async def test_what_the_agent_has_said(fake_server: Any, speech: Samples) -> None:
    async with fake_server(HELD) as server, calling(server.url, session=MANUAL) as user:
        await committed(user, speech)
        await user.send("response.create")
        done = await user.until("response.done")
        item_id = done["response"]["output"][0]["id"]
        sent = b"".join(
            base64.b64decode(event["delta"]) for event in user.events if event["type"] == "response.output_audio.delta"
        )
        part = await retrieved(user, item_id)
        assert part["type"] == "output_audio"
        assert base64.b64decode(part["audio"]) == sent
        cut = {"item_id": item_id, "content_index": 0, "audio_end_ms": 100}
        await user.send("conversation.item.truncate", **cut)
        await user.until("conversation.item.truncated")
        assert base64.b64decode((await retrieved(user, item_id))["audio"]) == sent[: 100 * 48]


async def test_a_telephones_format(fake_server: Any, speech: Samples) -> None:
    """In the session's format of that direction."""
    form = {"audio": {"input": {"turn_detection": None, "format": {"type": "audio/pcmu"}}}}
    coded = encode_mulaw(speech[::3].copy())
    async with fake_server(HELD) as server, calling(server.url, session=form) as user:
        await user.send("input_audio_buffer.append", audio=base64.b64encode(coded).decode())
        await user.send("input_audio_buffer.commit")
        item_id = (await user.until("input_audio_buffer.committed"))["item_id"]
        assert base64.b64decode((await retrieved(user, item_id))["audio"]) == coded


async def test_audio_beyond_the_frame_limit_of_clients_is_left_out(
    fake_server: Any, speech: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(item_audio, "MAX_BYTES", 2 * len(speech) - 2)
    async with fake_server(HELD) as server, calling(server.url, session=MANUAL) as user:
        session = user.events[0]["session"]["id"]
        item_id = await committed(user, speech)
        assert "audio" not in await retrieved(user, item_id)
        assert (await over_rest(server, session, item_id))[0] == 200


async def test_audio_is_coded_beside_the_event_loop(
    fake_server: Any, speech: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To resample a long item takes longer than anything may on the loop. The client's next events wait for it."""
    begun, go_on = threading.Event(), threading.Event()
    code = item_audio._coded

    def slow(*args: Any) -> bytes:
        begun.set()
        assert go_on.wait(WAIT_S)
        return code(*args)

    async def has_begun() -> bool | None:
        return begun.is_set() or None

    monkeypatch.setattr(item_audio, "_coded", slow)
    async with fake_server(HELD) as server, calling(server.url, session=MANUAL) as user:
        item_id = await committed(user, speech)
        await user.send("conversation.item.retrieve", item_id=item_id)
        await user.send("conversation.item.delete", item_id=item_id)
        await eventually(has_begun)
        go_on.set()
        part = (await user.until("conversation.item.retrieved"))["item"]["content"][0]
        assert base64.b64decode(part["audio"]) == speech.astype("<i2").tobytes()
        await user.until("conversation.item.deleted")


async def test_an_item_of_text_has_none(fake_server: Any) -> None:
    async with fake_server(HELD) as server, calling(server.url, session=MANUAL) as user:
        content = [{"type": "input_text", "text": "hello"}]
        await user.send(
            "conversation.item.create", item={"id": "hi", "type": "message", "role": "user", "content": content}
        )
        await user.until("conversation.item.done")
        assert await retrieved(user, "hi") == content[0]


async def test_nothing_is_held_by_default(server: Any, speech: Samples) -> None:
    async with calling(server.url, session=MANUAL) as user:
        session = user.events[0]["session"]["id"]
        item_id = await committed(user, speech)
        assert "audio" not in await retrieved(user, item_id)
        assert (await over_rest(server, session, item_id))[0] == 404


@pytest.mark.parametrize("held", [{}, HELD])
async def test_a_retrieval_counts_for_more_where_audio_is_held(
    fake_server: Any, monkeypatch: pytest.MonkeyPatch, held: dict[str, Any]
) -> None:
    """A loop of them is slowed down by the work it causes, even if its answers bring no audio."""
    charged: list[float] = []

    class CountingPace(ReadLimit):
        def charge(self, n_events: float) -> None:
            charged.append(n_events)
            super().charge(n_events)

    monkeypatch.setattr("voicepipe.session.session.ReadLimit", CountingPace)
    async with fake_server(held) as server, calling(server.url, session=MANUAL) as user:
        content = [{"type": "input_text", "text": "hello"}]
        await user.send(
            "conversation.item.create", item={"id": "hi", "type": "message", "role": "user", "content": content}
        )
        for _ in range(3):
            await retrieved(user, "hi")
    assert charged.count(RETRIEVE_EVENTS) == (3 if held else 0)
