"""Identify the holder of a credential, and check the holder's permissions."""

from __future__ import annotations

from voicepipe.auth.api_key_cache import ApiKeyCache
from voicepipe.auth.apikeys import PREFIX as KEY_PREFIX
from voicepipe.auth.apikeys import ApiKey, ApiKeys
from voicepipe.auth.claims import Claims
from voicepipe.auth.credentials import Presented
from voicepipe.auth.keys import Keyring
from voicepipe.auth.scopes import TOKEN_ALLOWED, granted
from voicepipe.auth.tokens import AUDIENCE, ISSUER, PREFIX, verify
from voicepipe.errors import INCORRECT_KEY, AuthError, UnknownCredential

Holder = Claims | ApiKey
"""The holder of an accepted credential; both types have `project` and `scopes`."""


def is_token(secret: str) -> bool:
    """Return whether a credential looks like a client secret or a bare JWT: such a credential is always verified, in
    open mode too.
    """
    return secret.startswith(PREFIX) or (not secret.startswith(KEY_PREFIX) and secret.count(".") == 2)


def identify(
    presented: Presented,
    *,
    keyring: Keyring,
    api_keys: ApiKeys | ApiKeyCache,
    now_s: int,
    audience: str = AUDIENCE,
    issuer: str = ISSUER,
) -> Holder:
    """Look a credential up: an API key among `api_keys`, a token by its signature and its times.

    Whether a token was revoked or used up is not known here: the cluster has it.

    Raises:
        UnknownCredential: it is neither; the text has what to do and never repeats the credential.
        AuthError: it was issued, and is refused now.
    """
    if is_token(presented.secret):
        return verify(presented.secret, keyring, now_s=now_s, audience=audience, issuer=issuer)
    if presented.secret.startswith(KEY_PREFIX):
        return api_keys.find(presented.secret)
    raise UnknownCredential(
        f"{INCORRECT_KEY} Expected an API key (vp_...) or a client secret (ek_...), got another credential. Keys of "
        "providers belong in the server's settings; 'voicepipe keys create' makes an API key."
    )


def check_scope(holder: Holder, scope: str) -> None:
    """Check that `holder` has the permission `scope` (`voicepipe.auth.scopes`).

    Raises:
        AuthError: 403, `missing_scope`.
    """
    by_token = isinstance(holder, Claims)
    allowed = set(holder.scopes) & set(TOKEN_ALLOWED) if by_token else granted(holder.scopes)
    if scope not in allowed:
        what = "client secret" if by_token else "API key"
        raise AuthError(
            f"This {what} has the scopes {', '.join(holder.scopes) or 'none'}, and {scope!r} is needed: use one "
            "that was made with it.",
            code="missing_scope",
            status=403,
        )


def check_may_mint(holder: Holder) -> ApiKey:
    """Check for an API key with the scope `tokens`, and return it: a client secret never mints another, whatever its
    claims.

    Raises:
        AuthError: 403.
    """
    if isinstance(holder, Claims):
        raise AuthError(
            "A client secret can't mint another one. Mint from your backend, with an API key (vp_...).",
            code="api_key_required",
            status=403,
        )
    check_scope(holder, "tokens")
    return holder
