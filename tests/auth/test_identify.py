"""The principal of a request, its permissions, and a token's own limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from voicepipe.auth.apikeys import ApiKey, ApiKeys
from voicepipe.auth.claims import Claims, Limits, Lock
from voicepipe.auth.credentials import Presented
from voicepipe.auth.identify import Holder, check_may_mint, check_scope, identify, is_token
from voicepipe.auth.keys import Keyring, SigningKey
from voicepipe.auth.token_limits import TokenUsage, broken_locks, check_token_limits, limit_reached
from voicepipe.auth.tokens import mint
from voicepipe.errors import AuthError

Make = Callable[..., Claims]


@pytest.fixture
def keys(tmp_path: Path) -> ApiKeys:
    return ApiKeys(tmp_path)


@pytest.fixture
def identify_secret(ring: Keyring, keys: ApiKeys, now_s: int) -> Callable[[str], Holder]:
    return lambda text: identify(Presented(text, "authorization"), keyring=ring, api_keys=keys, now_s=now_s)


def test_a_client_secret_is_its_claims(
    identify_secret: Callable[[str], Holder], key: SigningKey, claims_with: Make
) -> None:
    """With its prefix, and as the bare JWT."""
    token = mint(claims_with(), key)
    assert identify_secret(token) == identify_secret(token[3:]) == claims_with()


def test_an_api_key_is_its_record(identify_secret: Callable[[str], Holder], keys: ApiKeys) -> None:
    """Looked up in the store."""
    made = keys.create("shop", now_s=0)
    assert identify_secret(made.text) == made.key


@pytest.mark.parametrize("text", ["sk-proj-abc", "hello", "", "a.b", "vp_a.b.c"])
def test_other_credentials_are_refused_without_being_repeated(
    text: str, identify_secret: Callable[[str], Holder]
) -> None:
    """A provider's key sent to us by mistake must not end up in our logs or answers."""
    with pytest.raises(AuthError) as refused:
        identify_secret(text)
    assert refused.value.code == "invalid_api_key"
    assert not text or text not in refused.value.why


@pytest.mark.parametrize(
    ("text", "looks"), [("ek_x", True), ("a.b.c", True), ("vp_a.b.c", False), ("any", False), ("", False)]
)
def test_what_looks_like_a_token(text: str, looks: bool) -> None:
    """Such a one is verified even where no credential is needed."""
    assert is_token(text) is looks


def test_missing_scope(keys: ApiKeys, claims_with: Make) -> None:
    """A key or a client secret that may do something else."""
    key = keys.create("shop", now_s=0, scopes=["realtime"]).key
    check_scope(key, "realtime")
    for holder in (key, claims_with()):
        with pytest.raises(AuthError, match="scopes realtime, and 'turns' is needed") as refused:
            check_scope(holder, "turns")
        assert (refused.value.status, refused.value.code) == (403, "missing_scope")


def test_a_client_secret_does_not_reach_rest_without_its_scope(claims_with: Make) -> None:
    """By default it holds conversations and nothing else."""
    for scope in ("turns", "chat", "tokens", "operate"):
        with pytest.raises(AuthError, match="This client secret has the scopes realtime"):
            check_scope(claims_with(), scope)
    check_scope(claims_with(scopes=("realtime", "turns")), "turns")


def test_who_operates_reads_turns_and_who_operates_all_operates(keys: ApiKeys, claims_with: Make) -> None:
    """The scopes of an operator bring with them what a dashboard needs, for a key; never for a client secret."""
    one, every = (keys.create("shop", now_s=0, scopes=[scope]).key for scope in ("operate", "operate_all"))
    for holder, scope in ((one, "turns"), (every, "turns"), (every, "operate")):
        check_scope(holder, scope)
    secret = claims_with(scopes=("operate_all",))
    for bearer, scope in ((one, "operate_all"), (one, "tokens"), (secret, "turns")):
        with pytest.raises(AuthError, match="is needed"):
            check_scope(bearer, scope)


def test_a_client_secret_does_not_mint_another(claims_with: Make) -> None:
    """Its claimed scopes do not matter: the signer may be another party's backend."""
    with pytest.raises(AuthError, match="from your backend, with an API key") as refused:
        check_may_mint(claims_with(scopes=("realtime", "tokens")))
    assert refused.value.status == 403


def test_an_api_key_mints_if_it_has_the_scope(keys: ApiKeys) -> None:
    """And only then."""
    key: ApiKey = keys.create("shop", now_s=0).key
    assert check_may_mint(key) is key
    with pytest.raises(AuthError, match="'tokens' is needed"):
        check_may_mint(keys.create("shop", now_s=0, scopes=["realtime"]).key)


def refused_entry(claims: Claims, *, origin: str | None = None, model: str = "", agent: str = "default") -> str:
    with pytest.raises(AuthError) as refused:
        check_token_limits(claims, origin=origin, model=model, agent=agent)
    assert refused.value.status == 403
    return refused.value.code


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "https://shop.example.evil.example", "http://shop.example", "null", "", None]
)
def test_wrong_origin(origin: str | None, claims_with: Make) -> None:
    """A token for one page, used from another or from no page at all."""
    claims = claims_with(limits=Limits(origins=("https://shop.example",)))
    check_token_limits(claims, origin="https://shop.example", model="", agent="default")
    assert refused_entry(claims, origin=origin) == "origin_not_allowed"


def test_a_model_that_is_not_allowed(claims_with: Make) -> None:
    """The refused model is requested by name; a request without a model gets the agent's own."""
    claims = claims_with(limits=Limits(models=("gpt-realtime",)))
    for allowed in ("gpt-realtime", ""):
        check_token_limits(claims, origin=None, model=allowed, agent="default")
    assert refused_entry(claims, model="expensive") == "model_not_allowed"


def test_an_agent_that_is_not_allowed(claims_with: Make) -> None:
    """However the session came to it."""
    claims = claims_with(limits=Limits(agents=("sales",)))
    check_token_limits(claims, origin=None, model="", agent="sales")
    assert refused_entry(claims, agent="default") == "agent_not_allowed"


def test_a_token_without_limits_enters_anywhere(claims_with: Make) -> None:
    """Empty means no limit."""
    check_token_limits(claims_with(), origin="https://any.example", model="any", agent="any")


@pytest.mark.parametrize(
    ("limits", "below", "at", "why"),
    [
        (Limits(turns=2), TokenUsage(turns=1), TokenUsage(turns=2), "2 turns"),
        (Limits(spend_usd=0.5), TokenUsage(spend_usd=0.49), TokenUsage(spend_usd=0.5), "0.5 USD"),
    ],
)
def test_over_a_limit_in_the_middle_of_a_call(limits: Limits, below: TokenUsage, at: TokenUsage, why: str) -> None:
    """Reached is over; the words fit into a close frame."""
    assert limit_reached(limits, below) is None
    reached = limit_reached(limits, at)
    assert reached is not None
    assert why in reached
    assert len(reached.encode()) <= 123


def test_the_longest_limit_still_fits_into_a_close_frame() -> None:
    """123 bytes are what RFC 6455 leaves for a reason."""
    for limits in (Limits(turns=10**18), Limits(spend_usd=1.23456e300)):
        reached = limit_reached(limits, TokenUsage(turns=10**18, spend_usd=1e301))
        assert reached is not None
        assert len(reached.encode()) <= 123


SESSION: dict[str, Any] = {
    "instructions": "be kind",
    "tools": [{"name": "book"}],
    "audio": {"output": {"voice": "cedar", "speed": 1.0}},
}


@pytest.mark.parametrize(
    ("changed", "broken"),
    [
        ({}, ()),
        ({"tools": []}, ()),
        ({"instructions": "be rude"}, ("instructions",)),
        ({"instructions": None}, ("instructions",)),
        ({"audio": {"output": {"voice": "cedar", "speed": 2.0}}}, ()),
        ({"audio": {"output": {"voice": "ash"}}}, ("audio.output.voice",)),
        ({"audio": {"output": None}}, ("audio.output.voice",)),
        ({"audio": "none", "instructions": ""}, ("instructions", "audio.output.voice")),
    ],
)
def test_a_locked_field_does_not_change(changed: dict[str, Any], broken: tuple[str, ...]) -> None:
    """However an update reaches it: directly, by replacing what holds it, or by taking that away."""
    locks = (Lock("instructions", hidden=True), Lock("audio.output.voice"))
    assert broken_locks(SESSION, {**SESSION, **changed}, locks) == broken
