"""Where the time of the local models limits the number of sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicepipe.config import load
from voicepipe.wiring.engine import LocalModels, is_local_everywhere

LOCAL = {"stt": "local/moonshine-tiny", "llm": "local/smollm2-135m", "tts": "local/hibari"}
REMOTE = {"stt": "deepgram/nova-3", "llm": "groq/llama-3.3-70b-versatile", "tts": "cartesia/sonic-3"}


@pytest.mark.parametrize(
    ("agents", "expected"),
    [
        ([LOCAL], True),
        ([REMOTE], False),
        ([REMOTE | {"tts": LOCAL["tts"]}], True),
        ([LOCAL, REMOTE], False),
        ([REMOTE | {"llm": [REMOTE["llm"], LOCAL["llm"]]}], False),
    ],
    ids=["all local", "none", "only the voice", "one agent does without", "as a fallback"],
)
def test_the_local_models_limit_sessions_where_no_agent_does_without_them(
    tmp_path: Path, agents: list[dict[str, object]], expected: bool
) -> None:
    overrides = {
        f"agents.{name}.{stage}": spec
        for name, stages in zip(("default", "other"), agents, strict=False)
        for stage, spec in stages.items()
    }
    keys = dict.fromkeys(("DEEPGRAM_API_KEY", "GROQ_API_KEY", "CARTESIA_API_KEY"), "k")
    assert is_local_everywhere(load(overrides=overrides, environ={"HOME": "/h", **keys}, folder=tmp_path)) is expected


def test_nothing_is_known_of_engines_that_do_not_run() -> None:
    assert LocalModels((), lambda line: None).busiest_share() is None
