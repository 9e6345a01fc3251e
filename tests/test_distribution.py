"""No document advises to install another project's package: the package `voicepipe` on the index is not this one."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.docs import ROOT
from voicepipe.extras import DISTRIBUTION, install_command

ADVICE = re.compile(
    r"(?:pip|uv|pipx|uvx)\d?(?:\s+tool)?\s+(?:install|run|add)\s+[^\n;]*?"
    r"(?<![\w./-])(?<!clone of )voicepipe(?![\w-]*[/.]|-)"
    r"|dependencies\s*=\s*\[[^\]]*[\"']voicepipe(?!-)[^\]]*\]"
)
"""What would look the name `voicepipe`, with or without extras, up on an index: a command, a dependency."""

TEXTS = {".py", ".md", ".toml", ".html", ".js", ".mjs", ".yaml", ".yml", ".txt", ".service", ".conf", ""}


def texts() -> Iterator[Path]:
    """Every file that people read: source, docs, pages, deployment."""
    for folder in ("voicepipe", "web", "deploy", "tests"):
        for path in (ROOT / folder).rglob("*"):
            skipped = {"vendor", "__pycache__", "node_modules", "_web"} & set(path.parts)
            if path.is_file() and path.suffix in TEXTS and not skipped and path != Path(__file__):
                yield path
    yield from (ROOT / name for name in ("README.md", "THIRD_PARTY", "pyproject.toml"))


def wrong(text: str) -> list[str]:
    """What sends people to the index for a name that is not ours."""
    return [found[0] for found in ADVICE.finditer(text)]


def test_no_text_advises_the_foreign_package() -> None:
    assert {str(path): found for path in texts() if (found := wrong(path.read_text(encoding="utf-8")))} == {}


def test_the_rule_finds_what_breaks_it() -> None:
    for text in (
        "pip install voicepipe",
        "pip install 'voicepipe[postgres]'",
        'pip install "voicepipe[otel]>=0.1"',
        "uv tool install voicepipe",
        "pipx run voicepipe",
        'dependencies = ["numpy", "voicepipe>=0.1"]',
    ):
        assert wrong(text), text
    for text in (
        "pip install ./voicepipe-parrot",
        "pip install --editable '.[postgres]' in the clone of voicepipe",
        "pip install /tmp/voicepipe-server.whl",
        'dependencies = ["voicepipe-server"]',
    ):
        assert not wrong(text), text


def test_the_distribution_has_its_own_name_and_the_rest_keeps_its() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == DISTRIBUTION
    assert project["name"] != "voicepipe"
    assert project["scripts"] == {"voicepipe": "voicepipe.cli:main"}


def test_every_extra_that_is_advised_is_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "voicepipe").rglob("*.py"))
    advised = set(re.findall(r"""install_command\(["'](\w+)["']\)""", source))
    assert advised
    assert advised <= set(project["optional-dependencies"])
    assert "'.[local]'" in install_command("local")
