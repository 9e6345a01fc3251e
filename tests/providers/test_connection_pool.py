"""Sockets between turns: there before they are needed, replaced before they fail, used by one turn at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import msgspec
import pytest

from voicepipe.errors import StageBroken, StageError
from voicepipe.providers.net import connection_pool
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.net.multiplex import Context, Note, SharingRules, Source, decoded
from voicepipe.providers.net.ws import SocketRules
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.waits import LONG_TIMEOUT_MS, LeavesNothing, promptly
from voicepipe.testing.fakes.cartesia_tts import KEY, FakeCartesia
from voicepipe.testing.fakes.cues import Hold, Status, TtsCue
from voicepipe.testing.fakes.script import soon
from voicepipe.testing.fakes.ws_tts import TtsConnection
from voicepipe.testing.waiting import WAIT_S, eventually
from voicepipe.values import replace

PLAN = SharingRules(line=SocketRules(), contexts=3)
FORM = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}


class Message(msgspec.Struct):
    type: str
    context_id: str


@pytest.fixture
async def vendor() -> AsyncIterator[FakeCartesia]:
    async with FakeCartesia() as vendor:
        yield vendor


def source_at(
    vendor: FakeCartesia, plan: SharingRules = PLAN, *, key: str = KEY, idle_ms: int = LONG_TIMEOUT_MS
) -> Source[Message]:
    settings = ProviderSettings(kind="cartesia", base_url=vendor.base_url, api_key=key, idle_timeout_ms=idle_ms)
    address = ProviderAddress.of(
        "tts",
        Spec("cartesia", "sonic-3"),
        settings,
        auth_scheme="",
        key_header="X-API-Key",
        more_headers={"Cartesia-Version": "2026-03-01"},
        scheme="ws",
    )

    def read(message: str | bytes) -> Iterable[Note[Message]]:
        messages = decoded(address, msgspec.json.Decoder(Message), message)
        return [Note(messages.context_id, messages, closes=messages.type == "done")]

    return Source(address, "/tts/websocket", plan, read)


def say(context: Context[Message], text: str, *, goes_on: bool = True) -> None:
    """One clause; from then on there is something to cancel."""
    fields = {"context_id": context.key, "transcript": text, "continue": goes_on, "flush": True, "output_format": FORM}
    voice = {"mode": "id", "id": "v"}
    context.send(msgspec.json.encode(fields | {"voice": voice, "model_id": "m"}).decode())
    cancel = msgspec.json.encode({"context_id": context.key, "cancel": True}).decode()
    context.cancel = lambda: (cancel,)


async def receive_until(context: Context[Message], kind: str) -> list[Message]:
    messages: list[Message] = []
    async with asyncio.timeout(WAIT_S):
        while not messages or messages[-1].type != kind:
            messages.append(await context.receive())
    return messages


async def speak_through(source: Source[Message]) -> None:
    """One turn to its end."""
    async with connection_pool.lease(source) as context:
        say(context, "Hello.", goes_on=False)
        messages = await receive_until(context, "done")
        assert {each.context_id for each in messages} == {context.key}
        context.cancel = lambda: None


async def ready(vendor: FakeCartesia, n: int) -> None:
    """Wait until `n` connections have come, and are up on the client's side too."""
    await vendor.nth(n - 1)
    pools = connection_pool._POOL_SETS[asyncio.get_running_loop()][-1]

    async def up() -> bool | None:
        sockets = [socket for pool in pools._pools.values() for socket in pool._sockets]
        return all(socket.up_s is not None for socket in sockets if not socket.over) or None

    await eventually(up)


async def closed(call: TtsConnection) -> None:
    await soon(call.closed)


class TestConnectionPool(LeavesNothing):
    async def test_socket_is_there_before_it_is_needed(self, vendor: FakeCartesia) -> None:
        """A session's first turn finds it, and all of its connecting was hidden; so do the next ones."""
        source = source_at(vendor)
        async with connection_pool.lifetime():
            with connection_pool.keep_ready(source):
                await ready(vendor, 1)
                for _ in range(3):
                    async with connection_pool.lease(source) as context:
                        socket = context._socket
                        assert socket.up_s is not None
                        assert context.tts_connect_hidden_ms == round(1_000 * (socket.up_s - socket.began_s))
                        say(context, "Hello.", goes_on=False)
                        await receive_until(context, "done")
                        context.cancel = lambda: None
        assert len({message["context_id"] for message in vendor.calls[0].messages}) == 3
        assert all(not call.messages for call in vendor.calls[1:])

    async def test_turn_without_a_session_dials_and_leaves_the_socket_for_the_next(self, vendor: FakeCartesia) -> None:
        source = source_at(vendor)
        async with connection_pool.lifetime():
            await speak_through(source)
            await speak_through(source)
            assert len(vendor.calls) == 1
        await closed(vendor.calls[0])

    async def test_a_lifetime_within_another_leaves_it_as_it_was(self, vendor: FakeCartesia) -> None:
        """Two servers may run in one loop."""
        source = source_at(vendor)
        async with connection_pool.lifetime():
            await speak_through(source)
            async with connection_pool.lifetime():
                await speak_through(source)
            await closed(vendor.calls[1])
            await speak_through(source)
            assert len(vendor.calls) == 2
        await closed(vendor.calls[0])

    async def test_outside_of_a_lifetime_each_turn_dials(self, vendor: FakeCartesia) -> None:
        source = source_at(vendor)
        with connection_pool.keep_ready(source):
            await speak_through(source)
            await speak_through(source)
        assert len(vendor.calls) == 2
        for call in vendor.calls:
            await closed(call)

    async def test_turns_at_once_have_a_socket_each(self, vendor: FakeCartesia) -> None:
        """What one does not take holds up no other."""
        source, hold = source_at(vendor), Hold()
        vendor.script.cue(TtsCue(hold=hold))
        async with connection_pool.lifetime(), connection_pool.lease(source) as first:
            say(first, "Held.")
            await soon(hold.reached)
            await speak_through(source)
            assert len(vendor.calls) >= 2
            hold.release.set()
            await receive_until(first, "flush_done")

    async def test_cancelled_turn_lingers_and_the_next_begins_at_once(self, vendor: FakeCartesia) -> None:
        """It begins on the same socket; no audio of the turn before is played in it."""
        source = source_at(vendor)
        vendor.script.cue(TtsCue(hold=Hold(after=4_800)))
        async with connection_pool.lifetime():
            async with connection_pool.lease(source) as context:
                say(context, "A clause of some length.")
                await context.receive()
            await speak_through(source)
            assert len(vendor.calls) == 1
            assert [message.get("cancel") for message in vendor.calls[0].messages] == [None, True, None]
            assert vendor.open_contexts == 0

    async def test_socket_full_of_cancelled_contexts_is_not_used(self, vendor: FakeCartesia) -> None:
        source = source_at(vendor, replace(PLAN, contexts=1))
        vendor.context_over = lambda tts_context: ()  # type: ignore[method-assign]  # it confirms nothing
        async with connection_pool.lifetime():
            async with connection_pool.lease(source) as context:
                say(context, "Hello.")
                await context.receive()
            async with connection_pool.lease(source) as context:
                say(context, "Hello.")
                await context.receive()
            assert len(vendor.calls) == 2

    async def test_socket_of_a_vendor_that_confirms_nothing_is_left(self, vendor: FakeCartesia) -> None:
        source = source_at(vendor, replace(PLAN, confirms_cancel=False))
        async with connection_pool.lifetime():
            async with connection_pool.lease(source) as context:
                say(context, "Hello.")
                await context.receive()
            async with promptly():
                await vendor.calls[0].closed.wait()

    async def test_distrusted_socket_is_left(self, vendor: FakeCartesia) -> None:
        source = source_at(vendor)
        async with connection_pool.lifetime():
            async with connection_pool.lease(source) as context:
                say(context, "Hello.")
                await context.receive()
                context.is_trusted = False
            async with promptly():
                await vendor.calls[0].closed.wait()

    async def test_turn_left_while_dialling_gives_the_dial_up(self, vendor: FakeCartesia) -> None:
        source = source_at(vendor)
        async with connection_pool.lifetime():
            async with connection_pool.lease(source) as context:
                say(context, "Never said.")
            await speak_through(source)
        assert [call.messages[0]["transcript"] for call in vendor.calls if call.messages] == ["Hello."]

    # --- roll-over ----------------------------------------------------------------------------

    async def test_dead_idle_socket_is_replaced(self, vendor: FakeCartesia) -> None:
        source = source_at(vendor)
        async with connection_pool.lifetime():
            with connection_pool.keep_ready(source):
                await ready(vendor, 1)
                vendor.calls[0].abort()
                await ready(vendor, 2)
                await speak_through(source)
        assert vendor.calls[1].messages

    async def test_frozen_socket_is_noticed_by_its_pings(self, vendor: FakeCartesia) -> None:
        source = source_at(vendor, replace(PLAN, line=SocketRules(pong_ms=50)))
        async with connection_pool.lifetime():
            with connection_pool.keep_ready(source):
                await ready(vendor, 1)
                vendor.calls[0].freeze()
                await ready(vendor, 2)

    async def test_rested_socket_is_replaced_before_it_is_hung_up(
        self, vendor: FakeCartesia, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The new one is up before the old one goes."""
        monkeypatch.setattr(connection_pool, "LOOK_S", 0.01)
        source = source_at(vendor, replace(PLAN, idle_ms=100))
        async with connection_pool.lifetime():
            with connection_pool.keep_ready(source):
                await ready(vendor, 1)
                await ready(vendor, 2)
                await closed(vendor.calls[0])
                assert vendor.open_calls

    async def test_old_socket_takes_no_turn(self, vendor: FakeCartesia) -> None:
        source = source_at(vendor, replace(PLAN, age_ms=1))
        async with connection_pool.lifetime():
            await speak_through(source)
            await speak_through(source)
        assert len(vendor.calls) == 2

    async def test_unneeded_socket_is_closed(self, vendor: FakeCartesia, monkeypatch: pytest.MonkeyPatch) -> None:
        """When the sessions have gone, and the rest is over, the socket goes too."""
        monkeypatch.setattr(connection_pool, "LOOK_S", 0.01)
        source = source_at(vendor, replace(PLAN, idle_ms=50))
        async with connection_pool.lifetime():
            with connection_pool.keep_ready(source):
                await ready(vendor, 1)
            for call in vendor.calls:
                await closed(call)
            assert not vendor.open_calls

    async def test_one_free_socket_for_four_sessions(self, vendor: FakeCartesia) -> None:
        source = source_at(vendor)
        async with connection_pool.lifetime():
            with (
                connection_pool.keep_ready(source),
                connection_pool.keep_ready(source),
                connection_pool.keep_ready(source),
                connection_pool.keep_ready(source),
            ):
                await ready(vendor, 1)
                with connection_pool.keep_ready(source):
                    await ready(vendor, 2)
                assert len(vendor.calls) == 2

    # --- failures -----------------------------------------------------------------------------

    async def test_vendor_that_refuses_is_not_stormed(
        self, vendor: FakeCartesia, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Attempts to be ready are at least a second apart; a turn tries at once, and gets the error."""
        n_dials = 0

        def refuse(*_: object) -> Status:
            nonlocal n_dials
            n_dials += 1
            return Status(401)

        monkeypatch.setattr(vendor, "refusal_of", refuse)
        source = source_at(vendor)
        async with connection_pool.lifetime():
            with connection_pool.keep_ready(source), connection_pool.keep_ready(source):
                for _ in range(3):
                    async with connection_pool.lease(source) as context:
                        with pytest.raises(StageError, match="HTTP 401"):
                            await context.receive()
        assert n_dials <= 5

    async def test_bug_in_reading_ends_a_turn_and_not_the_server(
        self, vendor: FakeCartesia, caplog: pytest.LogCaptureFixture
    ) -> None:
        source = source_at(vendor)

        def broken(message: str | bytes) -> Iterable[Note[Message]]:
            raise KeyError("gone")

        async with connection_pool.lifetime(), connection_pool.lease(replace(source, read=broken)) as context:
            say(context, "Hello.")
            with pytest.raises(StageBroken, match=r"internal error \(KeyError\)"):
                await context.receive()
        assert "crashed" in caplog.text
        assert "KeyError: 'gone'" in caplog.text

    @pytest.mark.parametrize("message", [b"\x00", '{"type": 1}', "words"])
    async def test_garbage_between_turns_costs_the_socket_only(
        self, vendor: FakeCartesia, message: str | bytes
    ) -> None:
        source = source_at(vendor)
        async with connection_pool.lifetime():
            with connection_pool.keep_ready(source):
                await ready(vendor, 1)
                await vendor.calls[0].send(message)
                await closed(vendor.calls[0])
                await speak_through(source)
