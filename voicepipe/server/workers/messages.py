"""The messages between the supervisor and its workers, as msgpack."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from voicepipe.cluster.port import Hint

QueryKind = Literal[
    "sessions",
    "session",
    "metrics",
    "state",
    "delete_session",
    "providers",
    "head_room",
    "reload",
    "item_audio",
    "call",
    "hang_up",
]
"""What a worker may request of all workers. Each answers for itself:

`sessions`: its open sessions of a project; `session`: whether it has this one; `metrics`: the text of `/metrics`;
`state`: its part of the live stream's figures; `delete_session`: stored events are deleted; `providers`: the status of
its providers; `head_room`: whether it has head-room for a session; `reload`: it reads the settings again;
`item_audio`: the audio of an item of its sessions; `call`: the session of this call over WebRTC; `hang_up`: it ends
this call.
"""


WaitKind = Literal["connection", "resume", "body"]
"""What waits for its client: a connection for a request, one that resumes a session for its first event, a request for
its body."""


LOST: Final = b"lost"
HUNG: Final = b"hung"
"""The supervisor's answers to `session`: its worker has died; its worker does not answer."""


class _Message(msgspec.Struct, tag=True, array_like=True):
    pass


# --- from a worker --------------------------------------------------------------------------------


class Listening(_Message):
    """The worker takes connections from now on."""

    is_open: bool
    """Whether any client on this machine may use the server without a key."""

    owner: str
    """The owner of its slots in the shared store."""


class Loaded(_Message):
    """The worker's models are loaded."""


class Pong(_Message):
    """The answer to a `Ping`: the worker's event loop runs."""


class Draining(_Message):
    """The worker takes no more connections: it stops."""


class StartFailed(_Message):
    """The worker can't start, and ends."""

    why: str
    is_config: bool


class TerminalLine(_Message):
    """A line for the operator's terminal."""

    line: str


class ConnectionClosed(_Message):
    """A connection is closed, whatever it was used for."""


class SessionOpened(_Message):
    """A session began to take its slot."""

    session: str


class SessionClosed(_Message):
    """A session has ended."""

    session: str


class Query(_Message):
    """Have all workers answer, the sender too. In the other direction: answer this."""

    number: int
    kind: QueryKind
    data: bytes


class QueryReply(_Message):
    """The answer of a worker to a query."""

    number: int
    data: bytes | None
    """None: it can't be sent now."""


class PublishEvent(_Message):
    """An event of the live feed, from the worker that made it."""

    kind: str
    project: str
    session: str
    data: bytes
    redacted_data: bytes


class Watching(_Message):
    """Whether the worker has readers of the live feed."""

    watching: bool


class CountFailure(_Message):
    """An address has sent an unknown credential. The supervisor passes it to the other workers."""

    address: str


class TakeSlot(_Message):
    """Take a slot for a REST request."""

    number: int
    what: str
    project: str
    token: str


class TakeModelSlot(_Message):
    """Take a slot for a session that uses the local models. See `model_slots.ModelSlots` for this and the next one."""

    number: int
    limit: int | None
    reservation: str = ""


class ReserveModelSlot(_Message):
    """Reserve such a slot."""

    number: int
    limit: int
    reservation: str
    life_ms: int


class FreeSlot(_Message):
    """Free the slot that `TakeSlot` or `TakeModelSlot` of this number got."""

    number: int


class BeginWait(_Message):
    """Count a connection that waits, or a request's body in transit, among those of all workers."""

    number: int
    what: WaitKind
    group: tuple[str, str]
    """As in `wait_limits`; a body's is that of its address."""


class GrowBody(_Message):
    """Count this number of bytes for a body: all that have come."""

    number: int
    n_bytes: int


class EndWait(_Message):
    """Count the connection, or the body, of this number no more."""

    number: int


class RelaySession(_Message):
    """Pass the socket that comes with this message to the worker that has the session; else it is closed."""

    session: str


class HasSnapshot(_Message):
    """Request whether this session has a snapshot. See `cluster.port.SessionSnapshots` for this and the next three."""

    number: int
    session: str


class StoreSnapshot(_Message):
    """Store a session's snapshot."""

    number: int
    session: str
    snapshot: bytes
    digest: str
    owner: str
    life_s: int
    previous_digest: str


class AcquireSnapshot(_Message):
    """Make this worker the owner of a session's snapshot, and answer with it."""

    number: int
    session: str
    digest: str
    owner: str
    next_digest: str


class DeleteSnapshot(_Message):
    """Delete a session's snapshot."""

    number: int
    session: str
    owner: str


class LeaseLeftSnapshot(_Message):
    """Lease a snapshot that no worker has written for `after_s`. See `cluster.port.LeftSnapshots` for this and the next
    one."""

    number: int
    after_s: int
    life_s: int
    lease: str


class DeleteLeftSnapshot(_Message):
    """Delete a leased snapshot."""

    number: int
    session: str
    lease: str


class StoreHint(_Message):
    """Store a hint for the other workers. See `cluster.port.RouterHints` for this and the next one."""

    kind: str
    process: str
    body: bytes
    life_s: int


class GetHints(_Message):
    """Request the hints of a kind."""

    number: int
    kind: str


# --- to a worker ----------------------------------------------------------------------------------


class TakeConnection(_Message):
    """A connection of a client comes with this message."""


class DropWait(_Message):
    """Another client takes the slot of the connection, or the memory of the body, of this number: end it."""

    number: int


class Stop(_Message):
    """Drain, then end."""


class ReloadSettings(_Message):
    """Have all workers read the settings again, and report it as `TerminalLine`."""


class Ping(_Message):
    """Answer this."""


class QueryResult(_Message):
    """The answers of all workers that have answered in time."""

    number: int
    replies: list[bytes]
    are_all: bool = True
    """Whether each worker has answered."""


class FeedMessage(_Message):
    """An event of the live feed, numbered."""

    number: int
    event: PublishEvent


class Watched(_Message):
    """Whether any worker has readers of the live feed."""

    watched: bool


class SlotResult(_Message):
    """Whether a slot was taken: empty, or which limit refused it."""

    number: int
    refusal: str


class SnapshotResult(_Message):
    """The answer to a request for a session's snapshot."""

    number: int
    is_done: bool
    """Whether there is one, or it was stored, taken, leased or deleted."""

    snapshot: bytes | None = None
    """What was taken or leased."""

    session: str = ""
    """Whose snapshot was leased."""


class HintsResult(_Message):
    """The answer to a request for hints."""

    number: int
    hints: list[Hint]


class FreeOwnerSlots(_Message):
    """Free the slots that a dead worker held in the shared store."""

    owner: str


SnapshotRequest = (
    HasSnapshot | StoreSnapshot | AcquireSnapshot | DeleteSnapshot | LeaseLeftSnapshot | DeleteLeftSnapshot
)

FromWorker = (
    Listening
    | Loaded
    | Pong
    | Draining
    | StartFailed
    | TerminalLine
    | ConnectionClosed
    | SessionOpened
    | SessionClosed
    | Query
    | QueryReply
    | PublishEvent
    | Watching
    | CountFailure
    | TakeSlot
    | TakeModelSlot
    | ReserveModelSlot
    | FreeSlot
    | BeginWait
    | GrowBody
    | EndWait
    | RelaySession
    | SnapshotRequest
    | StoreHint
    | GetHints
)

ToWorker = (
    TakeConnection
    | Stop
    | ReloadSettings
    | Ping
    | Query
    | QueryResult
    | FeedMessage
    | Watched
    | CountFailure
    | SlotResult
    | DropWait
    | SnapshotResult
    | HintsResult
    | RelaySession
    | FreeOwnerSlots
)

_encoder: Final = msgspec.msgpack.Encoder()
FROM_WORKER: Final = msgspec.msgpack.Decoder(FromWorker)
TO_WORKER: Final = msgspec.msgpack.Decoder(ToWorker)


def encoded(message: FromWorker | ToWorker) -> bytes:
    """Return a message as it is sent."""
    return _encoder.encode(message)
