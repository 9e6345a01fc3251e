"""One turn from the terminal."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from voicepipe.audio.files import read_sound
from voicepipe.audio.samples import first_audible
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.cli import main
from voicepipe.cli.talk import print_answer
from voicepipe.client import events as e
from voicepipe.client.turn_result import TurnCollector
from voicepipe.testing.fakes.cues import CallCue, Hold, LlmCue, Status, SttCue
from voicepipe.testing.fakes.vendor import FakeVendor

CLINIC = """
from voicepipe.agents import Agent

agent = Agent("Be brief.", first_speaker="agent", greeting="Hello.")


@agent.tool(side_effects=False)
async def free_times() -> list[str]:
    return ["9:00"]
"""


async def test_a_recording_is_answered_and_the_turn_drawn(
    fake_server: Any, voicepipe: Any, question: Path, tmp_path: Path
) -> None:
    async with fake_server() as server:
        # However often: on a busy machine the recording may come with a gap, and is transcribed again.
        server.vendor.stt.usual = SttCue(text="No.")
        server.vendor.llm.usual = LlmCue(tokens=("Fine", " then."))
        ran = await voicepipe("talk", question, "--out", "answer.wav", "--url", server.url)
    assert ran.status == 0, ran.err
    assert "you    No.\n" in ran.out
    assert "agent  Fine then.\n" in ran.out
    assert "ms from your last voiced sample to the answer, measured here" in ran.out
    assert "answer.wav" in ran.out
    assert all(stage in ran.out for stage in ("endpoint", "llm_ttft", "first_clause", "tts_ttfb", "playback"))
    assert "waited for: silence " in ran.out
    assert first_audible(read_sound(tmp_path / "answer.wav", 24_000)) is not None


async def test_a_server_is_started_when_none_is_there(
    voicepipe: Any, question: Path, tmp_path: Path, unused_tcp_port: int
) -> None:
    """On a free port, with the settings' own models; it is gone when the call is over."""
    async with FakeVendor() as vendor:
        (tmp_path / "voicepipe.toml").write_text(
            f"""
            [server]
            port = {unused_tcp_port}
            drain_ms = 0
            [providers.fake]
            base_url = "{vendor.base_url}"
            [agents.default]
            stt = "fake/stt"
            llm = "fake/llm"
            tts = "fake/tts"
            """
        )
        ran = await voicepipe("talk", question)
        assert ran.status == 0, ran.err
        assert f"no server at http://127.0.0.1:{unused_tcp_port}: starting one" in ran.err
        assert "agent  Hello there, user." in ran.out
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", unused_tcp_port)
        named = await voicepipe("talk", question, "--text", "--llm", "fake/other")
        assert "starting a server for this call" in named.err
        assert vendor.llm.received[-1].question["model"] == "other"


async def test_the_running_server_is_found(fake_server: Any, voicepipe: Any, question: Path) -> None:
    async with fake_server() as server:
        port = server.url.rpartition(":")[2]
        ran = await voicepipe("talk", question, "--text", VOICEPIPE_SERVER__PORT=port)
        assert ran.status == 0, ran.err
        assert "starting" not in ran.err
        assert len(server.vendor.llm.received) == 1
        assert not server.vendor.tts.received


async def test_a_typed_question_is_answered(fake_server: Any, voicepipe: Any, question: Path, tmp_path: Path) -> None:
    async with fake_server() as server:
        server.vendor.llm.usual = LlmCue(tokens=("It is", " Paris."))
        ran = await voicepipe("talk", "--type", "What is the capital?", "--out", "answer.wav", "--url", server.url)
        assert ran.status == 0, ran.err
        assert ran.out.startswith("you    What is the capital?\nagent  It is Paris.\n")
        assert "ms from your message to the answer, measured here" in ran.out
        assert first_audible(read_sound(tmp_path / "answer.wav", 24_000)) is not None
        both = await voicepipe("talk", question, "--type", "What?", "--url", server.url)
        empty = await voicepipe("talk", "--type", " ", "--url", server.url)
    assert (both.status, empty.status) == (2, 2)
    assert "--type: expected no recording beside a typed question" in both.err
    assert "--type: expected a question, got an empty text" in empty.err


def test_a_filler_stands_before_the_answer() -> None:
    """With both times: that to the first sound, and that to the answer."""
    filler = e.FILLER + "1"
    collector = TurnCollector()
    loud = bytes(2) + b"\x40\x1f" * 4_800
    for position_ms, event in (
        (500, e.SpeechStarted(400)),
        (1_500, e.SpeechStopped(1_000)),
        (1_600, e.TranscriptionCompleted("What is the capital?")),
        (1_700, e.ReplyStarted("r", "turn")),
        (1_800, e.ReplyText("r", "One moment, please.", filler)),
        (2_000, e.ReplyAudio("r", loud, filler)),
        (5_000, e.ReplyText("r", "The capital is Paris.", "item_1")),
        (6_000, e.ReplyAudio("r", loud, "item_1")),
        (6_100, e.ReplyEnded("r", "completed", "")),
    ):
        collector.handle(event, position_ms)
    answer = collector.answer()
    assert answer is not None
    out = io.StringIO()
    print_answer(answer, Console(file=out, width=200))
    assert out.getvalue() == (
        "you    What is the capital?\nagent  One moment, please.\nagent  The capital is Paris.\n\n"
        "1000 ms to the first sound, 5000 ms from your last voiced sample to the answer, measured here\n"
    )


async def test_a_recording_is_answered_with_a_tools_result(
    voicepipe: Any, question: Path, tmp_path: Path, unused_tcp_port: int
) -> None:
    """By an agent of a Python file, which speaks first."""
    (tmp_path / "clinic.py").write_text(CLINIC)

    def answer(request: Any) -> LlmCue:
        if request["messages"][-1]["role"] == "tool":
            return LlmCue(tokens=("At", " nine."))
        return LlmCue(calls=(CallCue("free_times", ("{}",), "c1"),), tokens=())

    async with FakeVendor() as vendor:
        vendor.llm.usual = answer
        models = [f"--{stage}=fake/{stage}" for stage in ("stt", "llm", "tts")]
        models += ["--set", f"providers.fake.base_url={vendor.base_url}", "--set", f"server.port={unused_tcp_port}"]
        ran = await voicepipe("talk", "clinic.py", question, *models)
    assert ran.status == 0, ran.err
    hello, you, *rest = ran.out.splitlines()
    assert hello.startswith("agent  Hello")
    assert you.startswith("you    ")
    assert rest[:2] == ["calls  free_times({}), the server's", "agent  At nine."]


async def test_truncated_answer_is_marked(fake_server: Any, voicepipe: Any, question: Path) -> None:
    async with fake_server() as server:
        server.vendor.llm.cue(LlmCue(finish="length"))
        ran = await voicepipe("talk", question, "--text", "--url", server.url)
    assert ran.status == 0
    assert "(cut short: max_output_tokens)" in ran.out


async def test_failed_answer_names_the_provider(fake_server: Any, voicepipe: Any, question: Path) -> None:
    async with fake_server() as server:
        server.vendor.llm.usual = LlmCue(fault=Status(500, "out of order"))  # the guess, and the turn itself
        ran = await voicepipe("talk", question, "--url", server.url)
    assert ran.status == 1
    assert "agent  Sorry, I can't answer that right now. Please ask me again.\n" in ran.out
    assert "the answer failed: " in ran.err
    assert "fake/llm" in ran.err
    assert "Traceback" not in ran.err


async def test_an_llm_without_output_is_named_after_the_apology(
    voicepipe: Any, tmp_path: Path, unused_tcp_port: int
) -> None:
    """A typed question to an agent that speaks first and has a filler; its apology's audio is kept."""
    (tmp_path / "clinic.py").write_text(CLINIC.replace('"Hello."', '"Hello.", filler="One moment, please."'))
    async with FakeVendor() as vendor:
        vendor.llm.usual = LlmCue(hold=Hold())
        models = [f"--{stage}=fake/{stage}" for stage in ("stt", "llm", "tts")]
        models += ["--set", f"providers.fake.base_url={vendor.base_url}", "--set", f"server.port={unused_tcp_port}"]
        models += ["--set", "deadlines.first_output_ms=1500", "--out", "answer.wav"]
        ran = await voicepipe("talk", "clinic.py", "--type", "When are you free?", *models)
    assert ran.status == 1
    assert "agent  Sorry, I can't answer that right now. Please ask me again.\n" in ran.out
    assert "the answer failed: " in ran.err
    assert "no output within 1500 ms" in ran.err
    assert first_audible(read_sound(tmp_path / "answer.wav", 24_000)) is not None


async def test_key_is_required_and_accepted(fake_server: Any, voicepipe: Any, question: Path) -> None:
    async with fake_server() as server:
        key = ApiKeys(server.folder / "data").create("acme", now_s=1).text
        refused = await voicepipe("talk", question, "--url", server.url)
        assert refused.status == 3
        assert refused.err.startswith("voicepipe: refused with HTTP 401: Expected a credential, got none.")
        assert "--key, or in $VOICEPIPE_KEY" in refused.err
        taken = await voicepipe("talk", question, "--text", "--url", server.url, VOICEPIPE_KEY=key)
        assert taken.status == 0, taken.err
        assert "waited for" in taken.out


def test_what_is_wrong_with_the_files_or_the_address_is_said(
    question: Path,
    tmp_path: Path,
    unused_tcp_port: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In this process: to start one takes 0.7 s of CPU."""
    (tmp_path / "words.wav").write_text("no sound")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    expected = "expected a sound file (wav, flac, ogg, mp3)"
    for arguments, status, why in (
        (["nothing.wav"], 2, f"{expected}, got nothing.wav: No such file or directory\n"),
        (["."], 2, f"{expected}, got .: Is a directory\n"),
        (["words.wav"], 2, f"{expected}, got words.wav: Format not recognised."),
        ([question, "--out", "no/folder/answer.wav"], 2, "--out: expected a file in a folder that is there"),
        ([question, "--url", "ftp://h"], 2, "--url: expected an address such as ws://"),
        ([question, "--url", f"127.0.0.1:{unused_tcp_port}"], 3, "no server answers at http://127.0.0.1"),
    ):
        got = main(["talk", *map(str, arguments)])
        out, err = capsys.readouterr()
        assert (got, out) == (status, ""), err
        assert err.startswith(f"voicepipe: {why}")
        assert "Traceback" not in err
