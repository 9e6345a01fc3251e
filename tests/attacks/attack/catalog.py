"""Every attack by its name, with what must be true of the server when it is over."""

from __future__ import annotations

from dataclasses import dataclass, field

from attack import (
    connections,
    credentials,
    floods,
    fuzz_events,
    fuzz_frames,
    fuzz_rest,
    slow_readers,
    uploads,
    vendor_turns,
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
    Attack(name="retrieve-unread", run=slow_readers.retrieve_unread, sees={"dropped": 1}),
    Attack(name="retrieve-slowly-read", run=slow_readers.retrieve_slowly_read),
    Attack(name="session-echo", run=slow_readers.session_echo, sees={"dropped": 1}),
    Attack(name="error-echo", run=slow_readers.error_echo, sees={"dropped": 1}),
    Attack(name="junk", run=floods.junk, never=FAULTS),
    Attack(name="pings", run=floods.pings, never=FAULTS),
    Attack(name="sound", run=floods.sound, never=FAULTS),
    Attack(name="binary-sound", run=floods.binary_sound, never=FAULTS),
    Attack(name="responses", run=floods.responses, never=FAULTS),
    Attack(name="updates", run=floods.updates, never=FAULTS),
    Attack(name="voices", run=floods.voices, never=FAULTS),
    Attack(name="small-items", run=floods.small_items, never=FAULTS),
    Attack(name="pictures", run=floods.pictures, growth_mb=160, never=FAULTS),
    Attack(name="twenty-at-once", run=floods.twenty_at_once, never=FAULTS),
    Attack(name="tiny-fields", run=uploads.tiny_fields, never=FAULTS),
    Attack(name="long-part-headers", run=uploads.long_part_headers, never=FAULTS),
    Attack(name="recordings", run=uploads.recordings, sees={"a look-up 200": uploads.LOOK_UPS}, never=FAULTS),
    Attack(name="silent", run=connections.silent, sees={"a good call completed": 1}),
    Attack(name="slow-headers", run=connections.slow_headers, sees={"a good call completed": 1}),
    Attack(name="slow-uploads", run=connections.slow_uploads, sees={"a good upload 200": 1}),
    Attack(name="garbage", run=connections.garbage, sees={"a good call completed": 1}),
    Attack(name="connection-flood", run=connections.connection_flood, never=FAULTS),
    Attack(name="bad-keys", run=credentials.bad_keys, sees={"good key 200": 1, "good call 101": 1}),
    Attack(name="foreign-pages", run=credentials.foreign_pages, sees={"good key 200": 1, "good call 101": 1}),
    Attack(name="resume-slots", run=credentials.resume_slots, sees={"resumed": 1}),
    Attack(name="broken-pings", run=credentials.broken_pings, sees={"resumed": credentials.BROKEN}),
    Attack(name="fuzz-frames", run=fuzz_frames.frames, never=FAULTS),
    Attack(name="fuzz-events", run=fuzz_events.events, never=FAULTS),
    Attack(name="fuzz-rest", run=fuzz_rest.requests, never=FAULTS),
    Attack(name="bad-chats", run=vendor_turns.bad_chats, growth_mb=96),
    Attack(name="silent-chats", run=vendor_turns.silent_chats),
    Attack(name="bad-voices", run=vendor_turns.bad_voices, growth_mb=96),
)

ATTACKS = {attack.name: attack for attack in _ALL}
FUZZERS = frozenset({"fuzz-frames", "fuzz-events", "fuzz-rest"})
