"""Every attack by its name, with what must be true of the server when it is over."""

from __future__ import annotations

from dataclasses import dataclass, field

from attack import (
    connections,
    credentials,
    floods,
    fuzz_events,
)
from attack.target import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One attack. It must see all of `sees` (how often, at least) and nothing that begins with one of `never`."""

    name: str
    run: Run
    growth_mb: float = 48
    """By how much the server's memory may grow meanwhile."""

    sees: dict[str, int] = field(default_factory=dict)
    never: tuple[str, ...] = ()

    @property
    def says(self) -> str:
        """What it does, in a sentence."""
        return (self.run.__doc__ or "").partition("\n")[0].rstrip(".")


FAULTS = ("closed 1011", "error server_error", "HTTP 500", "500")
"""What says that the server made a mistake."""

_ALL = (
    Attack(name="pings", run=floods.pings, never=FAULTS),
    Attack(name="binary-sound", run=floods.binary_sound, never=FAULTS),
    Attack(name="responses", run=floods.responses, never=FAULTS),
    Attack(name="updates", run=floods.updates, never=FAULTS),
    Attack(name="voices", run=floods.voices, never=FAULTS),
    Attack(name="silent", run=connections.silent, sees={"a good call completed": 1}),
    Attack(name="slow-headers", run=connections.slow_headers, sees={"a good call completed": 1}),
    Attack(name="slow-uploads", run=connections.slow_uploads, sees={"a good upload 200": 1}),
    Attack(name="garbage", run=connections.garbage, sees={"a good call completed": 1}),
    Attack(name="connect-storm", run=connections.connect_storm, never=FAULTS),
    Attack(name="bad-keys", run=credentials.bad_keys, sees={"good key 200": 1, "good call 101": 1}),
    Attack(name="foreign-pages", run=credentials.foreign_pages, sees={"good key 200": 1, "good call 101": 1}),
    Attack(name="resume-places", run=credentials.resume_places, sees={"resumed": 1}),
    Attack(name="fuzz-events", run=fuzz_events.events, never=FAULTS),
)

ATTACKS = {attack.name: attack for attack in _ALL}
FUZZERS = frozenset({"fuzz-frames", "fuzz-events", "fuzz-rest"})
