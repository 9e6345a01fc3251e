"""The appointment desk of the guide, as it stands there: it loads, and its own test passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.docs import code, section
from voicepipe.agents import load_file


@pytest.fixture
def blocks() -> list[str]:
    """The Python of the guide: the agent, and its test."""
    text = section("Agents in Python")
    return code(r"python clinic\.py", text) + code("python test", text)


def test_the_agent_has_three_tools(blocks: list[str], tmp_path: Path) -> None:
    (tmp_path / "clinic.py").write_text(blocks[0])
    (agent,) = load_file(tmp_path / "clinic.py")
    assert [*agent.tools] == ["free_times", "book", "appointments"]
    assert agent.settings["tools"] == ["end_call"]


async def test_its_test_passes(blocks: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clinic.py").write_text(blocks[0])
    names: dict[str, Any] = {}
    exec(compile(blocks[1], "guide", "exec"), names)  # the guide's own words
    (test,) = (its for name, its in names.items() if name.startswith("test_"))
    monkeypatch.chdir(tmp_path)
    await test()
