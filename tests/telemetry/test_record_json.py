"""Records as JSON: what the API serves, and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.telemetry import record_json as fields_of_record
from voicepipe.telemetry.record_json import record_from_json, record_json, record_plain
from voicepipe.telemetry.store.port import StoredTurn, turn_plain
from voicepipe.testing.records import MARKS, turn_record
from voicepipe.turn.record.arm import NO_ARM, Arm
from voicepipe.turn.record.values import Breach, Contribution, Speculation, StageSpan, TokenCount, TurnRecord

ms = st.integers(min_value=-(2**53), max_value=2**53)
text = st.text(max_size=20)
pairs = st.dictionaries(text, ms, max_size=4).map(lambda found: tuple(found.items()))
verdicts = st.sampled_from(["within", "over"])
speculations = st.builds(
    Speculation,
    starts=ms,
    used=ms,
    refused=ms,
    saved_ms=ms,
    wasted_input_tokens=ms,
    wasted_output_tokens=ms,
    estimated=st.booleans(),
)
records = st.builds(
    TurnRecord,
    id=text,
    session=text,
    turn=ms,
    revision=ms,
    cause=st.sampled_from(["vad", "commit", "create", "tool", "idle"]),
    outcome=st.sampled_from([None, "completed", "interrupted", "failed", "abandoned"]),
    reason=text,
    marks=pairs,
    total_ms=st.none() | ms,
    total_limit_ms=ms,
    total_verdict=st.none() | verdicts,
    latency_source=st.sampled_from(["reported", "estimated", "none"]),
    stages=st.lists(st.builds(StageSpan, text, ms, ms, verdicts, ms, ms, text), max_size=3).map(tuple),
    parts=pairs,
    contributions=st.lists(st.builds(Contribution, text, text, text, ms), max_size=3).map(tuple),
    unattributed_ms=ms,
    breach=st.none() | st.builds(Breach, text, ms, text, text),
    providers=st.dictionaries(text, text, max_size=3).map(lambda found: tuple(found.items())),
    tokens=st.builds(TokenCount, ms, ms, ms),
    user_text=text,
    agent_text=text,
    played_text=text,
    spoken_ms=ms,
    actions=st.lists(text, max_size=3).map(tuple),
    speculation=speculations,
    session_speculation=speculations,
)


@given(record=records)
def test_every_record_comes_back(record: TurnRecord) -> None:
    """Nothing is lost on the way to JSON and back."""
    assert record_from_json(record_json(record, "default")) == record


def test_the_documented_fields_are_the_served_ones() -> None:
    """The table in the module's docstring names every field, and none that isn't there."""
    documented = [line.split("`")[1] for line in (fields_of_record.__doc__ or "").splitlines() if line.startswith("`")]
    assert documented == list(record_plain(turn_record(), "default"))


def test_a_turn_as_the_api_serves_it() -> None:
    """Marks are an object in time order; stages and contributions are lists; the time is ISO 8601 in UTC."""
    plain = json.loads(json.dumps(turn_plain(StoredTurn(turn_record(), "p", "sales", 1_795_230_296_007))))
    assert plain["object"] == "voicepipe.turn"
    assert plain["started_at"] == "2026-11-21T03:04:56.007Z"
    assert plain["agent"] == "sales"
    assert plain["project"] == "p"
    assert list(plain["marks"].items()) == list(MARKS)
    assert plain["providers"] == {"stt": "fake-stt", "llm": "fake-llm", "tts": "fake-tts"}
    assert plain["stages"][1] == {
        "stage": "endpoint",
        "duration_ms": 25,
        "limit_ms": 150,
        "verdict": "within",
        "critical_ms": 25,
        "hidden_ms": 0,
        "owner": "fake-stt",
    }
    assert plain["contributions"][2] == {
        "stage": "llm_ttft",
        "from_mark": "llm_requested",
        "to_mark": "first_delta",
        "duration_ms": 235,
    }
    assert plain["tokens"] == {"input": 120, "output": 24, "cached": 96, "cache_write": 0}
    assert plain["actions"] == []


@pytest.mark.parametrize(("arm", "text"), [(Arm("summer", "fast"), "summer/fast"), (NO_ARM, "")])
def test_the_arm_of_a_served_turn_is_one_text(arm: Arm, text: str) -> None:
    """A client reads it back."""
    plain = turn_plain(StoredTurn(turn_record(), "p", "sales", 1_795_230_296_007, arm=arm))
    assert plain["arm"] == text
    assert record_from_json(json.dumps(plain)).arm == arm


_VERSION_1 = """{"id":"turn_1","session":"sess_1","turn":1,"revision":0,"cause":"vad","outcome":"interrupted","reason":
"","marks":{"voiced_last":10,"first_audible":900},"total_ms":890,"total_limit_ms":1000,"total_verdict":"within",
"latency_source":"estimated",
"stages":[{"stage":"llm_ttft","duration_ms":700,"limit_ms":600,"verdict":"over",
"critical_ms":700,"hidden_ms":0,"owner":"x"}],
"parts":{"gate_wait":500},"contributions":
[{"stage":"llm_ttft","from_mark":"voiced_last","to_mark":"first_audible","duration_ms":890}],
"unattributed_ms":0,"breach":{"stage":"llm_ttft","over_ms":100,"owner":"x","setting":"y"},"providers":{"llm":"x"},
"tokens":
{"input":1,"output":2,"cached":0},"user_text":"","agent_text":"","played_text":"","spoken_ms":1200,"actions":["hedged"]}"""


def test_records_of_the_first_version_can_be_read() -> None:
    """What was stored once is readable for good: a field that joins the record needs a default."""
    record = record_from_json(_VERSION_1)
    assert (record.marks, record.parts) == ((("voiced_last", 10), ("first_audible", 900)), (("gate_wait", 500),))
    assert record.breach == Breach("llm_ttft", 100, "x", "y")
    assert record.actions == ("hedged",)


def test_fields_of_a_newer_version_are_skipped() -> None:
    """A record written by a newer process of the same machine can be read by an older one."""
    plain = record_plain(turn_record(), "default") | {"mood": "sunny"}
    assert record_from_json(json.dumps(plain)) == turn_record()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"marks": [["a", 1]]}, "marks"),
        ({"outcome": "won"}, "outcome"),
        ({"turn": "one"}, "turn"),
        ({"tokens": None}, "tokens"),
    ],
)
def test_what_is_no_record_is_refused(change: dict[str, Any], named: str) -> None:
    """The error names the field."""
    with pytest.raises(ValueError, match=named):
        record_from_json(json.dumps(record_plain(turn_record(), "default") | change))


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"\xff"])
def test_what_is_no_object_is_refused(data: bytes) -> None:
    """Not JSON, or not an object."""
    with pytest.raises(ValueError, match=r".+"):
        record_from_json(data)
