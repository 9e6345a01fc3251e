"""Addresses, as an operator lists them: `127.0.0.1`, `10.0.0.0/8`, `fd00::/8`."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from voicepipe.errors import ConfigError


class Networks:
    """A set of addresses and networks."""

    def __init__(self, listed: Iterable[str], *, key: str) -> None:
        """Create a set. `key` is the setting that lists them.

        Raises:
            ConfigError: one of them is neither an address nor a network.
        """
        self._networks = tuple(_network(text, key) for text in listed)

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __contains__(self, address: str) -> bool:
        """Return whether the address is in the set; an IPv4 address counts however it is written. Text that is no
        address is not in it.
        """
        try:
            parsed = ip_address(address)
        except ValueError:
            return False
        plain = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
        return any((plain or parsed) in network for network in self._networks)


def _network(text: str, key: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise ConfigError(
            f"{key}: expected addresses or networks such as 127.0.0.1 or 10.0.0.0/8, got {text!r}"
        ) from None
