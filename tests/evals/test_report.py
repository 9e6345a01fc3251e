"""The reports: who passed, and why not."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import soundfile
from rich.console import Console

from voicepipe.evals.report import ScenarioResult, failures_of, html, junit, table
from voicepipe.evals.run import RunResult, StepResult
from voicepipe.evals.scenario import Scenario, Step

AUDIO = np.zeros((2_400, 2), dtype=np.int16)


def run(*failures: str, latencies_ms: tuple[int, ...] = (700,), **more: Any) -> RunResult:
    return RunResult((StepResult("a <b>", "Hi\x00.", "a b", latencies_ms, failures),), (), AUDIO, **more)


def result(*runs: RunResult, pass_share: float = 1.0) -> ScenarioResult:
    scenario = Scenario(path=Path("d.yaml"), name="A & B", pass_share=pass_share, steps=(Step(type="a"),))
    return ScenarioResult(scenario, runs, 1_500)


@pytest.mark.parametrize(("pass_share", "passed"), [(1.0, False), (0.67, False), (0.66, True), (0.5, True)])
def test_enough_runs_must_pass(pass_share: float, passed: bool) -> None:
    scenario_result = result(run(), run("late"), run(latencies_ms=()), pass_share=pass_share)
    assert (scenario_result.n_passed, scenario_result.passed, scenario_result.latency_text()) == (
        2,
        passed,
        "700 / 700",
    )


def test_a_failure_of_the_conversation_fails_the_run() -> None:
    failed = RunResult((), ("the connection was closed",), AUDIO, notes=("wrong",))
    assert not failed.passed
    assert list(failures_of(result(run(), failed))) == [
        "run 2, conversation: the connection was closed",
        "run 2, the server reported: wrong",
    ]
    assert result(failed).latency_text() == "-"


def test_the_table_and_junit_have_each_scenario() -> None:
    results = [result(run()), result(run("contains: x\x01")), result(run(), run("y"), pass_share=0.5)]
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(table(results))
    assert [" failed " in line for line in console.export_text().splitlines() if "A & B" in line] == [
        False,
        True,
        False,
    ]
    (suite,) = ElementTree.fromstring(junit(results))
    assert (suite.get("tests"), suite.get("failures"), suite.get("time")) == ("3", "1", "4.500")
    good, bad, enough = suite
    assert (good.get("name"), good.get("classname"), len(good)) == ("A & B", "d.yaml", 0)
    failure = bad.find("failure")
    assert failure is not None
    assert (failure.get("message"), failure.text) == ("0 of 1 runs passed", "step 1 (a <b>): contains: x\ufffd")
    assert enough.findtext("system-out") == "run 2, step 1 (a <b>): y"


def test_the_page_has_the_audio_and_escapes_what_was_said() -> None:
    page = html([result(run("late <i>"))])
    assert "0 of 1 scenarios passed" in page
    assert "a &lt;b&gt;" in page
    assert "late &lt;i&gt;" in page
    assert "<i>" not in page
    found = re.search(r'base64,([^"]+)"', page)
    assert found is not None
    samples, rate_hz = soundfile.read(io.BytesIO(base64.b64decode(found[1])), dtype="int16")
    assert (samples.shape, rate_hz) == ((2_400, 2), 24_000)
