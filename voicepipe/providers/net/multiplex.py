"""Share one WebSocket between contexts: a vendor's TTS serves turn after turn on one connection, each in its own
context.

Turns follow one another on a WebSocket and never share it while both produce audio. A turn that does not read makes the
vendor wait, and must not make another turn wait. A cancelled context may overlap the next turn: it stays until the
vendor confirms its end, its messages are dropped, and the next turn begins at once. `connection_pool` selects the
WebSocket of a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from uuid import uuid4

import msgspec

from voicepipe import clock
from voicepipe.errors import StageError
from voicepipe.providers.net import failures
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.net.ws import SocketRules, VendorSocket
from voicepipe.tasks import BackgroundTasks
from voicepipe.telemetry.log import log_crash

B = TypeVar("B")
T = TypeVar("T")

HELD = 32
"""Messages of the active context that wait to be read; a vendor's hold 20 to 200 ms of audio each."""


class SharingRules(msgspec.Struct, frozen=True, kw_only=True):
    """A vendor's rules for sharing its WebSockets."""

    line: SocketRules

    contexts: int = 1
    """Maximum number of contexts on a WebSocket, including cancelled ones whose end the vendor has not confirmed."""

    confirms_cancel: bool = True
    """Whether the vendor reports the end of a cancelled context. False: a WebSocket with a cancelled context is not
    used again."""

    idle_ms: int = 120_000
    """An idle WebSocket is replaced after this time; less than the vendor's own limit."""

    age_ms: int = 3_000_000
    """A WebSocket of this age takes no further turn; less than the vendor's own limit by the longest turn."""


class Note(msgspec.Struct, Generic[B], frozen=True):
    """A vendor's message, and its context."""

    context: str | None
    """The context as the vendor repeats it: `Context.key`, perhaps with a dot and a suffix. None: the only context."""

    body: B

    closes: bool = False
    """The vendor has closed that context."""


@dataclass(frozen=True)
class Source(Generic[B]):
    """The address of a kind of WebSocket, and the parser of its messages. Two with the same address and path are the
    same."""

    address: ProviderAddress
    path: str
    plan: SharingRules = field(compare=False)

    read: Callable[[str | bytes], Iterable[Note[B]]] = field(compare=False)
    """Parse a message. It may raise StageError for a message that ends the WebSocket's use: an error without a context,
    or a malformed message."""


class Context(Generic[B]):
    """The use of a WebSocket by one turn."""

    def __init__(self, socket: MultiplexedSocket[B]) -> None:
        self.key = uuid4().hex
        """The context's name at the vendor; several contexts of a turn have a dot and a suffix."""

        self.cancel: Callable[[], Sequence[str] | None] = lambda: None
        """Called when the turn is left: returns the messages that end open contexts at the vendor; None when none is
        open."""

        self.is_trusted = True
        """False: a failure may be the WebSocket's, so that no other turn should get it."""

        self._socket = socket
        self._began_s = clock.loop_s()
        # Full means that the turn does not read its audio: the WebSocket is not read, and the vendor has to wait.
        self._messages: asyncio.Queue[B | StageError] = asyncio.Queue(maxsize=HELD)

    def send(self, text: str) -> None:
        """Send a message after all earlier ones, as soon as the WebSocket is open. Returns at once."""
        self._socket.socket.send(text)

    async def receive(self) -> B:
        """Return the next message of this context, or of none. May be cancelled without losing a message.

        Raises:
            StageError: the WebSocket cannot be used any more.
        """
        message = await self._messages.get()
        if isinstance(message, StageError):
            raise message
        return message

    async def wait_until_dialled(self) -> None:
        """Wait until the WebSocket is open, or has failed: `receive` then raises the failure."""
        await self._socket.dial_ended.wait()

    @property
    def up_s(self) -> float | None:
        """The loop time at which the WebSocket was opened; None before that."""
        return self._socket.up_s

    @property
    def tts_connect_hidden_ms(self) -> int | None:
        """The part of the connection time that was over before this turn began; None while the WebSocket is not
        open."""
        socket = self._socket
        if socket.up_s is None:
            return None
        return round(1_000 * max(0.0, min(socket.up_s, self._began_s) - socket.began_s))

    # --- for the WebSocket -----------------------------------------------------------------------

    async def deliver(self, message: B | StageError) -> None:
        """Queue a message, when there is room."""
        await self._messages.put(message)

    def close(self) -> None:
        """Drop unread messages, and wake the task that waits to queue more."""
        while not self._messages.empty():
            self._messages.get_nowait()


class MultiplexedSocket(Generic[B]):
    """A connection that serves one turn at a time."""

    def __init__(self, source: Source[B], owned: BackgroundTasks, *, changed: Callable[[], None]) -> None:
        """Dials at once; `changed` is called when it is open, free again, or over."""
        self.socket = VendorSocket(source.address, source.path, source.plan.line)
        self.began_s = self.rested_s = clock.loop_s()
        """The loop times of dialling and of the last use."""

        self.up_s: float | None = None
        """The loop time at which it was opened."""

        self.dial_ended = asyncio.Event()
        """Set when it is open, or over."""

        self.over = False
        """Whether it cannot be used any more."""

        self.active: Context[B] | None = None
        self._cancelling: set[str] = set()
        self._source, self._changed = source, changed
        self._carrying = owned.start(self.socket.carry(), name=f"ws-{source.address.name}")
        owned.start(self._read(), name=f"contexts-{source.address.name}")

    @property
    def is_free(self) -> bool:
        """Whether a turn may begin on it."""
        is_below_limit = len(self._cancelling) < self._source.plan.contexts
        return not self.over and self.active is None and is_below_limit and not self.is_old

    @property
    def is_old(self) -> bool:
        """Whether the vendor may soon close it for its age, even in use."""
        return (clock.loop_s() - self.began_s) * 1_000 >= self._source.plan.age_ms

    @property
    def is_rested(self) -> bool:
        """Whether its idle time is close to the vendor's limit."""
        return (clock.loop_s() - self.rested_s) * 1_000 >= self._source.plan.idle_ms

    def begin(self) -> Context[B]:
        """Begin a turn on it; it must be free."""
        self.rested_s = clock.loop_s()
        self.active = Context(self)
        return self.active

    def end(self) -> None:
        """End the turn. Contexts that are open at the vendor are cancelled there."""
        context, self.active = self.active, None
        assert context is not None
        self.rested_s = clock.loop_s()
        if not self.over:
            self._cancel(context.key, context.cancel(), reuse=context.is_trusted and self.dial_ended.is_set())
        context.close()
        self._changed()

    def _cancel(self, key: str, messages: Sequence[str] | None, *, reuse: bool) -> None:
        if not reuse or (messages is not None and not self._source.plan.confirms_cancel):
            self.leave()
        elif messages is not None:
            self._cancelling.add(key)
            for message in messages:
                self.socket.send(message)

    def leave(self) -> None:
        """Close it; a dial in progress is cancelled."""
        self.over = True
        self.socket.leave()
        self._carrying.cancel()

    async def _read(self) -> None:
        """Pass each message to its turn, or drop it, until the WebSocket fails."""
        try:
            await self.socket.connected()
            self.up_s = clock.loop_s()
            self.dial_ended.set()
            self._changed()
            while True:
                for note in self._source.read(await self.socket.receive()):
                    await self._give(note)
        except StageError as failure:
            await self._fail(failure)
        except Exception as bug:  # it must not end other users of the WebSockets' task group
            log_crash(f"reading from {self._source.address.name}", bug)
            why = f"internal error ({type(bug).__name__})"
            await self._fail(failures.broken(self._source.address, why, retryable=False))

    async def _fail(self, failure: StageError) -> None:
        self.leave()
        self.dial_ended.set()
        self._changed()
        if self.active is not None:
            await self.active.deliver(failure)

    async def _give(self, note: Note[B]) -> None:
        key = None if note.context is None else note.context.partition(".")[0]
        if key is None and self._cancelling:
            key = next(iter(self._cancelling))  # a vendor without context names holds one context at a time
        if key in self._cancelling:
            if note.closes:
                self._cancelling.discard(key)
                self._changed()
        elif self.active is not None and key in (None, self.active.key):
            await self.active.deliver(note.body)


def decoded(address: ProviderAddress, decoder: msgspec.json.Decoder[T], message: str | bytes) -> T:
    """Return a message as the type of the vendor's messages.

    Raises:
        StageError: it is no message of the vendor's API.
    """
    if isinstance(message, bytes):
        raise failures.broken(address, f"expected text, got {len(message)} bytes")
    try:
        return decoder.decode(message)
    except msgspec.DecodeError as error:
        why = f"expected a message of the vendor's API, got {len(message)} characters ({error})"
        raise failures.broken(address, why) from None
