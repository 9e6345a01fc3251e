"""What the files of deploy/ and their guides name is the server's own: settings, variables, paths, commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs import PAGES, ROOT, code
from voicepipe.cli import command_line
from voicepipe.cli.options import KEY_VARIABLE
from voicepipe.config.docs_table import markdown
from voicepipe.config.sources import KEY_FILE_SUFFIX, SECTIONS
from voicepipe.providers import catalog
from voicepipe.providers.built_in import TRANSCRIBERS, VOICES, key_env_of
from voicepipe.server.endpoints import ENDPOINTS
from voicepipe.telemetry.store.schema import BACK, OLDEST, VERSION

GUIDES = [path for path in PAGES if path.name in ("deploy.md", "deploy-nodes.md", "nodes.md")]
FILES = [
    path
    for path in sorted((ROOT / "deploy").rglob("*"))
    if path.suffix in (".yaml", ".yml", ".toml", ".conf", ".cfg", ".service", "") and path.is_file()
]
SETTINGS = set(re.findall(r"(?m)^\| `([\w.]+)` \|", markdown()))
NAMED_SECTIONS = "providers|agents|tools|mcp|pools|rules|experiments|webhooks"


def as_written(setting: str) -> str:
    """Return a setting as the reference has it: `agents.default.llm` is `agents.NAME.llm`."""
    return re.sub(rf"^({NAMED_SECTIONS})\.\w+\.", r"\1.NAME.", setting)


def test_there_are_files_to_look_at() -> None:
    assert {"Dockerfile", "statefulset.yaml", "haproxy.cfg", "compose.nodes.yaml"} <= {path.name for path in FILES}
    assert len(GUIDES) == 3
    assert {"server.drain_ms", "agents.NAME.llm"} <= SETTINGS


@pytest.mark.parametrize("path", [*FILES, *GUIDES], ids=lambda path: str(path.relative_to(ROOT)))
def test_each_setting_and_variable_is_one(path: Path) -> None:
    """A setting by its dotted name, also in a comment; a variable by that name in capitals."""
    text = path.read_text(encoding="utf-8")
    named = rf"(?<![\w./[-])((?!conversation\.item)(?:{'|'.join(SECTIONS)})\.[a-z_]+(?:\.[a-z_]+)?)\b(?![./-]\w)"
    found = set(re.findall(named, text))
    found -= {"rules.custom"}  # of prometheus-adapter's chart
    found = {each for each in found if not each.endswith((".md", ".toml", ".yml", ".yaml", ".conf", ".example"))}
    found |= {each.lower().replace("__", ".") for each in re.findall(r"VOICEPIPE_([A-Z_]+__[A-Z_]+)", text)}
    assert {as_written(each) for each in found} - SETTINGS == set()
    others = set(re.findall(r"\bVOICEPIPE_[A-Z]+(?:_[A-Z]+)*\b(?!__)", text))
    assert others - {KEY_VARIABLE, "VOICEPIPE_CONFIG"} == set()


@pytest.mark.parametrize("path", [*FILES, *GUIDES], ids=lambda path: str(path.relative_to(ROOT)))
def test_each_key_of_a_provider_is_one(path: Path) -> None:
    known = {key for facts in catalog.load().providers.values() for key in facts.key_env}
    known |= {key_env_of(each) for each in (*TRANSCRIBERS, *VOICES)}
    named = re.findall(r"\b([A-Z]+(?:_[A-Z]+)*_API_KEY(?:_FILE)?)\b", path.read_text(encoding="utf-8"))
    assert {each.removesuffix(KEY_FILE_SUFFIX) for each in named} - known == set()


def test_each_path_is_an_endpoint() -> None:
    """Of probes, health checks and what the balancers keep inside."""
    named = re.compile(
        r"httpGet: {path: (/\w+)|uri (/\w+)|location = (/\w+)|if { path (/\w+) }|http://127\.0\.0\.1:8080(/\w+)"
    )
    groups = [each for path in FILES for each in named.findall(path.read_text(encoding="utf-8"))]
    found = {name for group in groups for name in group if name}
    assert found == {"/readyz", "/healthz", "/metrics"}
    assert found <= {each.documented_path for each in ENDPOINTS}


COMMAND = re.compile(
    r"(?:(?:^|bin/|=\.\.\. |-u )voicepipe|deploy/up\.py|exec voicepipe voicepipe|--no-deps node1) ([a-z].*)$"
)
"""In the guides: in a shell, by its path, in a container."""


def test_the_guide_names_the_tables_of_this_version() -> None:
    """Each version that can be left for an older one, newest first, and what that loses."""
    (guide,) = (PAGES[path] for path in GUIDES if path.name == "deploy-nodes.md")
    table = re.findall(r"^\| (\d+) \| [^|]+ \|(.*)\|$", guide, re.MULTILINE)
    assert [int(version) for version, _ in table] == list(range(VERSION, OLDEST - 1, -1))
    assert all(lost.strip() for version, lost in table if int(version) in BACK)


def commands() -> Iterator[str]:
    """The commands of voicepipe in the guides' blocks for the terminal."""
    for guide in GUIDES:
        for block in code("console", PAGES[guide]):
            for line in block.replace("\\\n", " ").splitlines():
                yield from COMMAND.findall(line)


def test_there_are_commands() -> None:
    assert {each.split()[0] for each in commands()} == {"keys", "check", "providers", "talk", "records"}


@pytest.mark.parametrize("command", sorted(set(commands())))
def test_each_command_is_one(command: str) -> None:
    assert command_line.parse(shlex.split(command)) is not None
