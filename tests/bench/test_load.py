"""The load bench: users measure what they receive, providers have fixed delays, and a whole run prints its table."""

from __future__ import annotations

import asyncio
import csv
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.measure import load
from tests.measure.load_providers import Delays
from tests.measure.load_report import compared, problems, table
from tests.measure.load_run import Crowd, Load, Target
from tests.measure.load_transcriber import DeepgramStream
from tests.measure.load_user import FRAME_SAMPLES, LOUD, RATE_HZ, Turn, append_event, sentence, sound_of
from tests.measure.wire import config
from voicepipe.audio.files import read_sound
from voicepipe.audio.samples import Samples, silence, to_pcm
from voicepipe.protocol.inbound import AudioAppended, read
from voicepipe.testing.fakes.cues import LlmCue, tokens

VOICE_MS = 200
TONE = bytes(range(1, 97)) * 10  # 20 ms


def voice(duration_ms: int) -> Samples:
    """Something loud."""
    return (8_000 * np.sin(np.arange(duration_ms * RATE_HZ // 1_000) / 10)).astype(np.int16)


def load_of(target: str, *latencies_ms: int, error: str = "") -> Load:
    """A run of one user."""
    turns = tuple(Turn(1_000, 1_000 + ms, error=error) for ms in latencies_ms)
    return Load(target=target, n_users=1, turns=turns, cost=None, late_p95_ms=0, stray=0, errors=())


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
    turn = Turn(1_000)
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


# --- the providers --------------------------------------------------------------------------------


async def test_transcriber_counts_utterances() -> None:
    """A final text by itself after the voice, one at once on request, and an empty one when nothing is left."""
    said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def say(message: str) -> None:
        said.put_nowait(json.loads(message))

    stream = DeepgramStream(say, 16_000, itertools.count(1), hold_ms=10)
    async with asyncio.TaskGroup() as group:
        speaking = group.create_task(stream.say_finals())
        for frame in (voice(20), silence(320)):
            await stream.receive(to_pcm(frame))
        interim, final = await said.get(), await said.get()
        await stream.receive(to_pcm(voice(20)))
        stream.order("Finalize")
        _, finalized = await said.get(), await said.get()
        stream.order("Finalize")
        nothing = await said.get()
        speaking.cancel()
    texts = [each["channel"]["alternatives"][0]["transcript"] for each in (interim, final, finalized, nothing)]
    assert texts == ["where is number 1", "where is number 1", "where is number 2", ""]
    assert [each["from_finalize"] for each in (final, finalized, nothing)] == [False, True, True]
    assert finalized["start"] == final["start"] + final["duration"]


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
        target = Target(name="it", url=url, pid=None, session=load.session(200))
        done = await Crowd(target, sentence(read_sound(question, RATE_HZ)), 2, 2).run(500)
    assert [turn.error for turn in done.turns] == [""] * 4
    assert all(turn.latency_ms is not None and turn.latency_ms > 100 for turn in done.turns)
    assert (done.stray, done.errors) == (0, ())


async def test_a_server_that_is_not_there_is_named() -> None:
    target = Target(name="nobody", url="ws://127.0.0.1:1/v1/realtime", pid=None, session=load.session(200))
    with pytest.raises(ConnectionError, match="nobody at ws:"):
        await Crowd(target, [voice(20)], 1, 1).run(0)


@pytest.mark.slow
def test_a_whole_run_starts_what_it_needs(
    question: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Providers and a server of its own, a row for it, and a line in the CSV for each turn."""
    monkeypatch.chdir(Path(load.__file__).parents[2])
    file = tmp_path / "load.csv"
    assert load.main(["--sound", str(question), "--turns", "1", "--csv", str(file)]) == 0
    _, _, row, _, minimum = capsys.readouterr().out.splitlines()
    assert row.startswith("| voicepipe | 1 | 1 | ")
    assert minimum.startswith("minimum: 390 ms")
    (turn,) = csv.DictReader(file.read_text().splitlines())
    assert int(turn["latency_ms"]) >= Delays().minimum_ms(200) - 20
    assert (turn["server"], turn["error"]) == ("voicepipe", "")


def test_rounds_of_one_server_share_a_row() -> None:
    """Percentiles are over all turns; the table has the time above the floor, and errors by kind."""
    loads = [load_of("a", 400, 500), load_of("b", 700), load_of("a", 600, error="no answer")]
    a, b = list(table(loads, 390))[2:]
    assert a.split(" | ")[1:5] == ["1", "3", "500", "590"]
    assert "| 110 |" in a
    assert "| 310 |" in b
    assert list(problems(loads)) == ["a, 1 users: 1 x no answer"]


def test_a_pair_is_compared_round_by_round() -> None:
    loads = [load_of("a", 400), load_of("b", 500), load_of("a", 420), load_of("b", 540)]
    assert list(compared(loads, "a", "b")) == ["a is heard 110 ms earlier than b, 1 users (rounds: 100, 120)"]
