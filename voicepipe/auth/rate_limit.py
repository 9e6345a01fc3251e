"""Limit guesses per address: credentials that the server never issued."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from voicepipe.errors import AuthError, ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptOptions:
    """The number of failures allowed per address, and how fast they are forgiven."""

    burst: int = 10
    """Failures in a row before the address must wait. A page with an old token tries a few times."""

    recovery_ms: int = 6_000
    """One failure is forgiven per this time, in ms: 10 guesses a minute at 256 bits find nothing."""

    max_addresses: int = 10_000
    """How many addresses are remembered: about 2 MB for all."""

    def __post_init__(self) -> None:
        if min(self.burst, self.recovery_ms, self.max_addresses) < 1:
            raise ConfigError(f"need burst, recovery_ms and max_addresses of at least 1, got {self}")


class FailedAttempts:
    """A leaky bucket of guesses for each address.

    Check it after the credential was looked up, never before: other clients at an address must not block a valid
    credential.
    """

    def __init__(self, options: AttemptOptions | None = None) -> None:
        self._options = options or AttemptOptions()
        # Full: drop the address whose last failure is oldest, so memory stays bounded. Only an attacker with more than
        # max_addresses addresses gains by it.
        self._empty_at_ms: OrderedDict[str, int] = OrderedDict()

    def failed(self, address: str, now_ms: int) -> None:
        """Count one failure of `address`."""
        key = subscriber(address)
        still_ms = max(self._empty_at_ms.pop(key, now_ms), now_ms)
        full_ms = now_ms + self._options.burst * self._options.recovery_ms
        self._empty_at_ms[key] = min(still_ms + self._options.recovery_ms, full_ms)
        if len(self._empty_at_ms) > self._options.max_addresses:
            self._empty_at_ms.popitem(last=False)

    def wait_ms(self, address: str, now_ms: int) -> int:
        """Return how long `address` must wait before it may try again, in ms; 0 when it may now."""
        empty_at_ms = self._empty_at_ms.get(subscriber(address), now_ms)
        allowed_ms = (self._options.burst - 1) * self._options.recovery_ms
        return max(empty_at_ms - now_ms - allowed_ms, 0)

    def check(self, address: str, now_ms: int) -> None:
        """Refuse an address that has failed too often.

        Raises:
            AuthError: 429, with the seconds to wait in its text; `wait_ms` has them for `Retry-After`.
        """
        wait_ms = self.wait_ms(address, now_ms)
        if wait_ms:
            raise AuthError(
                f"Too many credentials from this address were refused. Try again in {-(-wait_ms // 1_000)} s.",
                code="too_many_attempts",
                status=429,
            )


def subscriber(address: str) -> str:
    """Return the address, or for IPv6 its /64: one subscriber has all of it (RFC 6177)."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        return str(parsed.ipv4_mapped) if parsed.ipv4_mapped else f"{int(parsed) >> 64:016x}::/64"
    return str(parsed)
