"""What a person may write for a server."""

from __future__ import annotations

import pytest

from voicepipe.client import Address
from voicepipe.errors import ConfigError


@pytest.mark.parametrize(
    ("written", "websocket", "http"),
    [
        ("ws://127.0.0.1:8080/v1/realtime", "ws://127.0.0.1:8080/v1/realtime", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080", "ws://127.0.0.1:8080/v1/realtime", "http://127.0.0.1:8080"),
        ("http://h:1/v1/", "ws://h:1/v1/realtime", "http://h:1"),
        ("h:1", "ws://h:1/v1/realtime", "http://h:1"),
        ("https://voice.example", "wss://voice.example/v1/realtime", "https://voice.example"),
        ("wss://h/voice/v1/realtime", "wss://h/voice/v1/realtime", "https://h/voice"),
        ("ws://h/openai/realtime?model=x", "ws://h/openai/realtime?model=x", "http://h"),
        ("ws://[::1]:9/", "ws://[::1]:9/v1/realtime", "http://[::1]:9"),
    ],
)
def test_any_part_of_an_address_is_enough(written: str, websocket: str, http: str) -> None:
    address = Address.parse(written)
    assert (address.websocket, address.http) == (websocket, http)


def test_the_agent_joins_the_query() -> None:
    assert Address.parse("ws://h/v1/realtime?model=a", agent="help desk").websocket.endswith(
        "/v1/realtime?model=a&agent=help+desk"
    )


@pytest.mark.parametrize(
    ("url", "local"), [("127.0.0.1:1", True), ("localhost", True), ("[::1]", True), ("10.0.0.1", False), ("h", False)]
)
def test_loopback_is_recognised(url: str, local: bool) -> None:
    assert Address.parse(url).on_loopback is local


@pytest.mark.parametrize("written", ["", "ftp://h", "ws://", "h:port", "ws://h:99999"])
def test_what_names_no_server_is_refused_with_an_example(written: str) -> None:
    with pytest.raises(ConfigError, match="expected an address such as ws://"):
        Address.parse(written)
