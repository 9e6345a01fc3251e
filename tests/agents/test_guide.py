"""The appointment desk of the guide, as it stands there: it loads, and its own test passes."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.docs import ROOT, code, section
from voicepipe.agents import Agent, load_file
from voicepipe.testing.agent_call import calling_agent, calls
from voicepipe.testing.waiting import WAIT_S

PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p pytest_asyncio.plugin"}
"""The plugins of that installation: pytest would import all that are installed here, and fail."""

ABSENT = """
import sys


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Absent())
"""
"""A module that makes Python not find those that an installation would not have."""


@pytest.fixture
def blocks() -> list[str]:
    """The Python of the guide: the agent, and its test."""
    return code(r"python clinic\.py") + code("python test", section("Agents in Python"))


def test_the_agent_has_three_tools(blocks: list[str], tmp_path: Path) -> None:
    (tmp_path / "clinic.py").write_text(blocks[0])
    (agent,) = load_file(tmp_path / "clinic.py")
    assert [*agent.tools] == ["find_slots", "book", "cancel"]


async def test_the_hooks_of_the_guide_know_the_user() -> None:
    """The greeting has the name that the token says."""
    (text,) = code("python hooks")
    names: dict[str, Any] = {}
    exec(text, names)
    agent: Agent = names["agent"]
    async with calling_agent(agent, calls("appointments"), "None.") as call:
        assert await call.greeting() == "Hello, there."
        assert await call.speaks("Have I an appointment?") == "None."
        assert call.results == ["[]"]


def distributions(*names: str) -> set[str]:
    """Return these distributions and all that they need, as they are installed here."""
    found: set[str] = set()
    waiting = [Requirement(name) for name in names]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        key = f"{name}[{','.join(sorted(requirement.extras))}]"
        if key in found:
            continue
        found |= {key, name}
        try:
            needed = metadata.requires(name) or ()
        except metadata.PackageNotFoundError:
            continue  # of another platform, or without metadata: it has no modules that are known
        for text in needed:
            inner = Requirement(text)
            extras = requirement.extras or {""}
            if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(inner)
    return found


@pytest.mark.slow
async def test_its_test_passes_as_the_page_says(blocks: list[str], tmp_path: Path) -> None:
    """In a folder of its own, by the page's command, with nothing but what the page installs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = section("Agents in Python")
    (extra,) = re.findall(r"pip install --editable '\.\[(\w+)\]'", text)
    (command,) = re.findall(r"^    python (-m pytest .*)$", text, re.M)
    there = distributions(*project["dependencies"], *project["optional-dependencies"][extra])
    absent = [
        module
        for module, names in metadata.packages_distributions().items()
        if not any(canonicalize_name(name) in there for name in names)
    ]
    assert "hypothesis" in absent
    (tmp_path / "clinic.py").write_text(blocks[0])
    (tmp_path / "test_clinic.py").write_text(blocks[1])
    (tmp_path / "sitecustomize.py").write_text(ABSENT.format(absent=set(absent) - {"voicepipe"}))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "VOICEPIPE_"))}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *shlex.split(command)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=tmp_path,
        env=inherited | PLUGINS | {"PYTHONPATH": f"{tmp_path}:{ROOT}"},
    )
    try:
        async with asyncio.timeout(WAIT_S):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, out.decode()
    assert "1 passed" in out.decode()
