"""Guards of what needs no credential: open mode on loopback, and the talk page's own mint route.

Not only its owner can reach a server on loopback. Any page that the owner's browser shows can (a foreign origin). Such
a page can use a name that was rebound to 127.0.0.1 (DNS rebinding: then origin and host agree, and only the host's name
reveals it). A proxy on the same machine makes every client look like loopback.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from ipaddress import IPv6Address, ip_address
from typing import Final

from voicepipe.auth.request_credentials import Handshake
from voicepipe.errors import AuthError

FORWARDING: Final = frozenset(
    ("forwarded", "via", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "true-client-ip", "cf-connecting-ip")
)
"""Headers that a proxy adds; headers that begin with `x-forwarded-` are refused too."""

_OWN_SITES: Final = frozenset(("same-origin", "none"))
"""Values of `Sec-Fetch-Site` of requests that no other origin's page made. `same-site` is another origin: any port."""

_HOST: Final = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::(?P<port>[0-9]{1,5}))?")
_DEFAULT_PORT: Final = {"http": "80", "https": "443"}


def is_loopback(address: str) -> bool:
    """Whether `address` is one of this machine's own: 127.0.0.0/8, ::1, or the first mapped into IPv6."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return (mapped or parsed).is_loopback


def is_loopback_host(host: str) -> bool:
    """Return whether a `Host` header names this machine: `localhost` or a loopback address, with or without port.

    No other name does, whatever it resolves to: DNS rebinding uses such names.
    """
    match = _HOST.fullmatch(host)
    if match is None:
        return False
    name = match["name"].strip("[]").lower()
    return name == "localhost" or is_loopback(name)


def check_open(handshake: Handshake, *, allowed_origins: Collection[str] = ()) -> None:
    """Accept a request without credential, in open mode.

    From a browser only pages of this server itself and of `allowed_origins` may send requests. A browser always sends
    its origin on a WebSocket, and leaves it out of a GET for an image, a script or a link.

    Raises:
        AuthError: 403, and the text has the condition that isn't met and what to do.
    """
    _check_local(handshake)
    check_not_foreign(handshake, allowed_origins=allowed_origins)


def check_not_foreign(handshake: Handshake, *, allowed_origins: Collection[str] = ()) -> None:
    """Refuse a request that a foreign page made its user's browser send.

    Raises:
        AuthError: 403, with the page's origin where the browser sends it.
    """
    if is_foreign(handshake, allowed_origins=allowed_origins):
        raise _foreign(next(iter(handshake.values("origin")), "another site"))


def is_foreign(handshake: Handshake, *, allowed_origins: Collection[str] = ()) -> bool:
    """Return whether the request is from a page that is neither this server's own nor one of `allowed_origins`.

    Without an `Origin` the browser's evidence is `Sec-Fetch-Site` (Fetch Metadata), which no page can set. Its value
    `none` is a person's own action (an address typed in), and programs do not send the header at all.
    """
    origins = handshake.values("origin")
    if origins:
        return len(origins) > 1 or not (origins[0] in allowed_origins or _same_origin(handshake, origins[0]))
    return any(site not in _OWN_SITES for site in handshake.values("sec-fetch-site"))


def check_talk_page(handshake: Handshake) -> None:
    """Allow this server's own talk page to mint its token: loopback peer and host, the same origin, no proxy.

    Raises:
        AuthError: 403, and the text has the condition that isn't met and what to do.
    """
    _check_local(handshake)
    origins = handshake.values("origin")
    if len(origins) != 1:
        raise AuthError(
            "Only the talk page of this server may use this route, and this request lacks its origin. From elsewhere "
            "mint with an API key at /v1/realtime/client_secrets.",
            code="origin_required",
            status=403,
        )
    if not _same_origin(handshake, origins[0]):
        raise _foreign(origins[0])


def _check_local(handshake: Handshake) -> None:
    if not is_loopback(handshake.peer):
        raise AuthError(
            "Without a credential this server answers only its own machine. Create a key with 'voicepipe keys create' "
            "and send it as 'Authorization: Bearer KEY'.",
            code="not_loopback",
            status=403,
        )
    forwarded = next((name for name, _ in handshake.headers if _is_forwarding(name)), None)
    if forwarded is not None:
        raise AuthError(
            f"The request came through a proxy (header {forwarded}), so its sender is unknown: an API key or a client "
            "secret is needed here. Create a key with 'voicepipe keys create'.",
            code="forwarded",
            status=403,
        )
    hosts = handshake.values("host")
    if len(hosts) != 1 or not is_loopback_host(hosts[0]):
        raise AuthError(
            "Without a credential the server must be addressed as localhost, 127.0.0.1 or [::1]; a foreign page may "
            "have pointed another name to it. Use one of these names, or an API key.",
            code="host_not_allowed",
            status=403,
        )


def _is_forwarding(name: str) -> bool:
    return name in FORWARDING or name.startswith("x-forwarded-")


def _same_origin(handshake: Handshake, origin: str) -> bool:
    """Return whether scheme, name and port agree (RFC 6454, 5). `null`, the origin of files and sandboxed frames, never
    does.
    """
    scheme, _, authority = origin.partition("://")
    hosts = handshake.values("host")
    if scheme != handshake.scheme or len(hosts) != 1:
        return False
    named = _with_port(authority, scheme)
    return named is not None and named == _with_port(hosts[0], scheme)


def _with_port(host: str, scheme: str) -> tuple[str, str] | None:
    match = _HOST.fullmatch(host)
    return (match["name"].lower(), match["port"] or _DEFAULT_PORT[scheme]) if match else None


def _foreign(origin: str) -> AuthError:
    return AuthError(
        f"Pages of {origin[:200]!r} may not use this server without a credential. Let your backend mint a client "
        "secret for the page, or add the origin to the allowed ones in the server's settings.",
        code="origin_not_allowed",
        status=403,
    )
