"""The sender of a request that a proxy passed on."""

from __future__ import annotations

import pytest

from voicepipe.auth.proxies import ProxyHeader, TrustedProxies
from voicepipe.auth.request_credentials import Handshake
from voicepipe.errors import ConfigError

PROXY = "10.0.0.1"


def seen(
    *headers: tuple[str, str],
    peer: str = PROXY,
    trusted: tuple[str, ...] = ("10.0.0.0/8",),
    by: ProxyHeader = "x-forwarded",
) -> tuple[str, str]:
    resolved = TrustedProxies(trusted, header=by).seen_through(Handshake.of(headers, peer=peer))
    return resolved.peer, resolved.scheme


def test_a_trusted_proxy_is_believed() -> None:
    assert seen(("X-Forwarded-For", "203.0.113.7"), ("X-Forwarded-Proto", "https")) == ("203.0.113.7", "https")


def test_untrusted_peer_is_not_believed() -> None:
    headers = (("X-Forwarded-For", "127.0.0.1"), ("X-Forwarded-Proto", "https"))
    assert seen(*headers, peer="203.0.113.9") == ("203.0.113.9", "http")
    assert seen(*headers, trusted=()) == (PROXY, "http")


@pytest.mark.parametrize(
    ("chain", "sender"),
    [
        ("127.0.0.1, 203.0.113.7", "203.0.113.7"),
        ("127.0.0.1, 203.0.113.7, 10.9.9.9", "203.0.113.7"),
        ("10.1.1.1, 10.2.2.2", "10.1.1.1"),
        ("203.0.113.7, unknown", PROXY),
        ("203.0.113.7, <script>", PROXY),
        ("203.0.113.7, 999.1.1.1", PROXY),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("203.0.113.7:4711", "203.0.113.7"),
        ("", PROXY),
    ],
)
def test_what_the_sender_wrote_before_the_proxys_word_is_not_read(chain: str, sender: str) -> None:
    assert seen(("X-Forwarded-For", chain))[0] == sender


def test_several_lines_are_one_list() -> None:
    lines = (("X-Forwarded-For", "127.0.0.1"), ("X-Forwarded-For", "203.0.113.7, 10.2.2.2"))
    assert seen(*lines)[0] == "203.0.113.7"


@pytest.mark.parametrize(
    ("line", "sender", "scheme"),
    [
        ("for=203.0.113.7;proto=https", "203.0.113.7", "https"),
        ('for="[2001:db8::1]:4711"; proto=http', "2001:db8::1", "http"),
        ("for=127.0.0.1;proto=https, For=203.0.113.7;Proto=http;by=10.0.0.1", "203.0.113.7", "http"),
        ("for=_hidden", PROXY, "http"),
        ("proto=gopher", PROXY, "http"),
        ("nonsense", PROXY, "http"),
    ],
)
def test_the_standard_header_when_the_proxy_writes_that(line: str, sender: str, scheme: str) -> None:
    assert seen(("Forwarded", line), by="forwarded") == (sender, scheme)


def test_the_header_that_the_proxy_does_not_write_is_not_read() -> None:
    """A proxy passes on what it does not know, so its sender could have written it."""
    both = (("Forwarded", "for=127.0.0.1"), ("X-Forwarded-For", "203.0.113.7"))
    assert seen(*both)[0] == "203.0.113.7"
    assert seen(*both, by="forwarded")[0] == "127.0.0.1"


def test_a_proxy_that_came_over_both_kinds_of_ip_is_the_same() -> None:
    assert seen(("X-Forwarded-For", "203.0.113.7"), peer="::ffff:10.0.0.1")[0] == "203.0.113.7"


def test_a_network_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^server\.trusted_proxies: expected addresses or networks .* got 'proxy'$"):
        TrustedProxies(["127.0.0.1", "proxy"])
