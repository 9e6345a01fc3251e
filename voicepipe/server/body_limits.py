"""Bound the memory of request bodies in transit: in one process, or in the supervisor of several.

An incomplete body takes only memory, not a slot among the requests that are answered. Beyond the limit the client with
the most bytes loses its slowest body.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from voicepipe.clock import loop_s

ALL_BYTES: Final = 128 << 20
"""Memory of all bodies in transit: five of the largest, or the first half of ten."""

ADDRESS_BODIES: Final = 32
"""Bodies in transit from one client's address: by default twice as many as recordings are transcribed at once."""


@dataclass(slots=True, eq=False)
class CountedBody:
    """A body in transit."""

    address: str
    """Its client's address; for IPv6 the /64."""

    cut: Callable[[], object]
    """Ends its request. The body does not count any more."""

    number: int = 0
    """Its number at the supervisor."""

    n_bytes: int = 0
    is_counted: bool = True
    """False once it has ended, or is evicted."""

    began_s: float = field(default_factory=loop_s)

    @property
    def rate(self) -> float:
        """Bytes per second so far, as if one more second had passed: a body that has just started is not slow yet."""
        return self.n_bytes / (loop_s() - self.began_s + 1)


class BodyCounts(Protocol):
    """The bodies in transit, to all processes that serve the port."""

    def begin(self, address: str, cut: Callable[[], object]) -> CountedBody:
        """Count a body from now on; `cut` ends its request when there are too many."""
        ...

    def grow(self, body: CountedBody, n_bytes: int) -> None:
        """Count this number of its bytes."""
        ...

    def end(self, body: CountedBody) -> None:
        """Count the body no more."""
        ...


@dataclass(slots=True, eq=False)
class _OfAddress:
    bodies: set[CountedBody] = field(default_factory=set)
    n_bytes: int = 0


class BodyLimits:
    """Implements `BodyCounts` against the limits. Belongs to one event loop."""

    def __init__(self) -> None:
        # bounded: ADDRESS_BODIES per address, ALL_BYTES bytes in total, and by the process's descriptors
        self._of_address: dict[str, _OfAddress] = {}
        self.n_bytes = 0
        """Bytes of the bodies that count."""

    def __len__(self) -> int:
        """Number of bodies that count."""
        return sum(len(each.bodies) for each in self._of_address.values())

    def begin(self, address: str, cut: Callable[[], object]) -> CountedBody:
        """Count a body; the slowest of its address is evicted when there are too many."""
        of_address = self._of_address.get(address)
        if of_address is not None and len(of_address.bodies) >= ADDRESS_BODIES:
            self._evict_slowest(of_address)
        body = CountedBody(address, cut)
        self._of_address.setdefault(address, _OfAddress()).bodies.add(body)
        return body

    def grow(self, body: CountedBody, n_bytes: int) -> None:
        """Count this number of its bytes; the slowest body of the client with the most is evicted when there are too
        many."""
        body.n_bytes += n_bytes
        if body.is_counted:
            self._of_address[body.address].n_bytes += n_bytes
            self.n_bytes += n_bytes
        if self.n_bytes > ALL_BYTES:
            self._evict_slowest(max(self._of_address.values(), key=lambda each: each.n_bytes))

    def evict(self, body: CountedBody) -> None:
        """Cut a body: there are too many."""
        self.end(body)
        body.cut()

    def end(self, body: CountedBody) -> None:
        """Count the body no more."""
        if not body.is_counted:
            return
        body.is_counted = False
        of_address = self._of_address[body.address]
        of_address.bodies.remove(body)
        of_address.n_bytes -= body.n_bytes
        self.n_bytes -= body.n_bytes
        if not of_address.bodies:
            del self._of_address[body.address]

    def _evict_slowest(self, of_address: _OfAddress) -> None:
        self.evict(min(of_address.bodies, key=lambda body: body.rate))
