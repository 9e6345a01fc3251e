"""Client secrets: `ek_` and a JWT with the user, the lifetime and the limits."""

from __future__ import annotations

import hashlib
import re
import secrets
from base64 import urlsafe_b64encode
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from voicepipe.auth.claims import Claims
from voicepipe.auth.keys import Keyring, SigningKey, VerifyingKey
from voicepipe.auth.scopes import TOKEN_ALLOWED
from voicepipe.errors import AuthError, ProtocolError, UnknownCredential, validation_place

if TYPE_CHECKING:
    from jwt import PyJWS

PREFIX: Final = "ek_"
"""Browser SDKs refuse any key with another prefix."""

ISSUER: Final = "voicepipe"
AUDIENCE: Final = "voicepipe-realtime"

MAX_TOKEN_BYTES: Final = 2_048
"""Maximum length of a minted token. Proxies refuse larger headers: the usual limit is 4 or 8 kB for all of them
together.
"""

MAX_INLINE_SESSION_BYTES: Final = 1_024
"""Maximum size of a session config inside the token, as JSON. A larger one is in the cluster's store under
`config_id`.
"""

MAX_LIFE_S: Final = 86_400
"""Maximum lifetime of any token, independent of its signer: a revocation is kept for as long as its token could be
valid.
"""

SKEW_S: Final = 5
"""How far the minting backend's clock may be ahead of ours, in seconds."""

_MAX_READABLE_BYTES: Final = 2 * MAX_TOKEN_BYTES
_SHAPE: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")

_DECODER: Final = msgspec.json.Decoder(Claims)


@cache
def _jws() -> PyJWS:
    """Return the reader and writer of JWTs. The first call imports PyJWT with cryptography, 8 MB of memory and 30 ms,
    which a server without keys does not need."""
    from jwt import PyJWS

    return PyJWS()


def prepare() -> None:
    """Load what minting and verifying need, before the first of them has to wait for it."""
    _jws()


def audience_of(region: str) -> str:
    """Return the audience of a region's tokens; `region` is empty where there is one set of nodes alone.

    A region has its own counts of what is used of a token: valid in two, a token would be worth twice its limits.
    """
    return f"{AUDIENCE}/{region}" if region else AUDIENCE


def new_token_id() -> str:
    """Return a random `jti`, 128 bits, in characters that are safe in a shell."""
    return secrets.token_hex(16)


def session_prefix(claims: Claims) -> str:
    """Return the prefix of the ids of all sessions that this token starts: `sess_` and 96 bits of a hash.

    So a turn's record identifies its token, and a token can be limited to reading its own turns.
    """
    digest = hashlib.sha256(f"{claims.project}/{claims.token_id}".encode()).digest()[:12]
    return f"sess_{urlsafe_b64encode(digest).decode()}"


def fits_inline(session: dict[str, Any]) -> bool:
    """Return whether a session config may be in the token itself: under 1 kB, and without instructions at any depth."""
    return len(msgspec.json.encode(session)) < MAX_INLINE_SESSION_BYTES and not _has_instructions(session)


def mint(claims: Claims, key: SigningKey) -> str:
    """Sign `claims` into `ek_...`, at most 2047 bytes of `A-Z a-z 0-9 - _ .`: legal in a header and as a subprotocol.

    Raises:
        ProtocolError: `verify` would refuse a claim's value, or all together are too long; `field` names it.
    """
    try:
        payload = msgspec.json.encode(claims)
    except UnicodeEncodeError:
        raise ProtocolError("expected Unicode text in all claims, got half of a surrogate pair") from None
    _check_mintable(claims, payload)
    token = PREFIX + _jws().encode(payload, key.secret, key.verifies.algorithm, headers={"kid": key.kid})
    if len(token) >= MAX_TOKEN_BYTES:
        raise ProtocolError(
            f"the token would have {len(token)} bytes, and must have fewer than {MAX_TOKEN_BYTES} to pass through "
            "proxies: shorten limits, routing, locks or identity, or store the session config under an id",
            field="session",
            code="token_too_large",
        )
    return token


def verify(token: str, keyring: Keyring, *, now_s: int, audience: str = AUDIENCE, issuer: str = ISSUER) -> Claims:
    """Read a token, with or without its `ek_`, and return its claims if they are all valid at `now_s`.

    The algorithm is the one that the key of its `kid` was made for; the algorithm in the token's header is only
    compared.

    Raises:
        UnknownCredential: no key of the ring signed it; with a code (`invalid_token`, `unknown_key`) and a text that
            has what to do.
        AuthError: it is signed, and not valid now (`token_expired`, `token_not_yet_valid`, `wrong_issuer`,
            `wrong_audience`, `invalid_token`).
    """
    text = token.removeprefix(PREFIX)
    if len(text) > _MAX_READABLE_BYTES or not _SHAPE.fullmatch(text):
        raise _invalid("is not three parts of base64url with dots between, as a JWT is: was it copied whole?")
    from jwt import InvalidTokenError

    key = _key_for(text, keyring)
    try:
        payload = _jws().decode_complete(text, key.material, algorithms=[key.algorithm])["payload"]
    except InvalidTokenError:
        raise _invalid(
            "has a signature that doesn't fit: it was changed on its way, or signed with another key."
        ) from None
    claims = _read(payload)
    _check_times(claims, now_s)
    _check_parties(claims, audience, issuer)
    return claims


def _key_for(text: str, keyring: Keyring) -> VerifyingKey:
    from jwt import InvalidTokenError

    try:
        header = _jws().get_unverified_header(text)
    except InvalidTokenError:
        raise _invalid("has a header that is not JSON in base64url: was it copied whole?") from None
    kid, algorithm = header.get("kid"), header.get("alg")
    if not isinstance(algorithm, str) or algorithm.lower() == "none":
        raise _invalid("is not signed ('alg' is none). Only signed tokens are accepted.")
    if not isinstance(kid, str):
        raise _invalid("doesn't name its key: the signer must set 'kid' in the header.")
    key = keyring.find(kid)
    if key is None:
        raise UnknownCredential(
            f"This server doesn't have the key {kid[:64]!r} that signed the client secret: it was removed after a "
            "rotation, or another server minted the secret. Request a new one from this server's backend.",
            code="unknown_key",
        )
    if key.algorithm != algorithm:
        raise _invalid(f"names algorithm {algorithm[:16]!r}, but its key is for {key.algorithm} alone.")
    return key


def _read(payload: bytes) -> Claims:
    try:
        return _DECODER.decode(payload)
    except (msgspec.DecodeError, RecursionError) as wrong:
        raise _malformed(f"is signed, but its claims are not what voicepipe expects: {wrong}.") from None


def _check_times(claims: Claims, now_s: int) -> None:
    if now_s >= claims.expires_at_s:
        raise AuthError(
            f"The client secret expired {now_s - claims.expires_at_s} s ago. Let your backend mint a new one just "
            "before each connection.",
            code="token_expired",
        )
    begins_at_s = max(claims.not_before_s, claims.issued_at_s)
    if now_s + SKEW_S < begins_at_s:
        raise AuthError(
            f"The client secret becomes valid in {begins_at_s - now_s} s. Wait, or set the clocks of the minting "
            "machine and of this server: they may differ.",
            code="token_not_yet_valid",
        )
    if claims.expires_at_s - claims.issued_at_s > MAX_LIFE_S:
        raise _malformed(f"lives longer than {MAX_LIFE_S} s from 'iat' to 'exp', which no client secret may.")


def _check_parties(claims: Claims, audience: str, issuer: str) -> None:
    if claims.issuer != issuer:
        raise AuthError(
            f"The client secret was issued by {claims.issuer[:64]!r}, and this server accepts those of {issuer!r}.",
            code="wrong_issuer",
        )
    if claims.audience != audience:
        raise AuthError(
            f"The client secret is meant for {claims.audience[:64]!r}, and this is {audience!r}: use it at the server "
            "that it was minted for.",
            code="wrong_audience",
        )


def _check_mintable(claims: Claims, payload: bytes) -> None:
    try:
        _DECODER.decode(payload)
    except msgspec.ValidationError as wrong:
        why, path = validation_place(wrong)
        raise ProtocolError(why, field=path or None) from None
    life_s = claims.expires_at_s - claims.issued_at_s
    if not 0 < life_s <= MAX_LIFE_S or claims.not_before_s >= claims.expires_at_s:
        raise ProtocolError(f"expected a life of 1 to {MAX_LIFE_S} s, got {life_s}", field="expires_after.seconds")
    for scope in claims.scopes:
        if scope not in TOKEN_ALLOWED:
            raise ProtocolError(
                f"expected scopes among {', '.join(TOKEN_ALLOWED)} for a client secret, got {scope!r}", field="scopes"
            )
    if not fits_inline(claims.session):
        raise ProtocolError(
            f"expected an inlined session config under {MAX_INLINE_SESSION_BYTES} bytes and without instructions",
            field="session",
        )


def _has_instructions(value: Any) -> bool:
    if isinstance(value, dict):
        return "instructions" in value or any(map(_has_instructions, value.values()))
    return isinstance(value, list) and any(map(_has_instructions, value))


def _invalid(what: str) -> UnknownCredential:
    """Return the refusal of a token that none of our keys signed."""
    return UnknownCredential(f"The client secret {what}", code="invalid_token")


def _malformed(what: str) -> AuthError:
    """Return the refusal of a token that one of our keys signed: its backend's mistake, and no guess."""
    return AuthError(f"The client secret {what}", code="invalid_token")
