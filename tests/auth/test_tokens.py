"""A token comes back as it was minted, or is refused with words that help."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import Any

import jwt
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from voicepipe.auth import tokens
from voicepipe.auth.claims import Claims, Limits, Lock
from voicepipe.auth.keys import Keyring, SigningKey
from voicepipe.auth.scopes import TOKEN_ALLOWED
from voicepipe.auth.tokens import (
    AUDIENCE,
    ISSUER,
    MAX_LIFE_S,
    MAX_TOKEN_BYTES,
    SKEW_S,
    fits_inline,
    mint,
    new_token_id,
    session_prefix,
    verify,
)
from voicepipe.errors import AuthError, ProtocolError

Make = Callable[..., Claims]

names = st.text(max_size=6)
claims_strategy = st.builds(
    Claims,
    issuer=st.just(ISSUER),
    audience=st.just(AUDIENCE),
    subject=names,
    issued_at_s=st.integers(1_699_990_000, 1_700_000_000),
    not_before_s=st.integers(0, 1_700_000_000),
    expires_at_s=st.integers(1_700_000_001, 1_700_007_200),
    token_id=st.text(min_size=1, max_size=24),
    project=st.text(min_size=1, max_size=12),
    identity=names,
    scopes=st.lists(st.sampled_from(TOKEN_ALLOWED), unique=True).map(tuple),
    limits=st.builds(
        Limits,
        max_sessions=st.none() | st.integers(1, 10**9),
        session_seconds=st.none() | st.integers(1, 10**9),
        turns=st.none() | st.integers(1, 10**9),
        spend_usd=st.none() | st.floats(1e-6, 1e6),
        origins=st.lists(names, max_size=2).map(tuple),
        models=st.lists(names, max_size=2).map(tuple),
        agents=st.lists(names, max_size=2).map(tuple),
    ),
    routing=st.dictionaries(names, names, max_size=3),
    locks=st.lists(
        st.builds(Lock, st.sampled_from(["instructions", "audio.output.voice", "tools"]), st.booleans()), max_size=3
    ).map(tuple),
    config_id=names,
    session=st.dictionaries(st.sampled_from(["voice", "tools", "audio"]), st.lists(st.integers(-9, 9), max_size=4)),
)


@given(claims=claims_strategy, prefixed=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_minted_token_says_what_was_minted(claims: Claims, prefixed: bool, key: SigningKey, ring: Keyring) -> None:
    """Whatever the claims; with and without `ek_`; always legal as a header and as a WebSocket subprotocol."""
    token = mint(claims, key)
    assert len(token) < MAX_TOKEN_BYTES
    assert re.fullmatch(r"ek_[A-Za-z0-9._-]+", token)
    assert verify(token if prefixed else token[3:], ring, now_s=1_700_000_000) == claims


@given(text=st.text(max_size=200) | st.text("abcABC019-_.=", max_size=200).map("ek_".__add__))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_text_is_refused_and_nothing_else_happens(text: str, ring: Keyring) -> None:
    """No text that a stranger sends raises anything but the refusal."""
    with pytest.raises(AuthError):
        verify(text, ring, now_s=0)


@given(place=st.integers(0, 10_000), replacement=st.sampled_from("AZaz09-_."))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_token_edited_anywhere_is_refused(
    place: int, replacement: str, key: SigningKey, ring: Keyring, claims_with: Make, now_s: int
) -> None:
    """Header, payload or signature, one character is enough."""
    token = mint(claims_with(), key)[3:]
    at = place % len(token)
    edited = token[:at] + replacement + token[at + 1 :]
    if edited == token:
        return
    with pytest.raises(AuthError):
        verify(edited, ring, now_s=now_s)


def signed(payload: object, key: SigningKey, **header: Any) -> str:
    """A token that `mint` would not make."""
    body = payload if isinstance(payload, bytes) else msgspec.json.encode(payload)
    return jwt.PyJWS().encode(body, key.secret, key.verifies.algorithm, headers={"kid": key.kid, **header})


def refusal(token: str, ring: Keyring, now_s: int, **more: Any) -> AuthError:
    with pytest.raises(AuthError) as caught:
        verify(token, ring, now_s=now_s, **more)
    assert caught.value.status == 401
    assert token not in caught.value.why
    return caught.value


def test_expired(key: SigningKey, ring: Keyring, claims_with: Make, now_s: int) -> None:
    """At the very second, and the text says what to do."""
    token = mint(claims_with(), key)
    assert verify(token, ring, now_s=now_s + 599)
    refused = refusal(token, ring, now_s + 600)
    assert refused.code == "token_expired"
    assert "mint a new one" in refused.why


@pytest.mark.parametrize("claim", ["not_before_s", "issued_at_s"])
def test_not_yet_valid(claim: str, key: SigningKey, ring: Keyring, claims_with: Make, now_s: int) -> None:
    """But clocks may differ by a few seconds."""
    token = mint(claims_with(**{claim: now_s + 60}), key)
    assert verify(token, ring, now_s=now_s + 60 - SKEW_S)
    refused = refusal(token, ring, now_s + 60 - SKEW_S - 1)
    assert refused.code == "token_not_yet_valid"
    assert "clocks" in refused.why


def test_wrong_audience(key: SigningKey, ring: Keyring, claims_with: Make, now_s: int) -> None:
    """A token for another service of the same issuer."""
    refused = refusal(mint(claims_with(audience="billing"), key), ring, now_s)
    assert refused.code == "wrong_audience"
    assert "'billing'" in refused.why


def test_wrong_issuer(key: SigningKey, ring: Keyring, claims_with: Make, now_s: int) -> None:
    """The token has another issuer, though it is signed with a known key."""
    refused = refusal(mint(claims_with(issuer="elsewhere"), key), ring, now_s)
    assert refused.code == "wrong_issuer"
    assert "'elsewhere'" in refused.why


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "nOnE"])
def test_alg_none(alg: str, ring: Keyring, claims_with: Make, now_s: int) -> None:
    """However it is spelt, with a known kid, without signature."""
    head = urlsafe_b64encode(msgspec.json.encode({"alg": alg, "kid": "hs-1"})).rstrip(b"=").decode()
    body = urlsafe_b64encode(msgspec.json.encode(claims_with())).rstrip(b"=").decode()
    assert "not signed" in refusal(f"{head}.{body}.", ring, now_s).why


def test_an_algorithm_that_is_not_the_keys(key: SigningKey, ring: Keyring, claims_with: Make, now_s: int) -> None:
    """HS512 with the right secret is still not what the key is for."""
    token = jwt.PyJWS().encode(
        msgspec.json.encode(claims_with()), bytes(range(32)) * 2, "HS512", headers={"kid": key.kid}
    )
    assert "for HS256 alone" in refusal(token, ring, now_s).why


def test_unknown_kid(ring: Keyring, claims_with: Make, now_s: int) -> None:
    """A key that was removed, or of another server."""
    other = SigningKey.hs256("hs-2", bytes(range(32)))
    refused = refusal(mint(claims_with(), other), ring, now_s)
    assert refused.code == "unknown_key"
    assert "rotation" in refused.why


@pytest.mark.parametrize("kid", [None, "../../etc/passwd", "hs-1\x00", "' OR 1=1 --"])
def test_hostile_or_missing_kid(kid: str | None, key: SigningKey, ring: Keyring, claims_with: Make, now_s: int) -> None:
    """A kid is a name to look up in a table, and nothing more."""
    headers = {} if kid is None else {"kid": kid}
    token = jwt.PyJWS().encode(msgspec.json.encode(claims_with()), key.secret, "HS256", headers=headers)
    assert refusal(token, ring, now_s).code in ("unknown_key", "invalid_token")


def test_another_secret_under_a_known_kid(ring: Keyring, claims_with: Make, now_s: int) -> None:
    """A guessed or older secret."""
    forged = SigningKey.hs256("hs-1", b"x" * 32)
    assert "signature" in refusal(mint(claims_with(), forged), ring, now_s).why


def test_edited_payload(key: SigningKey, ring: Keyring, claims_with: Make, now_s: int) -> None:
    """A later expiry in the place of the signed one."""
    head, body, signature = mint(claims_with(), key).removeprefix("ek_").split(".")
    payload = msgspec.json.decode(urlsafe_b64decode(body + "=="))
    longer = urlsafe_b64encode(msgspec.json.encode({**payload, "exp": now_s + 10**6})).rstrip(b"=").decode()
    assert "signature" in refusal(f"{head}.{longer}.{signature}", ring, now_s).why


@pytest.mark.parametrize("claim", ["iss", "aud", "sub", "iat", "nbf", "exp", "jti", "project"])
def test_a_missing_claim(claim: str, key: SigningKey, ring: Keyring, claims_with: Make, now_s: int) -> None:
    """A token that was signed by hand, without one that we need: the text names it."""
    payload = msgspec.to_builtins(claims_with())
    del payload[claim]
    assert f"`{claim}`" in refusal(signed(payload, key), ring, now_s).why


@pytest.mark.parametrize(
    "wrong",
    [
        {"exp": "tomorrow"},
        {"exp": True},
        {"exp": None},
        {"aud": [AUDIENCE]},
        {"limits": {"turns": 0}},
        {"limits": {"max_sessions": -1}},
        {"limits": {"spend_usd": 0}},
        {"scopes": "realtime"},
        {"locks": [{"field": "a..b"}]},
        {"session": []},
    ],
)
def test_a_claim_of_the_wrong_kind(
    wrong: dict[str, Any], key: SigningKey, ring: Keyring, claims_with: Make, now_s: int
) -> None:
    """Signed, and still not taken as something else: a limit of nothing is no limit of zero."""
    payload = msgspec.to_builtins(claims_with()) | wrong
    assert next(iter(wrong)) in refusal(signed(payload, key), ring, now_s).why


@pytest.mark.parametrize("payload", [b"", b"[]", b"{", b"\xff", b"null", b"[" * 1_000])
def test_a_signed_payload_that_is_no_object(payload: bytes, key: SigningKey, ring: Keyring, now_s: int) -> None:
    """Ends in the refusal, not in an exception of a parser."""
    assert refusal(signed(payload, key), ring, now_s).code == "invalid_token"


def test_a_signed_payload_that_is_nested_too_deep(
    key: SigningKey, ring: Keyring, claims_with: Make, now_s: int
) -> None:
    """No parser runs out of stack for it."""
    payload = msgspec.json.encode(claims_with())[:-1] + b',"session":{"a":' + b"[" * 1_200 + b"]" * 1_200 + b"}}"
    assert "claims are not what" in refusal(signed(payload, key), ring, now_s).why


def test_a_life_that_is_too_long(key: SigningKey, ring: Keyring, claims_with: Make, now_s: int) -> None:
    """The signer does not matter: revocations are remembered for `MAX_LIFE_S` only."""
    payload = msgspec.to_builtins(claims_with(expires_at_s=now_s + MAX_LIFE_S + 1))
    assert "lives longer" in refusal(signed(payload, key), ring, now_s).why


def test_a_token_that_is_too_long_to_read(key: SigningKey, ring: Keyring, claims_with: Make, now_s: int) -> None:
    """It is not even parsed."""
    payload = msgspec.to_builtins(claims_with()) | {"more": "x" * 5_000}
    assert "copied whole" in refusal(signed(payload, key), ring, now_s).why


def test_detached_payload_is_not_a_way_around(key: SigningKey, ring: Keyring, now_s: int) -> None:
    """RFC 7797's `b64: false` is refused."""
    token = jwt.PyJWS().encode(b"{}", key.secret, "HS256", headers={"kid": key.kid, "b64": False})
    assert refusal(token, ring, now_s).code == "invalid_token"


def test_the_largest_token_that_is_minted(key: SigningKey, claims_with: Make) -> None:
    """Just under 2 kB passes; a little more is refused with the way out."""
    good = claims_with(routing={f"name-{n}": "x" * 250 for n in range(4)})
    assert 1_600 < len(mint(good, key)) < MAX_TOKEN_BYTES
    with pytest.raises(ProtocolError, match="2048 to pass through proxies") as refused:
        mint(claims_with(routing={f"name-{n}": "x" * 250 for n in range(6)}), key)
    assert refused.value.code == "token_too_large"


def test_a_full_token_of_ordinary_use_is_well_below_the_limit(key: SigningKey, claims_with: Make) -> None:
    """Every claim set, as a large customer would."""
    claims = claims_with(
        subject="user-1234567890",
        identity="Anna from the shop",
        token_id=new_token_id(),
        limits=Limits(
            max_sessions=1,
            session_seconds=900,
            turns=200,
            spend_usd=2.5,
            origins=("https://shop.example", "https://www.shop.example"),
            models=("gpt-realtime",),
            agents=("default", "sales"),
        ),
        routing={"tier": "gold", "region": "eu"},
        locks=(Lock("instructions", hidden=True), Lock("tools"), Lock("audio.output.voice")),
        config_id=new_token_id(),
    )
    assert len(mint(claims, key)) < MAX_TOKEN_BYTES // 2


def test_instructions_never_stand_in_a_token(key: SigningKey, claims_with: Make) -> None:
    """Every holder of a token can read it."""
    for session in ({"instructions": "be kind"}, {"prompt": [{"variables": {"instructions": "x"}}]}):
        assert not fits_inline(session)
        with pytest.raises(ProtocolError, match="without instructions"):
            mint(claims_with(session=session), key)


def test_a_session_config_is_inlined_below_one_kilobyte_only() -> None:
    """1023 bytes of JSON fit, 1024 don't."""
    empty = len(b'{"voice":""}')
    assert fits_inline({"voice": "x" * (1_023 - empty)})
    assert not fits_inline({"voice": "x" * (1_024 - empty)})


@pytest.mark.parametrize("scope", ["tokens", "operate", "everything"])
def test_a_client_secret_is_not_minted_with_a_scope_of_keys(scope: str, key: SigningKey, claims_with: Make) -> None:
    """It lives in a stranger's browser."""
    with pytest.raises(ProtocolError, match=f"got '{scope}'") as refused:
        mint(claims_with(scopes=("realtime", scope)), key)
    assert refused.value.field == "scopes"


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"limits": Limits(max_sessions=0)}, "limits.max_sessions"),
        ({"limits": Limits(spend_usd=-1.0)}, "limits.spend_usd"),
        ({"locks": (Lock("audio..voice"),)}, "locks[0].field"),
        ({"subject": "x" * 257}, "sub"),
        ({"token_id": ""}, "jti"),
        ({"expires_at_s": 1_700_000_000}, "expires_after.seconds"),
        ({"expires_at_s": 1_700_000_000 + MAX_LIFE_S + 1}, "expires_after.seconds"),
        ({"not_before_s": 1_700_000_600}, "expires_after.seconds"),
    ],
)
def test_what_verify_would_refuse_is_not_minted(
    changed: dict[str, Any], field: str, key: SigningKey, claims_with: Make
) -> None:
    """The error names the field, for the answer to the client."""
    with pytest.raises(ProtocolError) as refused:
        mint(claims_with(**changed), key)
    assert refused.value.field == field


def test_text_that_is_no_unicode_is_not_minted(key: SigningKey, claims_with: Make) -> None:
    """JSON lets half of a surrogate pair in; UTF-8 doesn't let it out."""
    with pytest.raises(ProtocolError, match="surrogate"):
        mint(claims_with(identity="\ud800"), key)


def test_a_tokens_sessions_begin_alike_and_no_others(claims_with: Make) -> None:
    """So that a turn's record names its token, of its own project."""
    prefix = session_prefix(claims_with())
    assert re.fullmatch(r"sess_[\w-]{16}", prefix)
    assert prefix == session_prefix(claims_with(subject="bert"))
    assert prefix not in (session_prefix(claims_with(token_id="t2")), session_prefix(claims_with(project="bank")))


def test_nothing_is_loaded_by_the_first_secret_once_all_is_prepared() -> None:
    """Its client would wait for it."""
    tokens._jws.cache_clear()
    tokens.prepare()
    assert tokens._jws.cache_info().misses == 1
    assert isinstance(tokens._jws(), jwt.PyJWS)
    assert tokens._jws.cache_info().misses == 1
