"""What is refused of requests for calls, with and without the extra `webrtc`."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from tests.server.conftest import Serve, Server, bearer
from voicepipe.errors import ConfigError
from voicepipe.server.webrtc import create_call
from voicepipe.server.webrtc.settings import WebRtcSettings

CALLS = "/v1/realtime/calls"
SDP = "v=0\r\nm=audio 9 x\r\nm=application 9 x\r\n"


@pytest.fixture
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here comes to the peer connection."""

    async def found() -> type:
        return object

    monkeypatch.setattr(create_call, "_peer_type", found)


async def refused(server: Server, body: Any, content_type: str = "", **headers: str) -> tuple[int, dict[str, Any]]:
    named = {"Content-Type": content_type} if content_type else {}
    async with server.http.post(server.base + CALLS, data=body, headers=named | headers) as answer:
        return answer.status, (await answer.json())["error"]


async def test_without_the_extra_the_answer_names_it(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(create_call, "import_module", missing)
    async with serve() as server:
        status, error = await refused(server, SDP, "application/sdp")
        assert (status, error["code"]) == (501, "webrtc_not_installed")
        assert "'.[webrtc]'" in error["message"]


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(
    ("sdp", "why"),
    [
        ("", "expected an SDP offer"),
        ("hello", "expected an SDP offer"),
        ("v=0\r\nm=application 9\r\n", "audio"),
        ("v=0\r\nm=audio 9\r\n", "a data channel"),
    ],
)
async def test_an_offer_that_no_call_can_come_of_is_refused(serve: Serve, sdp: str, why: str) -> None:
    async with serve() as server:
        status, error = await refused(server, sdp, "application/sdp")
        assert (status, error["param"]) == (400, "sdp")
        assert why in error["message"]


@pytest.mark.usefixtures("_installed")
async def test_another_kind_of_body_is_refused(serve: Serve) -> None:
    async with serve() as server:
        assert (await refused(server, json.dumps({"sdp": SDP}), "application/json"))[1]["code"] == "invalid_type"


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("session", ["{", "[]", "null"])
async def test_a_session_that_is_no_object_is_refused(serve: Serve, session: str) -> None:
    async with serve() as server:
        fields = aiohttp.FormData()
        fields.add_field("sdp", SDP, content_type="application/sdp")
        fields.add_field("session", session, content_type="application/json")
        status, error = await refused(server, fields)
        assert (status, error["param"]) == (400, "session")


@pytest.mark.usefixtures("_installed")
async def test_a_client_secret_has_its_session_already(serve: Serve) -> None:
    async with serve() as server:
        key = server.new_key()
        secret = (await server.mint({}, headers=key))[1]["value"]
        fields = aiohttp.FormData()
        fields.add_field("sdp", SDP, content_type="application/sdp")
        fields.add_field("session", '{"type":"realtime"}', content_type="application/json")
        status, error = await refused(server, fields, **bearer(secret))
        assert (status, error["param"]) == (400, "session")


async def test_a_call_needs_a_credential_and_is_known_to_its_own_project_only(serve: Serve) -> None:
    async with serve() as server:
        key = server.new_key()
        assert (await refused(server, SDP, "application/sdp"))[0] == 401
        status, answer = await server.post(f"{CALLS}/rtc_nobody/hangup", headers=key)
        assert (status, answer["error"]["code"]) == (404, "call_not_found")


@pytest.mark.parametrize(
    "options",
    [
        {"ice_servers": ("stun.example",)},
        {"ice_servers": ("stun:",)},
        {"ice_servers": ("stun:a:x",)},
        {"ice_servers": ("stun:a:65536",)},
        {"ice_servers": ("stun:a?transport=udp",)},
        {"ice_servers": ("stun:[::1]:3478",)},
        {"ice_servers": ("turns:a?transport=udp",)},
        {"ice_servers": ("stun:a", "stun:b")},
        {"ice_servers": ("turn:a", "turns:b")},
        {"turn_username": "anna"},
        {"turn_credential": "secret"},
        {"connect_ms": 1},
    ],
)
def test_wrong_settings_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"webrtc\."):
        WebRtcSettings(**options)


@pytest.mark.parametrize(
    "server",
    ["stun:stun.example", "stun:10.0.0.1:3478", "turn:a:443?transport=tcp", "turn:a?transport=udp", "turns:a:5349"],
)
def test_addresses_of_ice_servers_are_taken(server: str) -> None:
    assert WebRtcSettings(ice_servers=(server,)).ice_servers == (server,)


@pytest.mark.parametrize(
    ("server", "what"),
    [
        ("stuns:stun.example:5349", "STUN over TLS"),
        ("turns:turn.example:5349?transport=udp", "TURN over DTLS"),
        ("turn:[::1]:3478", "IPv6"),
        ("https://turn.example", "got 'https://turn.example'"),
    ],
)
def test_what_is_not_supported_is_named_beside_what_is(server: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as refused:
        WebRtcSettings(ice_servers=(server,))
    text = str(refused.value)
    assert text.startswith("webrtc.ice_servers: expected stun:HOST:PORT (UDP)")
    assert "turn:HOST:PORT?transport=tcp" in text
    assert "turns:HOST:PORT (TLS over TCP)" in text


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError) as refused:
        WebRtcSettings(ice_servers=("turn:anna:hunter2@turn.example",))
    assert "hunter2" not in str(refused.value)
    assert "webrtc.turn_credential" in str(refused.value)
    assert "hunter2" not in repr(WebRtcSettings(turn_username="anna", turn_credential="hunter2"))
