"""Find the sender of a request that came through a proxy: from a trusted proxy's headers, never from the sender's
own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from typing import Final, Literal

from voicepipe.auth.networks import Networks
from voicepipe.auth.request_credentials import Handshake
from voicepipe.values import replace

ProxyHeader = Literal["x-forwarded", "forwarded"]
"""The header that the proxy writes: `X-Forwarded-For` and `-Proto`, or `Forwarded` (RFC 7239). The other header is not
read: a proxy passes on headers that it does not handle, so the sender could have written it.
"""

_PAIR: Final = re.compile(r'\s*(?P<name>[A-Za-z-]+)=(?:"(?P<quoted>[^"]*)"|(?P<bare>[^\s;,"]*))\s*')
_NODE: Final = re.compile(r"\[(?P<six>[^\]]+)\](?::\d+)?|(?P<four>[0-9.]+)(?::\d+)?|(?P<bare>[0-9A-Fa-f:.]+)")


class TrustedProxies:
    """The addresses of proxies whose forwarding headers are trusted."""

    def __init__(self, networks: Iterable[str], *, header: ProxyHeader = "x-forwarded") -> None:
        """`networks` are addresses or networks: `127.0.0.1`, `10.0.0.0/8`, `fd00::/8`.

        Raises:
            ConfigError: one of them is neither.
        """
        self._networks = Networks(networks, key="server.trusted_proxies")
        self._header = header

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __contains__(self, address: str) -> bool:
        """Return whether it is the address of a trusted proxy."""
        return address in self._networks

    def seen_through(self, handshake: Handshake) -> Handshake:
        """Return the request with the sender's address and scheme in place of the proxy's.

        Each proxy appends the address of its peer, so the list is read from its end: the sender is the first address
        there that is not itself a trusted proxy. The sender may have invented the addresses before it. Headers of a
        peer that is no trusted proxy are ignored.
        """
        if handshake.peer not in self._networks:
            return handshake
        seen = handshake.peer
        for address in reversed(list(self._addresses(handshake))):
            if address is None:
                break
            seen = address
            if address not in self._networks:
                break
        scheme = self._scheme(handshake)
        return replace(handshake, peer=seen, scheme=handshake.scheme if scheme is None else scheme)

    def _addresses(self, handshake: Handshake) -> Iterator[str | None]:
        """Yield the peers of the proxies, first to last; None for text that is no address."""
        if self._header == "forwarded":
            for element in _elements(handshake):
                yield _address(element.get("for", ""))
        else:
            for line in handshake.values("x-forwarded-for"):
                yield from map(_address, line.split(","))

    def _scheme(self, handshake: Handshake) -> Literal["http", "https"] | None:
        if self._header == "forwarded":
            protocols = [element["proto"] for element in _elements(handshake) if "proto" in element]
        else:
            protocols = [part.strip() for line in handshake.values("x-forwarded-proto") for part in line.split(",")]
        match protocols[-1].lower() if protocols else "":
            case "http" | "https" as scheme:
                return scheme
            case _:
                return None


def _elements(handshake: Handshake) -> Iterator[dict[str, str]]:
    """Yield the elements of `Forwarded`, each by its parameters' lower-case names."""
    for line in handshake.values("forwarded"):
        for element in line.split(","):
            pairs = (_PAIR.fullmatch(pair) for pair in element.split(";"))
            yield {pair["name"].lower(): pair["quoted"] or pair["bare"] or "" for pair in pairs if pair}


def _address(text: str) -> str | None:
    """Return an address without port or brackets; None for `unknown`, an obfuscated name (RFC 7239, 6.3) or invalid
    text.
    """
    match = _NODE.fullmatch(text.strip())
    try:
        return str(ip_address(match["six"] or match["four"] or match["bare"])) if match else None
    except ValueError:
        return None
