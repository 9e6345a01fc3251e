"""The socket to a vendor: fed before it is up, bounded, held open, and every way in which it can end."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator

import pytest

from voicepipe.errors import ConfigError, StageBroken, StageError, StageRefused, StageTimeout
from voicepipe.providers.net import ws
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.net.position_map import PositionMap
from voicepipe.providers.net.ws import SocketRules, VendorSocket, dial
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.waits import LONG_TIMEOUT_MS, LeavesNothing, promptly
from voicepipe.testing.fakes.cues import Status, SttCue
from voicepipe.testing.fakes.deepgram_stt import KEY, FakeDeepgram
from voicepipe.testing.fakes.ws_connection import SttConnection
from voicepipe.testing.waiting import WAIT_S
from voicepipe.values import replace

PATH = "/listen?model=m&encoding=linear16&sample_rate=16000"
LINE = SocketRules(keep_alive='{"type":"KeepAlive"}', farewell='{"type":"CloseStream"}')
FRAME = bytes(640)
"""20 ms."""


@pytest.fixture
async def vendor() -> AsyncIterator[FakeDeepgram]:
    async with FakeDeepgram() as vendor:
        vendor.script.usual = None
        yield vendor


def peer_at(
    base_url: str, *, idle_timeout_ms: int = LONG_TIMEOUT_MS, connect_timeout_ms: int = 5_000
) -> ProviderAddress:
    settings = ProviderSettings(
        kind="deepgram",
        base_url=base_url,
        api_key=KEY,
        idle_timeout_ms=idle_timeout_ms,
        connect_timeout_ms=connect_timeout_ms,
    )
    return ProviderAddress.of("stt", Spec("deepgram", "nova-3"), settings, auth_scheme="Token", scheme="ws")


async def drain(line: VendorSocket) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            await line.receive()


async def failure(line: VendorSocket) -> StageError:
    """How the line ends; it stays so."""
    with pytest.raises(StageError) as raised:
        await drain(line)
    with pytest.raises(StageError) as again:
        await line.receive()
    assert again.value is raised.value
    return raised.value


def test_scheme_is_checked() -> None:
    with pytest.raises(ConfigError, match=r'deepgram\.base_url: expected "ws://\.\.\." or "wss://\.\.\."'):
        peer_at("https://api.deepgram.com/v1")


class TestLine(LeavesNothing):
    async def test_audio_given_before_it_is_up_arrives(self, vendor: FakeDeepgram) -> None:
        """Whole and in order, joined to few messages, texts in their places."""
        async with dial(peer_at(vendor.base_url), PATH, LINE) as line:
            for n in range(100):
                line.send_audio(bytes([n]) * 640)
            line.send_audio(b"")
            line.send('{"type":"Finalize"}')
            line.send_audio(b"\x01\x02")
            call = await vendor.nth(0)
            await call.until(lambda: len(call.samples) == 32_001)
        assert call.samples.tobytes()[:-2] == b"".join(bytes([n]) * 640 for n in range(100))
        assert vendor.script.received[0].samples.tobytes() == call.samples.tobytes()[:-2]

    async def test_leaving_says_farewell(self, vendor: FakeDeepgram) -> None:
        """The vendor sees it, and a close frame, at once."""
        async with dial(peer_at(vendor.base_url), PATH, LINE) as line:
            await line.connected()
            call = await vendor.nth(0)
        async with promptly():
            await call.closed.wait()
        assert call.controls == ["CloseStream"]
        assert call.close_code == 1000

    async def test_leaving_a_vendor_that_does_not_listen(self, vendor: FakeDeepgram) -> None:
        async with dial(peer_at(vendor.base_url), PATH, LINE) as line:
            await line.connected()
            call = await vendor.nth(0)
            call.freeze()
            context = promptly()
            await context.__aenter__()
        await context.__aexit__(None, None, None)

    async def test_leaving_while_it_dials(self) -> None:
        """Nothing is left of the attempt; a reader that waits gets the end."""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            async with promptly(), asyncio.TaskGroup() as group:
                async with dial(peer_at(f"ws://127.0.0.1:{silent.getsockname()[1]}/v1"), PATH, LINE) as line:
                    listening = group.create_task(failure(line))
                    await asyncio.sleep(0)
                assert isinstance(await listening, StageBroken)

    async def test_keep_alive_messages(self, vendor: FakeDeepgram) -> None:
        """As a text message, whenever nothing was sent for long."""
        async with dial(peer_at(vendor.base_url), PATH, replace(LINE, keep_alive_ms=10)) as line:
            call = await vendor.nth(0)
            await call.until(lambda: call.controls == ["KeepAlive", "KeepAlive"])
            line.send_audio(FRAME)
            await call.until(lambda: call.received_ms == 20)
            await call.until(lambda: len(call.controls) >= 3)

    async def test_message_is_written_at_once_while_nothing_waits(self, vendor: FakeDeepgram) -> None:
        """No task is woken for it, and texts keep their place among the audio."""
        async with dial(peer_at(vendor.base_url), PATH, LINE) as line:
            line.send_audio(FRAME)
            call = await vendor.nth(0)
            await call.until(lambda: call.received_ms == 20)
            line.send_audio(FRAME)
            assert line.sent_bytes == 2 * len(FRAME)
            line.send('{"type":"Finalize"}')
            line.send_audio(FRAME)
            assert line.sent_bytes == 3 * len(FRAME)
            await call.until(lambda: call.received_ms == 60)
            assert call.controls == ["Finalize"]
            line.leave()
            line.send_audio(FRAME)
        assert line.sent_bytes == 3 * len(FRAME)

    async def test_wrapped_audio_is_written_at_once(self, vendor: FakeDeepgram) -> None:
        """As the text that the vendor takes."""
        wrapping = SocketRules(wrap=lambda pcm: f'{{"type":"{len(pcm)}"}}')
        async with dial(peer_at(vendor.base_url), PATH, wrapping) as line:
            await line.connected()
            call = await vendor.nth(0)
            line.send_audio(FRAME)
            await call.until(lambda: call.controls == ["640"])
            line.send_audio(FRAME)
            assert line.sent_bytes == 2 * len(FRAME)
            await call.until(lambda: call.controls == ["640", "640"])

    async def test_written_audio_postpones_the_keep_alive(
        self, vendor: FakeDeepgram, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The time since the latest message counts, not the time since the task was last woken."""
        looked, behind_s = asyncio.Event(), 59.99

        def loop_s() -> float:
            if not behind_s:
                looked.set()
            return asyncio.get_running_loop().time() - behind_s

        monkeypatch.setattr("voicepipe.clock.loop_s", loop_s)
        async with dial(peer_at(vendor.base_url), PATH, replace(LINE, keep_alive_ms=60_000)) as line:
            call = await vendor.nth(0)
            while not line._idle:  # noqa: ASYNC110 - its wait of a minute is over in 10 ms
                await asyncio.sleep(0)
            behind_s = 0.0
            line.send_audio(FRAME)
            looked.clear()
            await looked.wait()
            line.send('{"type":"Finalize"}')
            await call.until(lambda: bool(call.controls))
            assert call.controls == ["Finalize"]

    async def test_keep_alive_by_silence(self, vendor: FakeDeepgram) -> None:
        """Added silence changes no position of the pushed audio."""
        quiet = SocketRules(keep_alive=bytes(320), keep_alive_ms=10)
        async with dial(peer_at(vendor.base_url), PATH, quiet) as line:
            line.send_audio(FRAME)
            call = await vendor.nth(0)
            await call.until(lambda: call.received_ms >= 40)
            line.send_audio(b"\1" * 640)
            await call.until(lambda: bool(call.samples.any()))
            first = int(call.samples.nonzero()[0][0]) * 2
            assert (line.pushed_at(640), line.pushed_at(first), line.pushed_at(first + 640)) == (640, 640, 1_280)
            assert not line.in_step
        assert line.dropped_bytes == 0

    async def test_small_audio_waits_for_more(self, vendor: FakeDeepgram) -> None:
        """Less than the least waits; a text fills it up with silence and follows it."""
        async with dial(peer_at(vendor.base_url), PATH, SocketRules(min_ms=50)) as line:
            call = await vendor.nth(0)
            await line.connected()
            for _ in range(4):
                line.send_audio(FRAME)
            await call.until(lambda: call.received_ms == 80)
            line.send_audio(FRAME)
            line.send('{"type":"Finalize"}')
            await call.until(lambda: call.controls == ["Finalize"])
            assert call.received_ms == 130
            line.send_audio(FRAME)
            line.send('{"type":"Finalize"}')
            await call.until(lambda: len(call.controls) == 2)
        assert min(call.message_bytes) >= 1_600
        assert (line.pushed_at(3_200), line.pushed_at(4_160), line.pushed_at(4_800)) == (3_200, 3_200, 3_840)

    async def test_no_keep_alive_by_default(self, vendor: FakeDeepgram) -> None:
        async with dial(peer_at(vendor.base_url), PATH, SocketRules(keep_alive_ms=1)) as line:
            await line.connected()
            call = await vendor.nth(0)
            line.send_audio(FRAME)
            await call.until(lambda: call.received_ms == 20)
        assert call.controls == []

    async def test_oldest_audio_goes(self, vendor: FakeDeepgram) -> None:
        """Past the bound the oldest audio is dropped and counted, and the vendor's positions stay known; texts stay
        queued.
        """
        async with dial(peer_at(vendor.base_url), PATH, replace(LINE, buffer_ms=100)) as line:
            line.send('{"type":"Configure"}')
            for n in range(8):
                line.send_audio(bytes([n]) * 640)
            assert line.dropped_bytes == 3 * 640
            call = await vendor.nth(0)
            await call.until(lambda: call.received_ms == 100)
            assert (line.pushed_at(0), line.pushed_at(640)) == (0, 4 * 640)
        assert call.controls[0] == "Configure"
        assert call.samples.tobytes() == b"".join(bytes([n]) * 640 for n in range(3, 8))

    async def test_unsent_texts_break_the_connection(
        self, vendor: FakeDeepgram, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ws, "WAITING_TEXTS", 3)
        async with dial(peer_at(vendor.base_url), PATH, LINE) as line:
            for _ in range(4):
                line.send('{"type":"Finalize"}')
            assert "left 3 messages unread" in str(await failure(line))

    async def test_unsent_texts_to_a_frozen_vendor(self, vendor: FakeDeepgram, monkeypatch: pytest.MonkeyPatch) -> None:
        """The line ends though its sender stands still."""
        monkeypatch.setattr(ws, "WAITING_TEXTS", 3)
        async with dial(peer_at(vendor.base_url), PATH, replace(LINE, buffer_ms=10_000_000)) as line:
            await line.connected()
            (await vendor.nth(0)).freeze()
            line.send_audio(bytes(64 << 20))  # more than any socket's buffers
            ending = failure(line)
            for _ in range(10):
                await asyncio.sleep(0)
            for _ in range(4):
                line.send('{"type":"Finalize"}')
            assert "messages unread" in str(await ending)

    async def test_key_and_audio_are_not_logged(self, vendor: FakeDeepgram, caplog: pytest.LogCaptureFixture) -> None:
        """Not even when everything else is."""
        caplog.set_level(logging.DEBUG)
        async with dial(peer_at(vendor.base_url), PATH, LINE) as line:
            line.send_audio(FRAME)
            call = await vendor.nth(0)
            await call.until(lambda: call.received_ms == 20)
        ours = [record for record in caplog.records if record.name.startswith("voicepipe")]
        assert ours == []
        assert not any("websockets.client" in record.name for record in caplog.records)

    # --- ends ---------------------------------------------------------------------------------

    async def ends(self, vendor: FakeDeepgram, how: str) -> StageError:
        """The error after the vendor ended a call so."""

        async def end(call: SttConnection) -> None:
            match how.split(" "):
                case ["cut"]:
                    call.cut()
                case ["not-utf-8"]:
                    await call.send_raw(b"\xff\xfe")
                case ["too-long"]:
                    await call.send("x" * (LINE.message_bytes + 1))
                case [code, *reason]:
                    await call.hang_up(int(code), " ".join(reason))

        async with dial(peer_at(vendor.base_url), PATH, LINE) as line, asyncio.TaskGroup() as group:
            await line.connected()
            group.create_task(end(await vendor.nth(0)))
            return await failure(line)

    @pytest.mark.parametrize(
        ("how", "why", "retryable"),
        [
            ("cut", "the connection ended: without a close frame", True),
            ("1000", "closed the connection (1000: no reason)", True),
            ("1011 NET-0001", "closed the connection (1011: NET-0001)", True),
            ("1008 DATA-0000", "closed the connection (1008: DATA-0000)", False),
            ("1002 DATA-0000", "closed the connection (1002: DATA-0000)", False),
            ("4000 key sk-0123456789 is bad", "closed the connection (4000: [key] is bad)", True),
            ("not-utf-8", "the vendor broke the WebSocket protocol", True),
            ("too-long", "the vendor broke the WebSocket protocol", True),
        ],
    )
    async def test_end(self, vendor: FakeDeepgram, how: str, why: str, retryable: bool) -> None:
        """In the vendor's words, if it has some; for good only when it says that we are wrong."""
        error = await self.ends(vendor, how)
        assert isinstance(error, StageBroken)
        assert why in error.why
        assert error.retryable is retryable

    async def test_vendor_that_died_without_a_word(self, vendor: FakeDeepgram) -> None:
        """Pings find it."""
        async with dial(peer_at(vendor.base_url, idle_timeout_ms=100), PATH, LINE) as line:
            await line.connected()
            (await vendor.nth(0)).freeze()
            assert "no answer to a ping for 100 ms" in (await failure(line)).why

    async def test_refusal_is_in_the_vendors_words(self, vendor: FakeDeepgram) -> None:
        vendor.script.cue(SttCue(fault=Status(402, "Project has no credit.", retry_after="3")))
        async with dial(peer_at(vendor.base_url), PATH, LINE) as line:
            error = await failure(line)
        assert isinstance(error, StageRefused)
        assert error.why == "HTTP 402: no credit is left (Project has no credit.)"
        assert (error.status, error.retryable, error.retry_after_ms) == (402, False, 3_000)

    async def test_redirect_is_not_followed(self, vendor: FakeDeepgram) -> None:
        """It would carry the user's words to an address that no setting names."""

        async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            away = vendor.base_url.encode() + PATH.encode()
            writer.write(b"HTTP/1.1 307 Away\r\nLocation: " + away + b"\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(redirect, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with dial(peer_at(f"ws://127.0.0.1:{port}/v1"), PATH, LINE) as line:
                error = await failure(line)
        assert isinstance(error, StageRefused)
        assert error.status == 307
        assert not vendor.calls

    async def test_no_server(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as gone:
            port = gone.getsockname()[1]
        async with dial(peer_at(f"ws://127.0.0.1:{port}/v1"), PATH, LINE) as line:
            assert "refused: is it running?" in (await failure(line)).why

    async def test_no_answer(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = peer_at(f"ws://127.0.0.1:{silent.getsockname()[1]}/v1", connect_timeout_ms=100)
            async with dial(address, PATH, LINE) as line:
                error = await failure(line)
        assert isinstance(error, StageTimeout)
        assert error.why == "no connection within 100 ms"

    @pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH_9\r\n\r\n", b"HTTP/1.1 101 Ok\r\n\r\n"])
    async def test_not_a_websocket(self, answer: bytes) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with dial(peer_at(f"ws://127.0.0.1:{port}/v1"), PATH, LINE) as line:
                error = await failure(line)
        assert "expected a WebSocket, got a closed connection or another answer" in error.why
        assert error.retryable

    @pytest.mark.parametrize(
        ("error", "why"),
        [
            (socket.gaierror(-2, "Name or service not known"), "the host name was not found (DNS)"),
            (OSError(113, "No route to host"), "no connection could be made (No route to host)"),
        ],
    )
    async def test_no_way_there(self, monkeypatch: pytest.MonkeyPatch, error: OSError, why: str) -> None:
        async def fail(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", fail)
        async with dial(peer_at("ws://127.0.0.1:1/v1"), PATH, LINE) as line:
            assert (await failure(line)).why == why

    async def test_no_url(self) -> None:
        async with dial(peer_at("ws://"), PATH, LINE) as line:
            error = await failure(line)
        assert (error.why, error.retryable) == ("the URL is malformed", False)

    async def test_tls_where_there_is_none(self, vendor: FakeDeepgram) -> None:
        async with dial(peer_at(vendor.base_url.replace("ws://", "wss://")), PATH, LINE) as line:
            error = await failure(line)
        assert isinstance(error, StageBroken)
        assert error.why == "the connection broke while it was opened"


def test_gaps() -> None:
    """Each place after a gap is later by all that was lost before it; drops at one place are one gap."""
    gaps = PositionMap()
    gaps.record(100, 5)
    gaps.record(100, 5)
    gaps.record(200, 1)
    assert [gaps.place(at) for at in (0, 100, 101, 200, 201)] == [0, 100, 111, 210, 212]
    assert gaps.lost == 11


def test_gaps_that_were_filled() -> None:
    """What was added has the place of what comes next; additions that follow one another are one."""
    gaps = PositionMap()
    gaps.record(100, -10)
    gaps.record(110, -10)
    gaps.record(200, 5)
    assert [gaps.place(at) for at in (100, 101, 110, 120, 121, 200, 201)] == [100, 100, 100, 100, 101, 180, 186]
