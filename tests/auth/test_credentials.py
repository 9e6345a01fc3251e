"""Every place where a client may put its key."""

from __future__ import annotations

from base64 import b64encode
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.auth.credentials import answer_subprotocol, find_credential, missing_credential
from voicepipe.auth.request_credentials import Handshake
from voicepipe.errors import AuthError

KEY = "vp_shop_" + "k" * 51


def secret_of(*headers: tuple[str, str], query: tuple[tuple[str, str], ...] = (), allow_query: bool = False) -> str:
    found = find_credential(Handshake.of(headers, query=query), allow_query=allow_query)
    return found.secret if found else ""


@pytest.mark.parametrize(
    "header",
    [
        ("Authorization", f"Bearer {KEY}"),
        ("authorization", f"bearer   {KEY} "),
        ("Authorization", f"Basic {KEY}"),
        ("Authorization", "Basic " + b64encode(f"anybody:{KEY}".encode()).decode()),
        ("Authorization", "Basic " + b64encode(f"{KEY}:".encode()).decode()),
        ("Authorization", "Basic " + b64encode(KEY.encode()).decode()),
        ("api-key", KEY),
        ("API-Key", KEY),
        ("Sec-WebSocket-Protocol", f"realtime, openai-insecure-api-key.{KEY}"),
        ("Sec-WebSocket-Protocol", f"openai-insecure-api-key.{KEY},openai-beta.realtime-v1"),
    ],
    ids=lambda header: header[0] + " " + header[1].split()[0][:12],
)
def test_the_key_is_found(header: tuple[str, str]) -> None:
    """In each place of the wire contract, in each spelling that clients use."""
    assert secret_of(header) == KEY


def test_subprotocols_on_several_lines() -> None:
    """RFC 6455 lets them."""
    lines = ("Sec-WebSocket-Protocol", "realtime"), ("Sec-WebSocket-Protocol", f"openai-insecure-api-key.{KEY}")
    assert secret_of(*lines) == KEY
    assert answer_subprotocol(Handshake.of(lines)) == "realtime"


def test_the_same_key_twice() -> None:
    """The beta client sends Bearer and api-key."""
    assert secret_of(("Authorization", f"Bearer {KEY}"), ("api-key", KEY)) == KEY


def test_two_different_keys_are_refused() -> None:
    """Which of them counts must not depend on who reads, a proxy or we."""
    with pytest.raises(AuthError, match=r"\(authorization, api-key\)") as refused:
        secret_of(("Authorization", f"Bearer {KEY}"), ("api-key", "vp_other"))
    assert KEY not in refused.value.why


def test_two_authorization_lines_are_refused() -> None:
    """Likewise."""
    with pytest.raises(AuthError, match="Expected one credential"):
        secret_of(("Authorization", f"Bearer {KEY}"), ("Authorization", "Bearer other"))


def test_a_token_in_the_url_is_refused_by_default() -> None:
    """And says where to put it; `key=` is a session id of some clients and no credential."""
    with pytest.raises(AuthError, match="URLs end up in logs") as refused:
        secret_of(query=(("token", KEY),))
    assert refused.value.code == "query_token_not_allowed"
    assert secret_of(query=(("key", "some-session"),)) == ""


def test_a_token_in_the_url_when_allowed() -> None:
    """A setting's choice."""
    assert secret_of(query=(("token", KEY),), allow_query=True) == KEY


def test_a_token_in_the_url_beside_a_header_is_not_read() -> None:
    """The header counts; the URL isn't even looked at."""
    assert secret_of(("Authorization", f"Bearer {KEY}"), query=(("token", "other"),)) == KEY


@pytest.mark.parametrize(
    "header",
    [
        ("Authorization", "Digest username=x"),
        ("Authorization", "Bearer"),
        ("Authorization", "Bearer  "),
        ("Authorization", ""),
        ("api-key", ""),
        ("Sec-WebSocket-Protocol", "realtime, openai-insecure-api-key."),
    ],
)
def test_nothing_that_we_know(header: tuple[str, str]) -> None:
    """Is no credential, and what is said then names the places."""
    assert find_credential(Handshake.of([header])) is None
    refused = missing_credential()
    assert (refused.status, refused.code) == (401, "missing_credential")
    assert "Authorization: Bearer" in refused.why


@pytest.mark.parametrize("value", ["", "***", b64encode(b":").decode(), b64encode(b"\xff\xfe").decode()])
def test_basic_that_is_not_base64_of_a_key(value: str) -> None:
    """Says what it should hold."""
    with pytest.raises(AuthError, match="Basic' must hold"):
        secret_of(("Authorization", f"Basic {value}"))


@pytest.mark.parametrize("value", ["k" * 4_097, "vp_kéy", "vp_a\x00b"])
def test_a_credential_that_no_key_looks_like(value: str) -> None:
    """Too long, or with characters that no key has: refused before anything reads it."""
    with pytest.raises(AuthError):
        secret_of(("api-key", value))


def test_secrets_stay_out_of_reprs() -> None:
    """A handshake that is logged by mistake shows neither headers nor query nor key."""
    handshake = Handshake.of([("Authorization", f"Bearer {KEY}")], query=[("token", KEY)], peer="127.0.0.1")
    assert KEY not in repr(handshake)
    assert KEY not in repr(find_credential(handshake))


def test_the_subprotocol_with_the_key_is_never_answered() -> None:
    """`realtime` when it was offered, else none."""
    handshake = Handshake.of([("Sec-WebSocket-Protocol", f"openai-insecure-api-key.{KEY}")])
    assert answer_subprotocol(handshake) is None
    assert answer_subprotocol(Handshake.of([])) is None
    both = Handshake.of([("Sec-WebSocket-Protocol", f"openai-insecure-api-key.{KEY}, realtime, x")])
    assert answer_subprotocol(both) == "realtime"


names = st.sampled_from(["Authorization", "api-key", "Sec-WebSocket-Protocol", "X"])


@pytest.mark.slow
@given(st.lists(st.tuples(names, st.text(max_size=40) | st.text(max_size=20).map("Basic ".__add__)), max_size=4))
def test_any_headers_give_a_credential_or_a_refusal(headers: list[tuple[str, str]]) -> None:
    """Nothing else is ever raised by what a stranger sends."""
    with suppress(AuthError):
        find_credential(Handshake.of(headers))


def test_only_a_token_is_read_from_the_query() -> None:
    query = (("model", "gpt-realtime"), ("token", ""), ("token", KEY))
    assert secret_of(query=query, allow_query=True) == KEY
