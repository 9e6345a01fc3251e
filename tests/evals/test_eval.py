"""`voicepipe eval` against servers with scripted models: what must pass passes, and what must fail fails."""

from __future__ import annotations

import asyncio
from pathlib import Path
from xml.etree import ElementTree

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.docs import ROOT, code
from voicepipe.cli import main
from voicepipe.evals.scenario import read_scenario
from voicepipe.testing.fakes.cues import LlmCue
from voicepipe.testing.fakes.vendor import FakeVendor

HERE = Path(__file__).parent

FAILING = {
    "wrong_answer": "step 1 (types: When are you open?): contains: expected 'nine to five' in the answer",
    "late_answer": "step 1 (Please call Stella.): latency_ms: expected at most 1000, got ",
    "no_tool": "step 1 (types: A table for four): tools: expected find_table(people=4), got no call",
    "wrong_arguments": "step 1 (types: For four): tools: expected find_table(people=4), got find_table(people=2)",
    "failed_answer": "step 1 (types: Hello): the answer failed: scripted/llm: HTTP 400",
    "loop": "step 1 (types: Please cancel it): called cancel 51 times",
    "no_greeting": "step 1 (listens): expected an answer within 700 ms, got none: the agent 'default' speaks first",
    "no_interruption": "step 2 (types: More): expected to act 20000 ms into the agent's audio, got an answer that did",
    "no_answer": "step 1 (types: Hello): expected an answer within 700 ms, got an answer that did not end",
}
"""Scenario -> its first failure."""

TIMES = ("real", "virtual")


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder and home of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("time", TIMES)
def test_the_scenarios_pass(own_folder: Path, capsys: pytest.CaptureFixture[str], time: str) -> None:
    """Interruption, hesitation, a tool, typed text, hanging up: over the whole server, in real and virtual time."""
    # The hesitation's 420 ms stay below the earliest soft answer, 560 ms, also where words come late.
    longer = ["--set", "agents.default.silence_ms=800"]
    status = main(["eval", str(HERE / "scenarios"), "--html", "e.html", "--junit", "e.xml", "--time", time, *longer])
    out = capsys.readouterr().out
    assert status == 0, out
    assert (own_folder / "e.html").read_text().count("<audio ") == 6
    (suite,) = ElementTree.fromstring((own_folder / "e.xml").read_bytes())
    assert (suite.get("tests"), suite.get("failures")) == ("6", "0")
    assert not list(own_folder.glob(".local/**/*.db"))  # turns of evals are no users' turns


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("time", TIMES)
def test_each_wrong_agent_fails(own_folder: Path, capsys: pytest.CaptureFixture[str], time: str) -> None:
    """An eval that cannot fail would be worth nothing."""
    assert main(["eval", str(HERE / "failing"), "--runs", "2", "--junit", "e.xml", "--time", time]) == 1
    (suite,) = ElementTree.fromstring((own_folder / "e.xml").read_bytes())
    failures = {Path(case.get("classname") or "").stem: case.findtext("failure") or "" for case in suite}
    assert failures.keys() == FAILING.keys()
    for name, first in FAILING.items():
        assert failures[name].startswith(f"run 1, {first}"), failures[name]
        assert f"run 2, {first}" in failures[name]
    assert "0 of 2" in capsys.readouterr().out


SILENCE = """
scripted:
  answers:
    - {if: hello, text: Good morning., after_ms: 800}
    - {if: more, text: There is more., after_ms: 100, token_ms: 40}
steps:
  - {type: Hello, expect: {contains: Good morning, latency_ms: LATENCY}}
  - wait_ms: 60000
  - {type: More, expect: {contains: more, latency_ms: 260}}
"""


@pytest.mark.slow
def test_latencies_in_virtual_time_are_exact(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """800 ms to the LLM's first token, 10 ms to its second, which ends the sentence, and 80 ms to the voice; then 100
    ms, twice 40 ms and 80 ms. A minute of silence takes a minute of virtual time.
    """
    Path("exact.yaml").write_text(SILENCE.replace("LATENCY", "890"))
    Path("less.yaml").write_text(SILENCE.replace("LATENCY", "889"))
    status = main(["eval", "exact.yaml", "less.yaml", "--time", "virtual", "--junit", "e.xml", "--html", "e.html"])
    out = capsys.readouterr().out
    assert status == 1
    assert "step 1 (types: Hello): latency_ms: expected at most 889, got 890" in out
    assert out.count("expected") == 1, out
    assert "time)" in out, "the table says which"
    assert (own_folder / "e.html").read_text().count("1 of 1 runs passed, in virtual time") == 1
    (suite,) = ElementTree.fromstring((own_folder / "e.xml").read_bytes())
    for case in suite:
        assert case.find("properties/property[@name='time'][@value='virtual']") is not None
        assert 60 <= float(case.get("time") or 0) < 90


@pytest.mark.slow
def test_two_runs_in_virtual_time_are_the_same(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In every latency and every sample, though the user interrupts."""
    assert main(["eval", str(HERE / "scenarios"), "--time", "virtual", "--runs", "2", "--html", "e.html"]) in (0, 1)
    capsys.readouterr()
    runs = [
        each.partition("<h2>")[0].partition("</h3>")[2].replace("</html>", "").strip()
        for each in (own_folder / "e.html").read_text().split("<h3>Run ")[1:]
    ]
    assert len(runs) == 12
    assert runs[0::2] == runs[1::2]


@pytest.mark.slow
@pytest.mark.parametrize("time", TIMES)
def test_the_worked_scenario_passes_as_the_page_has_it(
    own_folder: Path, capsys: pytest.CaptureFixture[str], time: str
) -> None:
    """Its user speaks with the local TTS. In real time its bound of the latency would measure this machine."""
    (worked,) = code("yaml", (ROOT / "web/docs/evals.md").read_text(encoding="utf-8"))
    if time == "real":
        assert "latency_ms: 2500" in worked
        worked = worked.replace("latency_ms: 2500", "latency_ms: 60000")
    (own_folder / "table.yaml").write_text(worked)
    assert len(read_scenario(Path("table.yaml")).steps) == 4
    status = main(["eval", "table.yaml", "--time", time])
    out = capsys.readouterr().out
    assert status == 0, out


REAL = """
scripted:
  stt: true
  answers: []
steps:
  - {type: Hello, expect: {contains: Good morning, latency_ms: 60000}}
  - wait_ms: 60000
  - {type: And now, expect: {contains: Good morning}}
"""


@pytest.mark.slow
async def test_a_real_llm_takes_its_time_and_the_clock_jumps_over_the_rest(
    own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its latency is at least what it took. A minute between two questions is a virtual one."""
    (own_folder / "real.yaml").write_text(REAL)
    async with FakeVendor() as vendor:
        vendor.llm.usual = LlmCue(tokens=("Good ", "morning."), ttft_ms=200)
        settings = ["--set", f"providers.fake.base_url={vendor.base_url}", "--set", "agents.default.llm=fake/llm"]
        arguments = ["eval", "real.yaml", "--time", "virtual", "--junit", "e.xml", *settings]
        status = await asyncio.to_thread(main, arguments)
        out = capsys.readouterr().out
        assert status == 0, out
        (suite,) = ElementTree.fromstring((own_folder / "e.xml").read_bytes())
        assert float(suite[0].get("time") or 0) >= 60
        (own_folder / "real.yaml").write_text(REAL.replace("latency_ms: 60000", "latency_ms: 200"))
        assert await asyncio.to_thread(main, arguments) == 1
    assert "latency_ms: expected at most 200, got " in capsys.readouterr().out


OVER_HTTP = """
scripted:
  answers:
    - {if: free, calls: [{name: free_times, arguments: {day: Friday}}]}
    - {if: half past ten, text: Half past ten is free.}
steps:
  - {type: What is free, expect: {tools: [{name: free_times}], contains: half past ten}}
"""


@pytest.mark.slow
async def test_a_tool_over_http_takes_its_time(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In virtual time too, the function's server is asked, and the clock does not jump over its answer."""
    (own_folder / "tool.yaml").write_text(OVER_HTTP)

    async def answer(_: web.Request) -> web.Response:
        await asyncio.sleep(0.1)
        return web.Response(text="half past ten")

    app = web.Application()
    app.router.add_get("/times/{day}", answer)
    async with TestServer(app) as server:
        options = {"method": "GET", "url": f"{server.make_url('/times/')}{{{{day}}}}", "description": "x"}
        (own_folder / "voicepipe.toml").write_text(
            '[tools.free_times]\nside_effects = false\n[tools.free_times.parameters.day]\ndescription = "x"\n'
        )
        settings = [f"--set=tools.free_times.{name}={value}" for name, value in options.items()]
        arguments = ["eval", "tool.yaml", "--time", "virtual", *settings, "--set", "agents.default.tools=free_times"]
        status = await asyncio.to_thread(main, arguments)
    out = capsys.readouterr().out
    assert status == 0, out


LOCAL = """
scripted:
  stt: false
  tts: false
  answers:
    - {if: table, text: On which day would you like to come.}
    - {if: friday, text: Table seven is free.}
steps:
  - say: I would like a table for four, please.
    expect: {contains: which day, transcript: table}
  - say: On Friday, please.
    expect: {contains: Table seven, outcome: completed}
"""


@pytest.mark.slow
def test_local_engines_answer_in_virtual_time(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The STT and the TTS are the local ones, in the engine's process."""
    (own_folder / "local.yaml").write_text(LOCAL)
    status = main(["eval", "local.yaml", "--time", "virtual"])
    out = capsys.readouterr().out
    assert status == 0, out


CLINIC = """
import asyncio
from voicepipe.agents import Agent

agent = Agent("You are an appointment desk.", first_speaker="agent", greeting="Hello, how can I help?")


@agent.tool(side_effects=False)
async def free_slots(day: str) -> list[str]:
    await asyncio.sleep(1.5)  # longer than a user's pause
    return ["09:00", "10:30"]
"""

SLOTS = """
scripted:
  answers:
    - if: december
      calls: [{name: free_slots, arguments: {day: 2026-12-01}}]
    - if: '"10:30"'
      text: Nine and half past ten are free.
steps:
  - listen: true
    expect: {contains: how can I help}
  - type: Is there a free slot on the first of December?
    expect: {tools: [{name: free_slots}], contains: half past ten, answers: 1}
  - type: And on the second of December?
    expect: {tools: [{name: free_slots}], contains: half past ten, answers: 1}
"""


@pytest.mark.slow
@pytest.mark.parametrize("time", TIMES)
def test_an_agent_in_python_is_tested_without_a_key(
    own_folder: Path, capsys: pytest.CaptureFixture[str], time: str
) -> None:
    """Each step waits for the answer to the result of its tool, which the server runs."""
    (own_folder / "clinic.py").write_text(CLINIC)
    (own_folder / "slots.yaml").write_text(SLOTS)
    status = main(["eval", "slots.yaml", "clinic.py", "--set", "agents.default.silence_ms=300", "--time", time])
    out = capsys.readouterr().out
    assert status == 0, out
    assert "default" in out, "the agent is named"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["clinic.py"], "eval: expected a scenario (a YAML file, or a folder of them) beside clinic.py, got none"),
        (["a.yaml", "none.py"], "expected a Python file with an agent, got 'none.py', which does not exist"),
        (["a.yaml", "--agent", "clinic"], "--agent: expected one of default, got 'clinic'"),
        (["b.yaml"], "b.yaml: agent: expected one of default, got 'clinics'"),
        (["b.yaml", "clinic.py"], "b.yaml: agent: expected one of default, got 'clinics'"),
        (["a.yaml", "clinic.py", "--url", "127.0.0.1:1"], "--url: expected no Python file, since that server has its"),
    ],
)
def test_a_wrong_agent_is_named(
    own_folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], why: str
) -> None:
    (own_folder / "clinic.py").write_text(CLINIC)
    (own_folder / "a.yaml").write_text("steps: [{type: x, expect: {answers: 1}}]")
    (own_folder / "b.yaml").write_text("agent: clinics\nsteps: [{type: x, expect: {answers: 1}}]")
    assert main(["eval", *arguments]) == 2
    assert f"voicepipe: {why}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text", "why"),
    [
        (["--runs", "0"], "", "--runs: expected 1 or more, got 0"),
        (["--html", "no/e.html"], "", "--html: expected a file in a folder that is there, got no/e.html"),
        (["--url", "127.0.0.1:1"], "scripted: {}\n", "a.yaml: scripted: expected no --url"),
        ([], "expect: {judge: It is polite.}\n", "a.yaml: models.judge: expected provider/model (or --judge)"),
        ([], "agent: [x]\n", "a.yaml:2: agent: expected `str | null`, got `array`: ['x']"),
        (["--time", "virtual", "--url", "127.0.0.1:1"], "", "--time virtual: expected no --url, since a server that"),
        (
            ["--time", "virtual", "--set", "agents.default.stt=deepgram/nova-3"],
            "",
            "agents.default.stt: expected a local model, an HTTP API or a scripted one with --time virtual, since "
            "another sends sound over a connection that stays open, and no event shows that an answer is due; got deep",
        ),
        (
            ["--time", "virtual", "--set", "mcp.shop.url=https://shop.example", "--set", "agents.default.mcp=shop"],
            "scripted: {answers: [{text: x}]}\n",
            "agents.default.mcp: expected no MCP server with --time virtual, since its connection stays open, and "
            "no event shows that an answer is due; got shop",
        ),
        (["--judge", "nobody/x"], "expect: {judge: x}\n", "models: expected a model of a provider of the settings"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(
    own_folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str, why: str
) -> None:
    steps = "" if "steps:" in text else "steps: [{type: x, expect: {answers: 1}}]\n"
    (own_folder / "a.yaml").write_text(f"{steps}{text}")
    assert main(["eval", "a.yaml", *arguments]) == 2
    assert why in capsys.readouterr().err
