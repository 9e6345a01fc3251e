"""The load bench: users measure what they receive, providers have fixed delays, and a whole run prints its table."""

from __future__ import annotations

import asyncio
import csv
import itertools
import json
import signal
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from tests.measure import load_peers
from tests.measure.wire import config
from voicepipe.audio.encoding import MULAW, AudioEncoding
from voicepipe.audio.files import read_sound
from voicepipe.audio.samples import Samples, silence, to_pcm
from voicepipe.bench.load import servers
from voicepipe.bench.load import user as user_module
from voicepipe.bench.load.admission import Admission, Arrivals, admission_lines, until_admitted
from voicepipe.bench.load.concurrent_users import ConcurrentUsers, Cost, LoadRun, LoadTarget, unlimited_session
from voicepipe.bench.load.flood import Flood, FloodCounts
from voicepipe.bench.load.process_cost import read_usage
from voicepipe.bench.load.profiled_server import Profile, Sampler, module_of
from voicepipe.bench.load.providers import Delays, providers
from voicepipe.bench.load.report import carried, compared, problems, profile_lines, table
from voicepipe.bench.load.rows import Row, RowFile, row_of
from voicepipe.bench.load.servers import VARIANTS
from voicepipe.bench.load.stt_stream import DeepgramStream
from voicepipe.bench.load.user import FRAME_SAMPLES, LOUD, MeasuredSentence, sentence, sound_of
from voicepipe.bench.load.wire_protocols import PIPECAT, RATE_HZ, RAW, append_event
from voicepipe.cli import main
from voicepipe.errors import ConfigError
from voicepipe.protocol.inbound import AudioAppended, read
from voicepipe.testing.fakes.cues import LlmCue, tokens
from voicepipe.testing.waiting import eventually

VOICE_MS = 200
TONE = bytes(range(1, 97)) * 10  # 20 ms


def voice(duration_ms: int) -> Samples:
    """Something loud."""
    return (8_000 * np.sin(np.arange(duration_ms * RATE_HZ // 1_000) / 10)).astype(np.int16)


def load_of(target: str, *latencies_ms: int, error: str = "") -> LoadRun:
    """A run of one user."""
    turns = tuple(MeasuredSentence(1_000, 1_000 + ms, error=error) for ms in latencies_ms)
    return LoadRun(target=target, n_users=1, turns=turns, cost=None, late_p95_ms=0, stray=0, errors=())


# --- the user -----------------------------------------------------------------------------------


def test_a_sentence_has_no_pauses_and_ends_with_its_voice() -> None:
    """What no server can take for the end is left: at most 40 ms of quiet, and none at the end."""
    pause = silence(RATE_HZ // 2)
    frames = sentence(np.concatenate((voice(VOICE_MS), pause, voice(VOICE_MS), pause)))
    assert {len(frame) for frame in frames} == {FRAME_SAMPLES}
    assert len(frames) * 20 in range(2 * VOICE_MS, 2 * VOICE_MS + 60)
    assert np.abs(frames[-1][-RATE_HZ // 100 :]).max() > LOUD


def test_a_recording_without_a_voice_is_refused() -> None:
    with pytest.raises(ValueError, match="voice"):
        sentence(silence(RATE_HZ))


def test_a_turn_counts_from_the_last_voiced_sample_to_the_first_audible_one() -> None:
    """Digital silence is not audible; a piece that comes after all before it has been played leaves a gap."""
    turn = MeasuredSentence(1_000)
    turn.add_audio(bytes(960), 1_200)
    assert (turn.latency_ms, turn.gaps_ms) == (None, [])
    for now_ms in (1_400, 1_401, 1_440, 1_490):
        turn.add_audio(TONE, now_ms)
    assert (turn.latency_ms, turn.gaps_ms, round(turn.sound_ms)) == (400, [30], 80)


def test_messages_are_those_of_the_wire() -> None:
    """The microphone's message is read as sound, and the sound of an answer's is found with and without spaces."""
    frame = voice(20)
    assert read(append_event(frame).encode(), config("audio/pcm")) == AudioAppended(to_pcm(frame))
    event = {"type": "response.output_audio.delta", "delta": "AQI=", "item_id": "i"}
    assert sound_of(json.dumps(event)) == sound_of(json.dumps(event, separators=(",", ":"))) == b"\x01\x02"


def test_other_servers_get_the_same_audio() -> None:
    """PCM as it is, or Pipecat's frames with 16 kHz, of which the part that is no audio is passed over."""
    frames = [voice(20), voice(20)]
    assert RAW.messages(frames) == [to_pcm(frame) for frame in frames]
    sent = [PIPECAT.sound(message) for message in PIPECAT.messages(frames * 20) if isinstance(message, bytes)]
    assert len(b"".join(part for part in sent if part is not None)) == pytest.approx(40 * 640, abs=128)
    name, audio = b"\x0a\x03abc", b"\x1a\xac\x02" + bytes(range(150)) * 2
    body = b"\x08\x96\x01" + name + audio + b"\x20\xc0\xbb\x01"
    assert PIPECAT.sound(b"\x12" + bytes([len(body) & 0x7F | 0x80, len(body) >> 7]) + body) == bytes(range(150)) * 2
    assert PIPECAT.sound(b"\x0a\x01a") is None
    assert PIPECAT.sound(b"\x12\x02\x08\x01") is None


# --- the providers --------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", [AudioEncoding(16_000), MULAW])
async def test_transcriber_counts_utterances(encoding: AudioEncoding) -> None:
    """A final text by itself after the voice, one at once on request, and an empty one when nothing is left."""
    said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def say(message: str) -> None:
        said.put_nowait(json.loads(message))

    stream = DeepgramStream(say, encoding, itertools.count(1), hold_ms=10)
    async with asyncio.TaskGroup() as group:
        speaking = group.create_task(stream.send_finals())
        for frame in (voice(20), silence(640)):
            await stream.receive(encoding.encode(frame))
        interim, final = await said.get(), await said.get()
        await stream.receive(encoding.encode(voice(20)))
        stream.control("Finalize")
        _, finalized = await said.get(), await said.get()
        stream.control("Finalize")
        nothing = await said.get()
        speaking.cancel()
    texts = [each["channel"]["alternatives"][0]["transcript"] for each in (interim, final, finalized, nothing)]
    assert texts == ["where is number 1", "where is number 1", "where is number 2", ""]
    assert [each["from_finalize"] for each in (final, finalized, nothing)] == [False, True, True]
    assert finalized["start"] == final["start"] + final["duration"]


async def test_audio_that_arrives_late_is_no_pause_of_the_sentence() -> None:
    """A server may send audio in pieces: a pause of 20 ms in the sentence does not end it, however late the rest is."""
    said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def say(message: str) -> None:
        said.put_nowait(json.loads(message))

    encoding = AudioEncoding(16_000)
    stream = DeepgramStream(say, encoding, itertools.count(1), hold_ms=0)
    async with asyncio.TaskGroup() as group:
        speaking = group.create_task(stream.send_finals())
        for frame in (voice(20), silence(320), voice(100), silence(640)):
            await stream.receive(encoding.encode(frame))
            for _ in range(3):  # a final that was due would be sent now
                await asyncio.sleep(0)
        sent = [said.get_nowait() for _ in range(said.qsize())]
        speaking.cancel()
    assert [each["is_final"] for each in sent] == [False, True]


@pytest.mark.parametrize(("punctuate", "text"), [("true", "Where is number 1?"), ("false", "where is number 1")])
async def test_transcriber_punctuates_where_it_is_requested(punctuate: str, text: str) -> None:
    """Words alone show no end: without the punctuation that the server requests, its default rule waits longer."""
    query = {"encoding": "linear16", "sample_rate": str(RATE_HZ), "punctuate": punctuate}
    async with (
        TestClient(TestServer(providers(Delays()))) as client,
        client.ws_connect("/v1/listen", params=query) as websocket,
    ):
        await websocket.send_bytes(to_pcm(voice(20)))
        alternative = (await websocket.receive_json())["channel"]["alternatives"][0]
    assert alternative["transcript"] == text
    assert [word["word"] for word in alternative["words"]] == ["where", "is", "number", "1"]
    punctuated = [word.get("punctuated_word", word["word"]) for word in alternative["words"]]
    assert punctuated == text.split()


def test_minimum_latency_follows_from_the_delays() -> None:
    """Either the silence or the work up to the first clause, then the voice."""
    assert (Delays().minimum_ms(200), Delays().minimum_ms(700)) == (390, 780)


# --- runs -----------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_crowd_talks_to_any_server(fake_server: Any, question: Path) -> None:
    """Each user has its turns, and no user receives audio twice."""
    async with fake_server() as server:
        server.vendor.llm.usual = LlmCue(tokens=tokens("It is noon."))
        url = server.url.replace("http", "ws") + "/v1/realtime"
        target = LoadTarget(name="it", url=url, pid=None, session=servers.session(VARIANTS["voicepipe"].detects(200)))
        done = await ConcurrentUsers(target, sentence(read_sound(question, RATE_HZ)), 2, 2).run(500)
    assert [turn.error for turn in done.turns] == [""] * 4
    assert all(turn.latency_ms is not None and turn.latency_ms > 100 for turn in done.turns)
    assert (done.stray, done.errors) == (0, ())


@pytest.mark.slow
async def test_a_stalled_microphone_makes_no_answer_seem_sooner() -> None:
    """A server answers 200 ms of silence. Behind a stall this silence comes in a burst, and counts all the same."""
    n_quiet = n_voiced = 10
    stalled = False

    async def answer(request: web.Request) -> web.WebSocketResponse:
        nonlocal stalled
        line = web.WebSocketResponse()
        await line.prepare(request)
        quiet: int | None = None
        async for message in line:
            if any(message.data):
                quiet = 0
                if not stalled:
                    stalled = True
                    time.sleep(2 * n_voiced * 20 / 1_000)  # noqa: ASYNC251 - the stall of the user's own loop
            elif quiet is not None:
                quiet += 1
                if quiet == n_quiet:
                    await line.send_bytes(TONE)
        return line

    app = web.Application()
    app.add_routes([web.get("/ws", answer)])
    async with TestServer(app) as server:
        target = LoadTarget(name="it", url=str(server.make_url("/ws")), pid=None, session={}, wire=RAW)
        done = await ConcurrentUsers(target, [voice(20)] * n_voiced, 1, 1).run(100)
    (turn,) = done.turns
    assert stalled
    assert turn.error == ""
    assert turn.latency_ms is not None
    assert turn.latency_ms >= n_quiet * 20 - 1


@pytest.mark.slow
async def test_an_answer_without_events_ends_with_its_audio(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that sends nothing but audio: each turn is answered once, and its end is noticed."""
    monkeypatch.setattr(user_module, "ENDED_MS", 50)

    async def answer(request: web.Request) -> web.WebSocketResponse:
        line = web.WebSocketResponse()
        await line.prepare(request)
        voiced = False
        async for message in line:
            if voiced and not any(message.data):
                await line.send_bytes(TONE)
            voiced = any(message.data)
        return line

    app = web.Application()
    app.add_routes([web.get("/ws", answer)])
    async with TestServer(app) as server:
        target = LoadTarget(name="it", url=str(server.make_url("/ws")), pid=None, session={}, wire=RAW)
        done = await ConcurrentUsers(target, [voice(20), voice(20)], 2, 2).run(100)
    assert [turn.error for turn in done.turns] == [""] * 4
    assert {round(turn.sound_ms) for turn in done.turns} == {round(len(TONE) / 2 / RATE_HZ * 1_000)}


@pytest.mark.parametrize(("reason", "why"), [(b"full", "code 1013: full"), (None, "code 1006: no reason")])
async def test_a_server_that_closes_a_session_that_opens_is_named_with_its_code(reason: bytes | None, why: str) -> None:
    """A run that fails says why; a server that dies gives no reason."""

    async def close(request: web.Request) -> web.WebSocketResponse:
        line = web.WebSocketResponse()
        await line.prepare(request)
        await line.receive()
        if reason is None:
            assert request.transport is not None
            request.transport.abort()
        else:
            await line.close(code=1013, message=reason)
        return line

    app = web.Application()
    app.add_routes([web.get("/ws", close)])
    async with TestServer(app) as server:
        target = LoadTarget(name="it", url=str(server.make_url("/ws")), pid=None, session={})
        with pytest.raises(ConnectionError, match=f"the server closed the connection with {why}$"):
            await ConcurrentUsers(target, [voice(20)], 1, 1).run(100)


def test_a_server_without_an_environment_is_skipped_loudly(
    question: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The user reads which one, and how to make it."""
    assert load_peers.main(["--environments", str(tmp_path), "--sound", str(question)]) == 2
    said = capsys.readouterr().err
    assert f"SKIPPED: pipecat: there is no {tmp_path}/pipecat/bin/python" in said
    assert "peers/livekit.txt" in said
    assert all((load_peers.SCRIPTS / f"{peer.project}.txt").exists() for peer in load_peers.PEERS.values())


async def test_a_server_that_is_not_there_is_named() -> None:
    target = LoadTarget(
        name="nobody",
        url="ws://127.0.0.1:1/v1/realtime",
        pid=None,
        session=servers.session(VARIANTS["voicepipe"].detects(200)),
    )
    with pytest.raises(ConnectionError, match="nobody at ws:"):
        await ConcurrentUsers(target, [voice(20)], 1, 1).run(0)


@pytest.mark.slow
def test_a_whole_run_starts_what_it_needs(question: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Providers and a server of its own, a row and a line in the CSV for each turn. A second run measures nothing."""
    command = ["bench", "load", "--sound", str(question), "--turns", "1", "--profile", "--out", str(tmp_path)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    _, _, row, _, minimum, *_ = printed.splitlines()
    assert row.startswith("| voicepipe | 1 | 1 | ")
    assert minimum.startswith("minimum: 390 ms")
    (turn,) = csv.DictReader((tmp_path / "load.csv").read_text().splitlines())
    assert int(turn["latency_ms"]) >= Delays().minimum_ms(200) - 20
    assert (turn["server"], turn["error"]) == ("voicepipe", "")
    assert main(command) == 0
    again = capsys.readouterr()
    assert again.out.splitlines()[2] == row
    assert again.err == ""


@pytest.mark.long
@pytest.mark.slow
def test_admission_is_measured_with_and_without_a_flood(question: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Everything is admitted below the limit, and the flood was answered."""
    few = ["--admission", "2", "--turns", "1", "--rounds", "1", "--flooded", "1"]
    assert main(["bench", "load", "--sound", str(question), *few]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "2 of 2 users were admitted; 0 of 2 turns failed"
    assert "answered 200" in printed[2]
    assert "with it" in printed[3]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (["--server", "other"], "expected one of voicepipe, defaults, no-speculation, got 'other'"),
        (["--users", "0"], "--users: expected 1 or more, got 0"),
        (["--target", "http://127.0.0.1:1", "--profile"], "--target measures one running server"),
    ],
)
def test_wrong_options_are_refused(wrong: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "load", *wrong]) == 2
    assert why in capsys.readouterr().err


# --- the report -----------------------------------------------------------------------------------


def test_rounds_of_one_server_share_a_row() -> None:
    """Percentiles are over all turns; the table has the time above the floor, and errors by kind."""
    loads = [load_of("a", 400, 500), load_of("a", 600, error="no answer")]
    row = row_of(loads, 390)
    (line,) = list(table([row]))[2:]
    assert line.split(" | ")[1:5] == ["1", "3", "500", "590"]
    assert "| 110 |" in line
    assert row.n_errors == 1
    assert list(problems(loads)) == ["a, 1 users: 1 x no answer"]
    unknown = row_of([load_of("b")], None)
    assert unknown.p50_ms is None
    assert "| - | - | - | - | - |" in list(table([unknown]))[2]


def test_costs_are_those_of_one_session() -> None:
    cost = Cost(cpu_pct=40.0, rss_mib=110.0, rss_before_mib=90.0, open_cpu_ms=12.0)
    load = LoadRun(
        target="a", n_users=50, turns=(MeasuredSentence(0, 1),), cost=cost, late_p95_ms=0, stray=0, errors=()
    )
    row = row_of([load], None)
    assert (row.cpu_pct, row.rss_session_mib, row.rss_base_mib, row.open_cpu_ms) == (0.8, 0.4, 90.0, 12.0)


def row(users: int, p50_ms: float, p95_ms: float, *, gap_share: float = 0.0, n_errors: int = 0) -> Row:
    """A row of a server without costs."""
    times = {"p50_ms": p50_ms, "p95_ms": p95_ms, "max_ms": p95_ms, "minimum_ms": None, "late_p95_ms": 0.0}
    costs = {"cpu_pct": None, "open_cpu_ms": None, "rss_base_mib": None, "rss_session_mib": None}
    return Row(server="a", users=users, turns=1, gap_share=gap_share, n_errors=n_errors, **times, **costs)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "too_many",
    [row(80, 450, 500), row(80, 400, 410, gap_share=0.05), row(80, 400, 410, n_errors=1)],
)
def test_server_carries_what_comes_before_the_first_failure(too_many: Row) -> None:
    """Later rows count no more, whatever their figures."""
    (line,) = carried([row(1, 400, 401), row(50, 405, 499), too_many, row(100, 400, 410)])
    assert line.startswith("a carries 50 sessions")
    assert list(carried([row(50, 400, 410)])) == []


def test_rows_are_read_again(tmp_path: Path) -> None:
    rows = RowFile(tmp_path / "new")
    rows.add(row(1, 400, 401))
    again = RowFile(tmp_path / "new")
    assert again.rows == rows.rows
    assert again.has("a", 1)
    assert not again.has("a", 2)
    (tmp_path / "new" / "load.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match=r"load\.jsonl: expected a row"):
        RowFile(tmp_path / "new")


def test_a_pair_is_compared_round_by_round() -> None:
    loads = [load_of("a", 400), load_of("b", 500), load_of("a", 420), load_of("b", 540)]
    assert list(compared(loads, "a", "b")) == ["a answers 110 ms earlier than b, 1 users (rounds: 100, 120)"]


async def test_the_second_part_of_admission_waits_until_there_is_room() -> None:
    """The users of the first part are leaving; other refusals are no matter of time."""
    refusals = [web.Response(status=503, headers={"Retry-After": "0"}), web.Response(status=503), None]
    n_requests = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal n_requests
        refusal = refusals[n_requests]
        n_requests += 1
        if refusal is not None:
            return refusal
        line = web.WebSocketResponse()
        await line.prepare(request)
        await line.close()
        return line

    app = web.Application()
    app.router.add_get("/", answer)
    async with TestServer(app) as server:
        target = LoadTarget(name="x", url=str(server.make_url("/")), pid=0, session={})
        await until_admitted(target)
        assert n_requests == 3
        n_requests, refusals[0] = 0, web.Response(status=401)
        with pytest.raises(ConnectionError, match="still refuses users: HTTP 401"):
            await until_admitted(target)


def test_admission_names_the_growth_and_the_refusals() -> None:
    arrivals = Arrivals([MeasuredSentence(1_000, 1_430)], [12, 20])
    arrivals.reasons["HTTP 503"], arrivals.n_admitted = 2, 1
    quiet = load_of("a", 400)
    admission = Admission(quiet, arrivals, (quiet,), (load_of("a", 410),), (FloodCounts(3, 2, {"200": 1}),))
    admitted, growth, refused, flood, flooded, failed = admission_lines(admission)
    assert admitted == "1 of 3 users were admitted; 0 of 1 turns failed"
    assert "p95 grows by 30 ms" in growth
    assert "2 x HTTP 503" in refused
    assert flood == "flood: 3 connections, 2 half-open ones, client secrets: 1 answered 200"
    assert "p95 grows by 10 ms" in flooded
    assert failed == "0 of 1 turns failed under the flood"
    nothing = Admission(load_of("a"), Arrivals(), (quiet,), (quiet,), ())
    assert "no turn was answered" in list(admission_lines(nothing))[1]


# --- cost and profile -----------------------------------------------------------------------------


def test_usage_of_a_process_that_has_ended_is_nothing() -> None:
    assert read_usage(2**22 + 1).rss_bytes == 0


def test_sampler_counts_where_the_work_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sample counts once for the function itself, and once for each that called it."""
    monkeypatch.setattr(signal, "setitimer", lambda *_: (0.0, 0.0))
    before, sampler = signal.getsignal(signal.SIGPROF), Sampler()

    def busy() -> None:
        for _ in range(3):
            signal.raise_signal(signal.SIGPROF)

    sampler.start()
    try:
        busy()
    finally:
        profile = sampler.stop()
        signal.signal(signal.SIGPROF, before)
    assert profile.n_samples == 3
    name = next(name for name in profile.own if name.endswith("busy"))
    assert (profile.own[name], profile.whole[name]) == (3, 3)
    assert max(profile.whole.values()) == 3
    lines = list(profile_lines(msgspec.convert(msgspec.to_builtins(profile), Profile), "it"))
    assert lines[0] == "it: 3 samples of the event loop's thread"
    assert any(line.endswith("| 100.0 % |") for line in lines)
    assert list(profile_lines(Profile(), "it")) == ["it: no samples"]


def test_modules_are_named_by_their_paths() -> None:
    assert module_of("/x/lib/python3.11/site-packages/aiohttp/web_ws.py") == "aiohttp.web_ws"
    assert module_of("/x/voicepipe/audio/silero.py") == "voicepipe.audio.silero"
    assert module_of("<string>") == "<string>"


async def test_flood_counts_what_it_sent(fake_server: Any) -> None:
    """All three kinds reach the server."""
    async with fake_server() as server:
        host, port = server.url.removeprefix("http://").split(":")
        flood, ended = Flood(host, int(port)), asyncio.Event()

        async def all_sent() -> bool | None:
            counts = flood.counts
            return bool(counts.connections and counts.half_open and flood.n_answers >= 2) or None

        async with asyncio.TaskGroup() as group:
            group.create_task(flood.run(ended))
            await eventually(all_sent)
            ended.set()
    assert sum(flood.counts.answers.values()) >= 2


async def test_more_than_100_users_connect_at_once() -> None:
    """aiohttp's client lets the 101st connection wait forever, unless it is told not to."""
    async with unlimited_session() as web:
        assert web.connector is not None
        assert web.connector.limit == 0
