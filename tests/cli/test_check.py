"""What is in force, and does every stage answer?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.local.tiny_onnx import write_model
from voicepipe.testing.fakes.cartesia_tts import KEY as CARTESIA_KEY
from voicepipe.testing.fakes.cartesia_tts import FakeCartesia
from voicepipe.testing.fakes.cues import LlmCue, Status, SttCue, TtsCue
from voicepipe.testing.fakes.vendor import FakeVendor


def write_settings(folder: Path, vendor: FakeVendor, more: str = "") -> None:
    (folder / "voicepipe.toml").write_text(
        f"""
        [providers.fake]
        base_url = "{vendor.base_url}"
        api_key_env = "FAKE_KEY"
        [agents.default]
        stt = "fake/stt"
        llm = "fake/llm"
        tts = "fake/tts"
        {more}
        """
    )


async def test_every_stage_is_tried_once_and_secrets_stay_hidden(voicepipe: Any, tmp_path: Path) -> None:
    async with FakeVendor() as vendor:
        write_settings(tmp_path, vendor, '[agents.support]\nllm = "fake/better"')
        vendor.stt.cue(SttCue(text="a quick fox"))
        vendor.llm.cue(LlmCue(tokens=("Good", " day.")))
        ran = await voicepipe("check", FAKE_KEY="sk-not-to-be-seen")
        assert (ran.status, ran.err) == (0, ""), ran.out
        assert [len(vendor.stt.received), len(vendor.llm.received), len(vendor.tts.received)] == [1, 2, 1]
        assert vendor.llm.received[0].headers["Authorization"] == "Bearer sk-not-to-be-seen"
    assert "sk-not-to-be-seen" not in ran.out
    assert "providers.fake.api_key " in ran.out
    assert "providers.groq" not in ran.out, "vendors that nobody uses would fill the screen"
    assert "<- $FAKE_KEY" in ran.out
    assert f"<- {tmp_path / 'voicepipe.toml'}" in ran.out
    assert "ok      tts  fake/tts  first after " in ran.out
    assert 'transcribed "a quick fox"' in ran.out
    assert "Good day." in ran.out
    results, _, settings = ran.out.partition("\n\nsettings in force:\n")
    assert results.endswith("\nall stages answer"), "what was asked for comes first"
    assert all(line.startswith("ok ") for line in results.splitlines()[:-2])
    assert "providers.fake.base_url" in settings


async def test_failed_stage_reports_its_reason_and_others_go_on(voicepipe: Any, tmp_path: Path) -> None:
    async with FakeVendor() as vendor:
        write_settings(tmp_path, vendor)
        vendor.tts.cue(*[TtsCue(fault=Status(403, "this voice is not for you"))] * 3)
        ran = await voicepipe("check", "--agent", "default", FAKE_KEY="k")
    assert ran.status == 1
    failed = next(line for line in ran.out.splitlines() if line.startswith("FAILED"))
    assert "tts  fake/tts" in failed
    assert "this voice is not for you" in failed
    assert "answered (a tone: there was no speech)" in ran.out
    assert "ok      llm  fake/llm" in ran.out
    assert "\n1 stage failed\n\nsettings in force:\n" in ran.out


async def test_an_agent_that_is_not_there_is_refused(voicepipe: Any) -> None:
    ran = await voicepipe("check", "--agent", "nobody")
    assert ran.status == 2
    assert ran.err == "voicepipe: --agent: expected one of default, got 'nobody'\n"


async def test_sockets_of_streaming_voices_are_shared(voicepipe: Any, tmp_path: Path) -> None:
    """As in a server: an agent's second voice at the same vendor finds the socket of the first."""
    async with FakeVendor() as vendor, FakeCartesia() as cartesia:
        more = f"""
            [providers.cartesia]
            base_url = "{cartesia.base_url}"
            api_key_env = "CARTESIA_API_KEY"
            [agents.other]
            tts = "cartesia/sonic-3"
            [agents.third]
            tts = "cartesia/sonic-3"
            voice = "a0e99841-438c-4a64-b679-ae501e7d6091"
            """
        write_settings(tmp_path, vendor, more)
        ran = await voicepipe("check", FAKE_KEY="k", CARTESIA_API_KEY=CARTESIA_KEY)
        assert ran.status == 0, ran.out
        assert ran.out.count("ok      tts  cartesia/sonic-3") == 2
        assert len(cartesia.calls) == 1


async def test_the_agents_of_a_python_file_are_tried(voicepipe: Any, tmp_path: Path) -> None:
    program = 'from voicepipe.agents import Agent\n\nagent = Agent("Be brief.", name="clinic", llm="fake/better")\n'
    (tmp_path / "clinic.py").write_text(program)
    async with FakeVendor() as vendor:
        write_settings(tmp_path, vendor)
        ran = await voicepipe("check", "clinic.py", "--agent", "clinic", FAKE_KEY="k")
    assert ran.status == 0, ran.err
    assert "llm  fake/better  " in ran.out


async def test_smart_turn_is_tried(voicepipe: Any, tmp_path: Path) -> None:
    """Once for each file, with the sentence that was synthesized. One that can't be read fails, with its setting."""
    write_model(tmp_path / "finished.onnx", bias=9.0)
    more = """
        smart_turn = "finished.onnx"
        [agents.support]
        [agents.sales]
        smart_turn = "none.onnx"
        """
    async with FakeVendor() as vendor:
        write_settings(tmp_path, vendor, more)
        ran = await voicepipe("check", "--set", f"server.data_dir={tmp_path / 'd'}", FAKE_KEY="k")
    assert ran.status == 1
    lines = [line for line in ran.out.splitlines() if "  endpoint  " in line]
    assert len(lines) == 2
    assert lines[0].startswith("ok      endpoint  finished.onnx  first after ")
    assert lines[0].endswith("probability of the end: 1.00")
    assert lines[1].startswith("FAILED  endpoint  none.onnx  ")
    assert "smart_turn: expected the ONNX file of smart-turn, got " in lines[1]
    assert "ok      llm  fake/llm" in ran.out
