"""`voicepipe replay` and `voicepipe bench compare`: what they print, and how they end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from voicepipe.cli import main

JOURNALS = Path(__file__).parents[1] / "data" / "journals"
ANSWER = str(JOURNALS / "answer.jsonl")


def altered(tmp_path: Path) -> str:
    path = tmp_path / "altered.jsonl"
    path.write_bytes(Path(ANSWER).read_bytes().replace(b'"is":"OpenGate","turn":1', b'"is":"OpenGate","turn":7'))
    return str(path)


def test_no_difference(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", ANSWER]) == 0
    assert capsys.readouterr().out.endswith("no difference\n")


def test_a_difference_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", altered(tmp_path), ANSWER]) == 1
    said = capsys.readouterr().out
    assert "first difference at event" in said
    assert "turn: expected 7, got 1" in said
    assert f"== {ANSWER}" in said, "the others are replayed all the same"


def test_a_folder_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(JOURNALS), "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == len(list(JOURNALS.glob("*.jsonl")))
    assert {line["difference"] for line in lines} == {None}


def test_a_session_of_this_server_is_found_by_its_id(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "journals"
    folder.mkdir()
    (folder / "17-sess_abc.jsonl").write_bytes(Path(ANSWER).read_bytes())
    assert main(["replay", "sess_abc", "--data-dir", str(tmp_path)]) == 0
    assert main(["replay", "sess_ab", "--data-dir", str(tmp_path)]) == 2
    assert "sess_ab: No such file" in capsys.readouterr().err


def test_what_if(capsys: pytest.CaptureFixture[str]) -> None:
    """Several settings, as they are documented or as a client calls them."""
    assert main(["replay", ANSWER, "--what-if", "endpoint.min_silence_ms=300", "agents.default.speculate=true"]) == 0
    assert "what if" in capsys.readouterr().out
    assert main(["replay", ANSWER, "--what-if", "agents.default.silence_ms=300", "--json"]) == 0
    turns = json.loads(capsys.readouterr().out)["turns"]
    assert all(turn["change_ms"] < 0 for turn in turns)


@pytest.mark.parametrize(
    "pair", ["silence_ms", "agents.default.llm=groq/x", "server.port=1", "silence_ms=soon", "silence_ms=5"]
)
def test_settings_that_can_t_be_tried_are_refused(pair: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown, no number, below what the setting allows; or of a provider, of whose world a journal knows nothing."""
    assert main(["replay", ANSWER, "--what-if", pair]) == 2
    assert pair.partition("=")[0] in capsys.readouterr().err


def test_what_is_no_journal_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(tmp_path / "none.jsonl")]) == 2
    assert main(["replay", str(tmp_path)]) == 2
    (tmp_path / "other.jsonl").write_text('{"id": 1}\n')
    assert main(["replay", str(tmp_path)]) == 1
    assert "expected a journal" in capsys.readouterr().err


def test_what_if_needs_a_journal_that_can_be_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", altered(tmp_path), "--what-if", "silence_ms=300"]) == 1
    assert "does not do what the journal records" in capsys.readouterr().err


# --- the gate -------------------------------------------------------------------------------------


def run_of(path: Path, waits_ms: list[int]) -> str:
    path.write_text("\n".join(["latency_ms", *map(str, waits_ms)]))
    return str(path)


def test_the_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 0 with a table, 1 past a bound, and 2 when there are too few turns to decide."""
    fast = run_of(tmp_path / "fast.csv", list(range(400, 600)))
    slow = run_of(tmp_path / "slow.csv", list(range(900, 1_100)))
    few = run_of(tmp_path / "few.csv", [500] * 20)
    assert main(["bench", "compare", fast, fast]) == 0
    assert main(["bench", "compare", fast, slow]) == 1
    assert "worse" in capsys.readouterr().out
    assert main(["bench", "compare", fast, slow, "--p95-ms", "600", "--misses", "0.9"]) == 0
    assert main(["bench", "compare", fast, few]) == 2
    assert main(["bench", "compare", fast, few, "--min-turns", "20"]) == 0


def test_a_gate_without_turns_or_with_bounds_below_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "compare", str(tmp_path), str(tmp_path)]) == 1
    assert main(["bench", "compare", ANSWER, ANSWER, "--misses", "-1"]) == 2
    assert "--misses: expected 0 or more" in capsys.readouterr().err
