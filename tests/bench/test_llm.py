"""The bench of language models, against models and vendors whose answers are known."""

from __future__ import annotations

import asyncio
import csv
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from voicepipe.bench.llm import BenchPrompt, LlmBenchPlan, LlmCandidate, LlmMeasurement, measure
from voicepipe.bench.llm_chart import svg
from voicepipe.bench.llm_prompts import read_prompts
from voicepipe.bench.llm_report import CSV_COLUMNS, runs, table, write_csv
from voicepipe.cli import main
from voicepipe.errors import ConfigError
from voicepipe.ports.model import Content, Text, Usage
from voicepipe.testing.fakes.cues import Cut, LlmCue, Status
from voicepipe.testing.fakes.model import FakeModel
from voicepipe.testing.fakes.vendor import FakeVendor


def silent(what: str, done: int, of: int) -> None:
    """Discard the progress."""


def candidate(model: FakeModel, *, usd: float | None = None) -> LlmCandidate:
    return LlmCandidate(model.name, model, "m", lambda usage: None if usd is None else usd * usage.output_tokens)


def answer(
    ttft_ms: float | None, *, spec: str = "a/b", n_tokens: int = 11, error: str = "", last_ms: float = 0
) -> LlmMeasurement:
    return LlmMeasurement(
        spec=spec,
        cache="cold",
        prompt=0,
        ttft_ms=ttft_ms,
        last_ms=last_ms or ttft_ms,
        total_ms=last_ms or ttft_ms or 1,
        usage=Usage(input_tokens=5, output_tokens=n_tokens, cached_tokens=1) if not error else None,
        cost_usd=0.25,
        route=spec,
        error=error,
    )


async def test_every_prompt_is_sent_and_counted_by_usage() -> None:
    model = FakeModel(LlmCue(tokens=("a", "b", "c"), input_tokens=7, cached_tokens=2))
    progress: list[Any] = []
    plan = LlmBenchPlan(prompts=(BenchPrompt("one"), BenchPrompt("two", "Be brief.")), n_answers=5, at_once=2)
    answers = await measure([candidate(model, usd=2)], plan, lambda *what: progress.append(what))
    assert sorted(each.prompt for each in answers) == [0, 0, 0, 1, 1]
    assert {each.usage for each in answers} == {Usage(input_tokens=7, output_tokens=3, cached_tokens=2)}
    assert {each.cost_usd for each in answers} == {6}
    assert all(each.error == "" and each.ttft_ms is not None for each in answers)
    assert [done for _, done, _ in progress] == [1, 2, 3, 4, 5]


async def test_cold_prompts_are_unique_and_warm_ones_sent_before() -> None:
    model = FakeModel(LlmCue())
    plan = LlmBenchPlan(prompts=(BenchPrompt("one"), BenchPrompt("two")), n_answers=4, caches=("cold", "warm"))
    answers = await measure([candidate(model)], plan, silent)
    assert [each.cache for each in answers] == ["cold"] * 4 + ["warm"] * 4
    questions = [request.question for request in model.script.received]
    cold, warm = questions[:4], questions[4:]
    assert len({request.messages for request in cold}) == 4
    assert len({request.session for request in cold}) == 4
    assert len(warm) == 6
    assert {request.messages for request in warm} == {
        (Content("user", (Text("one"),)),),
        (Content("user", (Text("two"),)),),
    }
    assert len({request.session for request in warm}) == 1


async def test_failures_are_answers_too() -> None:
    model = FakeModel(LlmCue())
    model.script.cue(LlmCue(fault=Status(429)), LlmCue(fault=Cut(after=2)))
    answers = await measure([candidate(model)], LlmBenchPlan(n_answers=3), silent)
    refused, cut, whole = answers
    assert (refused.ttft_ms, "429" in refused.error) == (None, True)
    assert cut.error
    assert cut.ttft_ms is not None
    assert whole.error == ""


def test_rates_need_the_count_of_the_provider() -> None:
    known = answer(100, last_ms=600)
    assert (known.itl_ms, known.tokens_per_s) == (50, 20)
    assert answer(100, last_ms=600, error="cut").itl_ms is None
    assert answer(100, last_ms=600, n_tokens=1).itl_ms is None
    assert answer(None).tokens_per_s is None


def test_table_reports_failures_apart_from_times() -> None:
    answers = [answer(each, last_ms=each + 500) for each in (100, 200, 300)]
    measured = runs([*answers, answer(9_000, error="HTTP 500"), answer(10, spec="c/d")])
    _, _, first, second, failure = table(measured)
    assert first == ("| a/b | cold | 200/290/298 | 50.0/50.0/50.0 | 20 | 700/790/798 | 15/3/33 | 1 of 4 | 1.000000 |")
    assert second.startswith("| c/d | cold | 10/10/10 | - | - |")
    assert failure == "a/b, cold cache: 1 failed: HTTP 500"


def test_the_files_hold_every_answer(tmp_path: Path) -> None:
    measured = runs([answer(100, last_ms=200), answer(None, error="HTTP 500"), answer(5, spec="c/<d>")])
    write_csv(tmp_path / "llm.csv", measured)
    with (tmp_path / "llm.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert tuple(lines[0]) == CSV_COLUMNS
    assert [(line["model"], line["ttft_ms"], line["error"]) for line in lines] == [
        ("a/b", "100.00", ""),
        ("a/b", "", "HTTP 500"),
        ("c/<d>", "5.00", ""),
    ]
    chart = ElementTree.fromstring(svg(measured))
    curves = [each.get("points", "").split() for each in chart.iter() if each.tag.endswith("polyline")]
    assert len(curves) == 4  # two runs, twice
    assert curves[0][-1].endswith(",120.0")  # half of the answers arrived: half of the height


def test_prompts_are_lines_of_text_or_json(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text('What is it?\n\n{"system": "Be brief.", "user": "Why?"}\n')
    assert read_prompts(path) == (BenchPrompt("What is it?"), BenchPrompt("Why?", "Be brief."))
    for text, words in (("", "got none"), ('{"users": 1}', "on line 1"), ('{"user": ', "on line 1")):
        path.write_text(text)
        with pytest.raises(ConfigError, match=words):
            read_prompts(path)
    with pytest.raises(ConfigError, match="can be read"):
        read_prompts(tmp_path / "none.txt")


async def test_the_command_measures_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with FakeVendor() as vendor:
        vendor.llm.usual = lambda question: LlmCue(
            tokens=("x",) * (2 if question["model"] == "small" else 4),
            fault=Status(401) if question["model"] == "bad" else None,
        )
        arguments = [
            *("bench", "llm", "fake/small", "fake/large", "fake/bad", "--n", "3", "--concurrency", "2"),
            *("--cache", "both", "--max-tokens", "9", "--out", str(tmp_path / "out"), "--data-dir", str(tmp_path)),
            *("--set", f"providers.fake.base_url={vendor.base_url}"),
            *("--set", "providers.fake.input_usd_per_million=1"),
            *("--set", "providers.fake.output_usd_per_million=10"),
        ]
        status = await asyncio.to_thread(main, arguments)
        questions = [request.question for request in vendor.llm.received]
    out, err = capsys.readouterr()
    assert status == 1  # one gave no answer
    lines = [line.split(" | ") for line in out.splitlines() if line.startswith("| fake/")]
    assert [(line[0], line[1], line[7]) for line in lines] == [
        ("| fake/small", "cold", "0 of 3"),
        ("| fake/small", "warm", "0 of 3"),
        ("| fake/large", "cold", "0 of 3"),
        ("| fake/large", "warm", "0 of 3"),
        ("| fake/bad", "cold", "3 of 3"),
        ("| fake/bad", "warm", "3 of 3"),
    ]
    assert [line[6] for line in lines[:3]] == ["30/0/6", "30/0/6", "30/0/12"]
    assert lines[0][8] == "0.000090 |"
    assert "fake/large, warm cache: 3 of 3" in err
    assert {question["max_tokens"] for question in questions} == {9}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["llm.csv", "llm.md", "llm.svg"]
    assert (tmp_path / "out" / "llm.md").read_text() == out


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("nobody/x",), "SPEC: expected a model of one of the providers"),
        (("x",), 'SPEC: expected "provider/model"'),
        (("ollama/x", "--n", "0"), "--n: expected 1 or more"),
        (("ollama/x", "--max-tokens", "0"), "--max-tokens: expected 1 or more"),
    ],
)
def test_what_can_not_be_measured_is_refused(
    more: tuple[str, ...], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "llm", *more, "--data-dir", str(tmp_path)]) == 2
    assert words in capsys.readouterr().err
