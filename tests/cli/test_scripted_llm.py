"""A script in place of the language model, for `serve`, `talk` and `check`: it calls functions without a key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from voicepipe.cli.options import ServeOptions, TalkOptions
from voicepipe.cli.scripted_llm import scripted_llm
from voicepipe.client import SessionOptions, connect
from voicepipe.config import load
from voicepipe.errors import ConfigError
from voicepipe.testing.fakes.vendor import FakeVendor

CLINIC = """
from voicepipe.agents import Agent

agent = Agent("You answer the telephone of a clinic.", filler="One moment, please.")


@agent.tool(side_effects=False)
async def free_slots(day: str) -> list[str]:
    return ["9:00"] if day == "2026-12-01" else []
"""
PART = """
answers:
  - if: '"9:00"'
    text: Nine is free.
  - if: december
    calls: [{name: free_slots, arguments: {day: 2026-12-01}}]
"""
SCENARIO = f"""
name: Slots
scripted:{PART.replace(chr(10), chr(10) + "  ")}
steps:
  - say: A slot in December?
    expect: {{contains: nine}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With the agent, its scenario, and the script alone."""
    for name, text in (("clinic.py", CLINIC), ("slots.yaml", SCENARIO), ("part.yml", PART)):
        (tmp_path / name).write_text(text)
    return tmp_path


def fakes(vendor: FakeVendor, port: int) -> list[str]:
    """The options for the stages that are no script."""
    more = ["--set", f"providers.fake.base_url={vendor.base_url}", "--set", f"server.port={port}"]
    return ["--stt=fake/stt", "--tts=fake/tts", *more]


@pytest.mark.parametrize("script", ["slots.yaml", "part.yml"])
async def test_talk_calls_functions_without_a_key(
    voicepipe: Any, folder: Path, unused_tcp_port: int, script: str
) -> None:
    async with FakeVendor() as vendor:
        options = (*fakes(vendor, unused_tcp_port), "--llm", f"scripted/{script}")
        ran = await voicepipe("talk", "clinic.py", "--type", "A slot in December?", *options)
        other = await voicepipe("talk", "clinic.py", "--type", "Hello?", "--text", *options)
    assert ran.status == 0, ran.err
    assert "agent  Nine is free.\n" in ran.out
    assert f"NOTE: answers come from the script {script}: no language model runs.\n" in ran.err
    assert "agent  No scripted answer has an `if` that is found in 'Hello?'.\n" in other.out
    assert not vendor.llm.received


async def test_check_tries_the_script(voicepipe: Any, folder: Path, unused_tcp_port: int) -> None:
    async with FakeVendor() as vendor:
        options = fakes(vendor, unused_tcp_port)
        ran = await voicepipe("check", "clinic.py", *options, "--llm", "scripted/slots.yaml")
    assert ran.status == 0, ran.out
    assert ran.out.startswith("NOTE: answers come from the script slots.yaml: no language model runs.\n")
    assert "ok      llm  scripted/slots.yaml" in ran.out


async def test_serve_takes_its_options_with_the_address_of_the_script(folder: Path) -> None:
    """`serve` is no more than this and the server."""
    from voicepipe.wiring import running

    said: list[str] = []
    async with FakeVendor() as vendor:
        more = (f"providers.fake.base_url={vendor.base_url}", f"server.data_dir={folder}", "server.drain_ms=0")
        options = ServeOptions(
            command="serve",
            file=folder / "clinic.py",
            port="0",
            stt="fake/stt",
            tts="fake/tts",
            set=more,
            llm=f"scripted/{folder}/slots.yaml",
        )
        with scripted_llm(options, said.append) as scripted:
            settings = load(overrides=scripted.overrides(), environ={}, folder=folder, agents=scripted.agents())
            text = SessionOptions(text_only=True)
            async with running(settings) as server, connect(server.base_url, session_options=text) as call:
                answer = await call.text_turn("A slot in December?")
    assert answer.agent_text == "Nine is free."
    assert said == [f"NOTE: answers come from the script {folder}/slots.yaml: no language model runs."]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("steps: []", r"steps: unknown field; expected one of answers"),
        ("answers: []", r"answers: expected at least one answer of the scripted LLM, got none"),
        ("scripted: {stt: true}", r"scripted.answers: expected at least one answer"),
        ("answers: [{if: '('}]", r"answers\[0\].if: expected a regular expression"),
        ("answers: [{if: a}]", r"answers\[0\]: expected `text` or `calls`, got neither"),
    ],
)
def test_a_file_that_is_no_script_is_refused_with_its_place(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with (
        pytest.raises(ConfigError, match=why),
        scripted_llm(TalkOptions(command="talk", llm=f"scripted/{path}"), print),
    ):
        pass


def test_another_models_options_stay_as_they_are() -> None:
    options = TalkOptions(command="talk", llm="scripted/llm")
    with scripted_llm(options, print) as scripted:
        assert scripted is options


async def test_a_server_that_runs_takes_no_script(voicepipe: Any) -> None:
    ran = await voicepipe("talk", "--type", "Hello?", "--url", "http://127.0.0.1:1", "--llm", "scripted/slots.yaml")
    assert (ran.status, ran.out) == (2, "")
    assert "--url: expected no script, since that server has its own LLM; got scripted/slots.yaml\n" in ran.err


async def test_functions_that_the_llm_cannot_call_are_a_warning_of_every_command(
    voicepipe: Any, folder: Path, unused_tcp_port: int
) -> None:
    """As of `serve`. The local LLM is not loaded here: its place is a file that is not there."""
    warning = "WARNING: agent default has functions (free_slots), and gguf/"
    async with FakeVendor() as vendor:
        options = (*fakes(vendor, unused_tcp_port), "--llm", "nothing.gguf")
        talked = await voicepipe("talk", "clinic.py", "--type", "Hello?", *options)
        checked = await voicepipe("check", "clinic.py", *options)
    assert warning in talked.err
    assert warning in checked.out
