"""Calls through NATs: addresses from a STUN server, and media through a TURN server."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Literal

import pytest
from aioice import ice

from tests.server.conftest import Serve
from tests.server.rtc_user import rtc_call
from tests.server.test_webrtc import delta, hello, tone, until_end
from tests.server.turn_server import turn_server
from voicepipe.server.tls import dev_certificate
from voicepipe.server.webrtc.settings import WebRtcSettings
from voicepipe.session.socket import ClientSocket

pytestmark = pytest.mark.slow

PASSWORD = "hunter2-of-the-relay"
OUTSIDE = ("203.0.113.7", 40_000)
"""An address for documentation (RFC 5737): the server's, as a STUN server beyond a NAT sees it."""

N_OF_CLIENT = 2
"""Times that aiortc's client asks for its addresses: for its audio, and for its data channel."""


async def talk(socket: ClientSocket) -> None:
    await socket.send(hello())
    await socket.send(delta(tone(60)))
    await until_end(socket)


async def test_the_answer_has_the_address_that_a_stun_server_sees(serve: Serve) -> None:
    async with turn_server(mapped=OUTSIDE) as (_, port), serve() as server:
        server.context.rtc_calls.settings = WebRtcSettings(ice_servers=(f"stun:127.0.0.1:{port}",))
        async with rtc_call(server.http, server.base) as user:
            answer = user.connection.remoteDescription.sdp
        assert f"{OUTSIDE[0]} {OUTSIDE[1]} typ srflx" in answer
        assert "typ host" in answer
        assert await server.context.live_sessions.left(5_000)


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A certificate of this machine, by an issuer that this process trusts."""
    cert, key = dev_certificate(tmp_path / "turn-tls")
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    return served_with(cert, key)


def served_with(cert: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context


def only_of_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server have no address of its own."""
    requests = list[bool]()

    def of_the_client_alone(**how: bool) -> list[str]:
        requests.append(True)
        return ["127.0.0.1"] if len(requests) <= N_OF_CLIENT else []

    monkeypatch.setattr(ice, "get_host_addresses", of_the_client_alone)


@pytest.mark.parametrize(
    ("address", "over"),
    [
        ("turn:127.0.0.1:{port}?transport=udp", "udp"),
        ("turn:127.0.0.1:{port}?transport=tcp", "tcp"),
        ("turns:127.0.0.1:{port}", "tls"),
        ("turns:127.0.0.1:{port}?transport=tcp", "tls"),
    ],
)
async def test_media_goes_through_a_turn_server(
    serve: Serve,
    certificate: ssl.SSLContext,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    address: str,
    over: Literal["udp", "tcp", "tls"],
) -> None:
    """The server has no address of its own here. The password goes nowhere, not even to the TURN server."""
    caplog.set_level(logging.DEBUG)
    context = certificate if over == "tls" else None
    async with turn_server("anna", PASSWORD, over=over, certificate=context) as (relay, port), serve() as server:
        server.talks.append(talk)
        server.context.rtc_calls.settings = WebRtcSettings(
            ice_servers=(address.format(port=port),), turn_username="anna", turn_credential=PASSWORD
        )
        only_of_the_client(monkeypatch)
        async with rtc_call(server.http, server.base) as user:
            answer = user.connection.remoteDescription.sdp
            await user.event("session.created")
            assert len(await user.sound())
        assert await server.context.live_sessions.left(5_000)
        assert "typ relay" in answer
        assert "typ host" not in answer
        assert relay.n_relayed > 0
        assert bool(relay.streams) == (over != "udp")
        assert PASSWORD.encode() not in relay.received
    assert "anna" in caplog.text  # aioice logs requests at this level
    assert PASSWORD not in caplog.text


async def test_a_turn_server_with_an_unknown_certificate_is_logged_and_gets_no_password(
    serve: Serve, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Nothing is sent to it, and the call goes on with the server's own addresses."""
    context = served_with(*dev_certificate(tmp_path / "turn-tls"))
    async with turn_server("anna", PASSWORD, over="tls", certificate=context) as (relay, port), serve() as server:
        server.context.rtc_calls.settings = WebRtcSettings(
            ice_servers=(f"turns:127.0.0.1:{port}",), turn_username="anna", turn_credential=PASSWORD
        )
        server.talks.append(talk)
        async with rtc_call(server.http, server.base) as user:
            assert "typ host" in user.connection.remoteDescription.sdp
            await user.event("session.created")
        assert await server.context.live_sessions.left(5_000)
    assert relay.received == b""
    assert [each.getMessage() for each in caplog.records if each.getMessage() == "ice_server_failed"]


@pytest.mark.parametrize("setting", ["stun:127.0.0.1:{port}", "turn:127.0.0.1:{port}"])
async def test_a_server_that_gives_no_address_is_logged_and_the_call_goes_on(
    serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    """A STUN server that can't be found, and a TURN server with another password."""

    async def not_found(*_: object) -> None:
        raise OSError("no such host")

    monkeypatch.setattr(ice, "server_reflexive_candidate", not_found)
    async with turn_server("anna", PASSWORD) as (_, port), serve() as server:
        address = setting.format(port=port)
        server.context.rtc_calls.settings = WebRtcSettings(
            ice_servers=(address,), turn_username="anna", turn_credential="another"
        )
        server.talks.append(talk)
        async with rtc_call(server.http, server.base) as user:
            await user.event("session.created")
        assert await server.context.live_sessions.left(5_000)
    (logged,) = [each for each in caplog.records if each.getMessage() == "ice_server_failed"]
    assert logged.levelno == logging.WARNING
    assert logged.__dict__["fields"]["server"] == address
