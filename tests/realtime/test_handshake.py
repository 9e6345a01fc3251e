"""Section 1 of the contract: where clients look for the server, and how they say who they are."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
import websockets
from aiohttp import WSMsgType
from websockets.typing import Subprotocol

from voicepipe.testing.strict_events import problems
from voicepipe.testing.user import calling
from voicepipe.testing.waiting import WAIT_S

KEY = "THE_KEY"
"""Stands for the key in a handshake below."""

BASIC = "BASIC_OF_THE_KEY"


@dataclass(frozen=True)
class Shape:
    """A handshake as a client makes it."""

    path: str
    headers: dict[str, str] = field(default_factory=dict)
    protocols: tuple[str, ...] = ()
    dialect: str = "ga"

    def filled(self, text: str, key: str) -> str:
        """`text` with the key where it belongs."""
        return text.replace(BASIC, base64.b64encode(key.encode()).decode()).replace(KEY, key)


BEARER = {"Authorization": f"Bearer {KEY}"}
OLDER = {"OpenAI-Beta": "realtime=v1"}
BROWSER = ("realtime", f"openai-insecure-api-key.{KEY}")
MODEL = "/v1/realtime?model=gpt-realtime"

SHAPES = {
    "openai-python GA": Shape(MODEL, BEARER),
    "openai-python beta": Shape(MODEL, BEARER | OLDER, dialect="beta"),
    "AzureOpenAI python": Shape(
        "/openai/realtime?api-version=2024-10-01-preview&deployment=gpt-realtime", {"api-key": KEY}, dialect="beta"
    ),
    "openai-js ws": Shape(MODEL, BEARER | {"OpenAI-Organization": "org", "OpenAI-Project": "proj"}),
    "openai-js browser": Shape(MODEL, {}, (*BROWSER, "openai-organization.org", "openai-project.proj")),
    "openai-agents python": Shape(MODEL, BEARER),
    "@openai/agents node": Shape("/v1/realtime", BEARER | {"X-OpenAI-Agents-SDK": "0.20.0"}),
    "@openai/agents browser": Shape("/v1/realtime", {}, (*BROWSER, "openai-agents-sdk.0.20.0")),
    "pipecat": Shape(MODEL, BEARER),
    "pipecat Azure": Shape(MODEL, {"api-key": KEY}),
    "livekit": Shape(MODEL, BEARER),
    "Azure by hand": Shape("/openai/v1/realtime?model=gpt-realtime", {"api-key": KEY}),
    "openai-realtime-api": Shape(MODEL, BEARER | OLDER | {"api-key": KEY}, dialect="beta"),
    "openai-realtime-api browser": Shape(MODEL, {}, (*BROWSER, "openai-beta.realtime-v1"), dialect="beta"),
    "Inworld server": Shape(
        "/api/v1/realtime/session?key=made-by-the-client&protocol=realtime", {"Authorization": f"Basic {BASIC}"}
    ),
    "Inworld browser": Shape("/api/v1/realtime/session?key=made-by-the-client&protocol=realtime", BEARER),
    "Twilio": Shape("/v1/realtime?model=gpt-realtime&temperature=0.8", BEARER),
}


async def greeted(base_url: str, shape: Shape, key: str) -> tuple[dict[str, Any], str | None]:
    """The first event after such a handshake, and the subprotocol that was selected."""
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(
            base_url + shape.path,
            headers={name: shape.filled(value, key) for name, value in shape.headers.items()},
            protocols=[shape.filled(name, key) for name in shape.protocols],
        ) as line,
    ):
        event: dict[str, Any] = await line.receive_json(timeout=WAIT_S)
        return event, line.protocol


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
async def test_handshake_of(server: Any, new_key: str, shape: Shape) -> None:
    """Each client gets in with its own handshake, unmodified, and is greeted in its dialect."""
    event, protocol = await greeted(server.url, shape, new_key)
    assert event["type"] == "session.created"
    assert ("modalities" in event["session"]) == (shape.dialect == "beta")
    assert protocol == ("realtime" if shape.protocols else None)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/realtime",
        "/v1/realtime/",
        "/openai/v1/realtime",
        "/openai/realtime",
        "/api/v1/realtime/session",
        "/v1/realtime?model=gpt%2Drealtime&what=ever&x=%F0%9F%8E%88",
    ],
)
async def test_routes(server: Any, path: str) -> None:
    """Every route, a slash at its end, percent-encoding, unknown parameters."""
    event, _ = await greeted(server.url, Shape(path), "any")
    assert event["type"] == "session.created"


async def minted(server: Any, key: str) -> str:
    """A client secret."""
    url = f"{server.url}/v1/realtime/client_secrets"
    async with aiohttp.ClientSession() as http, http.post(url, headers={"Authorization": f"Bearer {key}"}) as answer:
        assert answer.status == 200
        value: str = (await answer.json())["value"]
        return value


PLACES = {
    "Bearer": Shape("/v1/realtime", BEARER),
    "Basic": Shape("/v1/realtime", {"Authorization": f"Basic {BASIC}"}),
    "api-key": Shape("/v1/realtime", {"api-key": KEY}),
    "subprotocol": Shape("/v1/realtime", {}, BROWSER),
    "twice": Shape("/v1/realtime", BEARER | {"api-key": KEY}),
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("kind", ["API key", "ek_", "JWT"])
async def test_credentials(server: Any, new_key: str, place: Shape, kind: str) -> None:
    """An API key, a client secret and the bare JWT in it, in any of the places."""
    key = new_key if kind == "API key" else await minted(server, new_key)
    event, _ = await greeted(server.url, place, key.removeprefix("ek_") if kind == "JWT" else key)
    assert event["type"] == "session.created"


async def test_token_in_the_query(fake_server: Any) -> None:
    """`?token=` is read only where the operator allows it."""
    for allowed in (False, True):
        async with fake_server({"server.query_token": allowed}) as server:
            url = f"{server.url}/v1/realtime?token=ek_a.b.c"
            async with aiohttp.ClientSession() as http, http.get(url) as answer:
                code = (await answer.json())["error"]["code"]
        assert (answer.status, code) == (401, "invalid_token" if allowed else "query_token_not_allowed")


async def test_ek_prefix(server: Any, new_key: str) -> None:
    """A minted secret begins as browser SDKs demand, and is a legal subprotocol as it stands."""
    secret = await minted(server, new_key)
    assert re.fullmatch(r"ek_[A-Za-z0-9_.-]+", secret)


@pytest.mark.parametrize(
    ("proposed", "selected"),
    [
        ((), None),
        (("realtime",), "realtime"),
        (("openai-insecure-api-key.x", "realtime"), "realtime"),
        (("chat", "openai-insecure-api-key.x"), None),
    ],
)
async def test_subprotocol(server: Any, proposed: tuple[str, ...], selected: str | None) -> None:
    """`realtime` and only that, when it was offered; never the one with the key."""
    _, protocol = await greeted(server.url, Shape("/v1/realtime", {}, proposed), "any")
    assert protocol == selected


@pytest.mark.parametrize("path", ["/v1/realtime", "/v1/realtime/client_secrets"])
async def test_bad_key(server: Any, new_key: str, path: str) -> None:
    """401 before the upgrade, in the shape that SDKs read and do not retry."""
    headers = {"Authorization": f"Bearer {new_key[:-4]}AAAA"}
    method = "GET" if path == "/v1/realtime" else "POST"
    async with aiohttp.ClientSession() as http, http.request(method, server.url + path, headers=headers) as answer:
        error = (await answer.json())["error"]
    assert answer.status == 401
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", None, "invalid_api_key")
    assert error["message"]


@pytest.mark.parametrize("reported", [False, True])
async def test_bad_key_of_a_page(fake_server: Any, reported: bool) -> None:
    """A browser hides the 401 from its page: if the operator wants, the socket opens until that is said."""
    async with fake_server({"server.websocket_auth_errors": reported}) as server, aiohttp.ClientSession() as http:
        connecting = http.ws_connect(
            f"{server.url}/v1/realtime",
            protocols=("realtime", "openai-insecure-api-key.ek_x.y.z"),
            headers={"Origin": "https://shop.example"},
        )
        if not reported:
            with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
                await connecting
            return
        async with connecting as line:
            event = await line.receive_json(timeout=WAIT_S)
            assert problems(event) == []
            assert event["error"]["code"] == "invalid_token"
            closed = await line.receive(timeout=WAIT_S)
            assert (closed.data, line.protocol) == (4_001, "realtime")


@asynccontextmanager
async def raw_line(server: Any, **more: Any) -> AsyncIterator[websockets.ClientConnection]:
    """A line through another WebSocket library, past the greeting."""
    url = f"{server.url.replace('http', 'ws')}/v1/realtime"
    async with websockets.connect(url, **more) as line:
        await line.recv()
        yield line


async def test_permessage_deflate(server: Any) -> None:
    """An offer of compression is declined, and the call works."""
    async with raw_line(server, compression="deflate", subprotocols=[Subprotocol("realtime")]) as line:
        assert line.protocol.extensions == []
        await line.send('{"type": "input_audio_buffer.clear"}')
        assert json.loads(await line.recv())["type"] == "input_audio_buffer.cleared"


@pytest.mark.slow
async def test_inbound_frames(server: Any) -> None:
    """15 MiB of audio in one append are taken: minutes of silence, which are processed."""
    async with calling(server.url, session={"audio": {"input": {"turn_detection": None}}}) as user:
        audio = base64.b64encode(bytes(11 << 20)).decode()
        assert 14 << 20 < len(audio) < 16 << 20
        await user.send("input_audio_buffer.append", audio=audio)
        await user.send("input_audio_buffer.commit")
        await user.until("input_audio_buffer.committed")


async def test_outbound_frames(server: Any) -> None:
    """No frame reaches 1 MiB, whatever was put in: pictures and speech come back without their bytes."""
    picture = "data:image/png;base64," + "A" * (2 << 20)
    content = [{"type": "input_image", "image_url": picture}, {"type": "input_audio", "audio": "A" * (2 << 20)}]
    item = {"id": "i", "type": "message", "role": "user", "content": content}
    async with raw_line(server, max_size=1 << 20) as line:
        await line.send(json.dumps({"type": "conversation.item.create", "item": item}))
        await line.send(json.dumps({"type": "conversation.item.retrieve", "item_id": "i"}))
        events = [json.loads(await line.recv()) for _ in range(3)]
    assert events[-1]["type"] == "conversation.item.retrieved"
    assert [part["type"] for part in events[-1]["item"]["content"]] == ["input_image", "input_audio"]


@pytest.mark.parametrize(
    "event",
    [
        {"type": "session.update", "session": {"type": "realtime", "instructions": "a" * 1_100_000}},
        {
            "type": "conversation.item.create",
            "item": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a" * 1_100_000}]},
        },
    ],
    ids=lambda event: event["type"],
)
async def test_outbound_frames_of_what_is_too_long_to_show(server: Any, event: dict[str, Any]) -> None:
    """What could not be shown without such a frame is not taken in the first place."""
    async with raw_line(server, max_size=1 << 20) as line:
        await line.send(json.dumps(event))
        assert json.loads(await line.recv())["error"]["code"] == "string_above_max_length"


async def test_text_frames(server: Any) -> None:
    """One event of UTF-8 JSON a text frame, also when the client sends bytes; pings are answered."""
    async with aiohttp.ClientSession() as http, http.ws_connect(f"{server.url}/v1/realtime", autoping=False) as line:
        await line.send_bytes(b'{"type": "input_audio_buffer.clear"}')
        await line.ping(b"here")
        messages = [await line.receive(timeout=WAIT_S) for _ in range(3)]
    texts = [json.loads(message.data)["type"] for message in messages if message.type is WSMsgType.TEXT]
    assert texts == ["session.created", "input_audio_buffer.cleared"]
    assert [message.data for message in messages if message.type is WSMsgType.PONG] == [b"here"]
