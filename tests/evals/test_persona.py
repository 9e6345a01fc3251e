"""Language models of the eval itself: one plays the user, one judges."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from voicepipe.cli import main
from voicepipe.errors import StageError
from voicepipe.evals.persona import JUDGE_RULES, PERSONA_RULES, NamedModel, Persona, judged
from voicepipe.evals.speech import StepSpeech
from voicepipe.ports.model import Content, Text
from voicepipe.testing.fakes.cues import LlmCue, Status, tokens
from voicepipe.testing.fakes.model import FakeModel
from voicepipe.testing.fakes.vendor import FakeVendor


def model(text: str) -> tuple[FakeModel, NamedModel]:
    fake = FakeModel(LlmCue(tokens=tokens(text)))
    return fake, NamedModel(fake, "m")


async def speak(words: str) -> StepSpeech:
    raise AssertionError(words)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("Yes.", ""),
        ("**yes**", ""),
        ("no: it was rude", "it was rude"),
        ("No", "the judge's answer is no"),
        ("Yesterday was fine", "expected `yes` or `no` from the judge, got 'Yesterday was fine'"),
        ("", "expected `yes` or `no` from the judge, got ''"),
    ],
)
async def test_a_judge_answers_yes_or_gives_a_reason(answer: str, why: str) -> None:
    fake, named = model(answer)
    assert await judged(named, "User: Hello", "It is polite.") == why
    (received,) = fake.script.received
    system, user = received.question.messages
    assert system == Content("system", (Text(JUDGE_RULES),))
    assert isinstance(user, Content)
    assert user.parts == (Text("The conversation:\nUser: Hello\n\nThe statement: It is polite."),)


async def test_a_judge_that_fails_meets_nothing() -> None:
    fake = FakeModel(LlmCue(fault=Status(500, "out of order")), name="fake/judge")
    assert (await judged(NamedModel(fake, "m"), "", "x")).startswith("the judge failed: llm by fake/judge")


async def test_a_persona_hangs_up_by_its_word() -> None:
    _, named = model("hang up.")
    assert await Persona(named, speak).next_words("a person", []) == ""


async def test_a_persona_answers_the_agent() -> None:
    fake, named = model("For four.")
    dialogue = [("assistant", "A table."), ("user", "For how many?")]
    assert await Persona(named, speak).next_words("books a table", dialogue) == "For four."
    messages = fake.script.received[0].question.messages
    expected = [("system", f"{PERSONA_RULES}books a table"), ("user", "(The call begins.)"), *dialogue]
    assert [(each.role, each.parts) for each in messages if isinstance(each, Content)] == [
        (role, (Text(text),)) for role, text in expected
    ]


async def test_a_persona_that_fails_raises() -> None:
    fake = FakeModel(LlmCue(fault=Status(500, "out of order")))
    with pytest.raises(StageError):
        await Persona(NamedModel(fake, "m"), speak).next_words("", [])


PLAYED = """
scripted:
  answers:
    - if: four
      text: Table seven is free.
    - text: For how many people?
models: {judge: fake/judge, persona: fake/persona}
steps:
  - persona: {instructions: books a table, turns: 3}
    expect: {contains: [how many, table seven], answers: 2, latency_ms: 20000}
expect: {judge: A table was found.}
"""


def played(request: dict[str, Any]) -> LlmCue:
    """Return the answer of whichever of the two models is meant."""
    if request["model"] == "judge":
        text = "yes" if "Table seven" in str(request["messages"]) else "no: none was found"
        return LlmCue(tokens=(text,))
    n_said = sum(message["role"] == "assistant" for message in request["messages"])
    return LlmCue(tokens=tokens(("I would like a table.", "For four people, please.", "HANG UP")[n_said]))


@pytest.mark.slow
@pytest.mark.parametrize("time", ["real", "virtual"])
async def test_a_persona_talks_to_the_agent_and_a_judge_judges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], time: str
) -> None:
    """The persona speaks with the local TTS."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.yaml").write_text(PLAYED)
    async with FakeVendor() as vendor:
        vendor.llm.usual = played
        (tmp_path / "voicepipe.toml").write_text(f'[providers.fake]\nbase_url = "{vendor.base_url}"\n')
        status = await asyncio.to_thread(main, ["eval", "a.yaml", "--time", time])
        assert status == 0, capsys.readouterr().out
        vendor.llm.usual = LlmCue(tokens=("HANG UP",))
        assert await asyncio.to_thread(main, ["eval", "a.yaml", "--time", time]) == 1
    out = capsys.readouterr().out
    assert "contains: expected 'how many'" in out
    assert "judge: expected 'A table was found.', got: expected `yes` or `no`" in out


@pytest.mark.slow
async def test_a_running_server_is_judged(fake_server: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("steps: [{type: Hello, expect: {contains: fine then, outcome: completed}}]\n")
    async with fake_server() as server:
        server.vendor.llm.usual = LlmCue(tokens=("Fine", " then."))
        assert await asyncio.to_thread(main, ["eval", str(path), "--url", server.url]) == 0
        server.vendor.llm.usual = LlmCue(tokens=("No", " way."))
        assert await asyncio.to_thread(main, ["eval", str(path), "--url", server.url]) == 1
    assert "contains: expected 'fine then' in the answer, got 'No way.'" in capsys.readouterr().out


async def test_no_server_has_a_status_of_its_own(tmp_path: Path, unused_tcp_port: int) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("steps: [{type: Hello, expect: {answers: 1}}]\n")
    assert await asyncio.to_thread(main, ["eval", str(path), "--url", f"127.0.0.1:{unused_tcp_port}"]) == 3
