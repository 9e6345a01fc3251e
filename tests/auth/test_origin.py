"""The two places that need no credential, and all clients that must not get in there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.auth.origin import check_open, check_talk_page
from voicepipe.auth.request_credentials import Handshake
from voicepipe.errors import AuthError

Check = Callable[[Handshake], None]


def visit(
    host: str = "localhost:8080",
    origin: str | None = "http://localhost:8080",
    peer: str = "127.0.0.1",
    *more: tuple[str, str],
    tls: bool = False,
) -> Handshake:
    headers = [("Host", host), *more] + ([("Origin", origin)] if origin is not None else [])
    return Handshake.of(headers, peer=peer, tls=tls)


def refused_code(check: Check, handshake: Handshake) -> str:
    with pytest.raises(AuthError) as refused:
        check(handshake)
    assert refused.value.status == 403
    return refused.value.code


both = pytest.mark.parametrize("check", [check_open, check_talk_page])


@both
@pytest.mark.parametrize(
    ("host", "origin", "peer", "tls"),
    [
        ("localhost:8080", "http://localhost:8080", "127.0.0.1", False),
        ("LOCALHOST:8080", "http://localhost:8080", "::1", False),
        ("127.0.0.1:8080", "http://127.0.0.1:8080", "127.0.0.1", False),
        ("127.3.2.1:8080", "http://127.3.2.1:8080", "127.3.2.1", False),
        ("[::1]:8080", "http://[::1]:8080", "::ffff:127.0.0.1", False),
        ("localhost", "http://localhost", "127.0.0.1", False),
        ("localhost:80", "http://localhost", "127.0.0.1", False),
        ("localhost:443", "https://localhost", "127.0.0.1", True),
    ],
)
def test_the_servers_own_page_gets_in(check: Check, host: str, origin: str, peer: str, tls: bool) -> None:
    """Under every name of this machine."""
    check(visit(host, origin, peer, tls=tls))


@both
def test_a_foreign_page_stays_out(check: Check) -> None:
    """Any page that the owner's browser shows could call us."""
    assert refused_code(check, visit(origin="https://evil.example")) == "origin_not_allowed"


@both
@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://localhost:3000",
        "https://localhost:8080",
        "http://localhost:8080.evil.example",
        "http://localhost:8080@evil.example",
        "http://127.0.0.1:8080",
        "http://[::",
        "localhost:8080",
        "file://",
        "http://localhost:8080/",
    ],
)
def test_an_origin_that_is_nearly_ours_stays_out(check: Check, origin: str) -> None:
    """Another port, scheme or spelling is another origin."""
    assert refused_code(check, visit(origin=origin)) == "origin_not_allowed"


@both
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1.nip.io:8080",
        "0.0.0.0:8080",
        "[::]:8080",
        "192.168.1.5:8080",
        "2130706433:8080",
        "localhost@evil.example",
        "localhost:8080:8080",
        "localhost:",
        "",
    ],
)
def test_dns_rebinding_stays_out(check: Check, host: str) -> None:
    """A page whose name was pointed at 127.0.0.1: peer and origin look right, only the host's name doesn't."""
    assert refused_code(check, visit(host, f"http://{host}")) == "host_not_allowed"


@both
def test_two_hosts_or_none_stay_out(check: Check) -> None:
    """Two readers could take different ones."""
    assert refused_code(check, Handshake.of([("Origin", "http://localhost")], peer="::1")) == "host_not_allowed"
    twice = visit("localhost:8080", "http://localhost:8080", "127.0.0.1", ("Host", "evil.example"))
    assert refused_code(check, twice) == "host_not_allowed"


@both
@pytest.mark.parametrize(
    "header",
    [
        "Forwarded",
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Forwarded-Anything",
        "X-Real-IP",
        "Via",
        "CF-Connecting-IP",
    ],
)
def test_a_proxy_on_the_same_machine_stays_out(check: Check, header: str) -> None:
    """To the server every client behind it would be loopback."""
    assert refused_code(check, visit("localhost", "http://localhost", "127.0.0.1", (header, "x"))) == "forwarded"


@both
@pytest.mark.parametrize("peer", ["192.168.1.5", "10.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", "2001:db8::1", "", "x"])
def test_another_machine_stays_out(check: Check, peer: str) -> None:
    """Whatever host and origin it claims."""
    assert refused_code(check, visit(peer=peer)) == "not_loopback"


def test_a_program_without_origin_gets_in_in_open_mode() -> None:
    """Only browsers say an origin."""
    check_open(visit(origin=None))


def test_a_page_without_origin_does_not_mint() -> None:
    """A browser would send one; a client without origin has an API key or nothing."""
    assert refused_code(check_talk_page, visit(origin=None)) == "origin_required"


@both
def test_two_origins_stay_out(check: Check) -> None:
    """No browser sends them."""
    twice = visit("localhost", "http://localhost", "127.0.0.1", ("Origin", "http://localhost"))
    assert refused_code(check, twice) in ("origin_not_allowed", "origin_required")


def test_an_allowed_page_gets_in_in_open_mode() -> None:
    """The setting for developing a page beside the server."""
    check_open(visit(origin="http://localhost:3000"), allowed_origins=["http://localhost:3000"])


def test_a_long_origin_is_not_echoed_whole() -> None:
    """A refusal is short, whatever the request."""
    with pytest.raises(AuthError) as refused:
        check_open(visit(origin="http://" + "x" * 5_000))
    assert len(refused.value.why) < 500


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_host_and_origin_are_let_in_or_refused(host: str, origin: str) -> None:
    """Nothing else is ever raised by what a stranger sends."""
    for check in (check_open, check_talk_page):
        with suppress(AuthError):
            check(visit(host, origin))
