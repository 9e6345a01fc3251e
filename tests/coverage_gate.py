"""Run the tests with branch coverage, print it by package, and fail where a package has less than it must.

    .venv/bin/python -m tests.coverage_gate                         every test, every package
    .venv/bin/python -m tests.coverage_gate --only turn tests/turn  one package, by these tests

`turn`, `protocol`, `router`, `auth` and `audio` are covered whole, except for the holes that coverage_holes.toml names
with their reasons. Each other package is covered to 95 %, or to the floor that the same file gives it with a reason.
Whatever the file names and a run does cover fails too, so that the file stays true. What remains of the arguments goes
to pytest.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import coverage

ROOT = Path(__file__).resolve().parents[1]
NAMED = Path(__file__).with_name("coverage_holes.toml")

COMPLETE = ("turn", "protocol", "router", "auth", "audio")
"""The packages in which each hole is named."""

MIN_PERCENT = 95.0
"""What the other packages have at least, of lines and branches together."""


@dataclass(frozen=True, order=True)
class Hole:
    """A line that no test runs or that is never left by one of its branches, known by its text: numbers change."""

    file: str
    line: str


@dataclass(frozen=True)
class Named:
    """What coverage_holes.toml says."""

    holes: Mapping[Hole, str]
    """Hole -> why no test covers it."""

    least: Mapping[str, float]
    """Package -> percent."""

    @classmethod
    def read(cls, text: str) -> Named:
        """Return what the file's text says.

        Raises:
            ValueError: an entry has no reason.
        """
        read = tomllib.loads(text)
        for entry in (*read.get("hole", ()), *read.get("floor", ())):
            if not entry.get("reason", "").strip():
                raise ValueError(f"{NAMED.name}: expected a reason for each entry, got {entry}")
        holes = {
            Hole(entry["file"], line): entry["reason"]
            for entry in read.get("hole", ())
            for line in entry.get("lines", [entry["line"]] if "line" in entry else [])
        }
        return cls(holes, {entry["package"]: float(entry["percent"]) for entry in read.get("floor", ())})


@dataclass(frozen=True)
class Covered:
    """One package's coverage."""

    package: str
    n_covered: int
    n_all: int
    """Lines and branches."""

    holes: frozenset[Hole]

    @property
    def percent(self) -> float:
        """Return the covered share; a package without a line is covered."""
        return 100 * self.n_covered / self.n_all if self.n_all else 100.0


def package_of(file: str) -> str:
    """Return the package below `voicepipe` that a file is in; `voicepipe` itself for the modules at its top."""
    parts = Path(file).parts
    return parts[1] if len(parts) > 2 else parts[0]


def holes_in(file: str, lines: Sequence[str], report: Mapping[str, Any]) -> Iterator[Hole]:
    """Yield the holes of a file, of a run of lines that none executes the first alone.

    Args:
        lines: the file's text.
        report: what `coverage json` says about it.
    """
    missing = set(report["missing_lines"])
    before = 0
    for number in sorted({*missing, *report["executed_lines"]}):
        if number in missing and before not in missing:
            yield Hole(file, lines[number - 1].strip())
        before = number
    for source, target in report["missing_branches"]:
        if abs(target) not in missing:
            yield Hole(file, lines[abs(source) - 1].strip())


def by_package(report: Mapping[str, Any]) -> list[Covered]:
    """Return each package's coverage, from what `coverage json` wrote about files of the clone."""
    found: dict[str, list[tuple[int, int, frozenset[Hole]]]] = defaultdict(list)
    for file, each in report["files"].items():
        if not file.startswith("voicepipe/"):
            continue
        sums = each["summary"]
        n_covered = sums["covered_lines"] + sums["covered_branches"]
        holes = frozenset(holes_in(file, (ROOT / file).read_text(encoding="utf-8").splitlines(), each))
        found[package_of(file)].append((n_covered, sums["num_statements"] + sums["num_branches"], holes))
    return [
        Covered(package, sum(covered), sum(every), frozenset().union(*holes))
        for package, files in sorted(found.items())
        for covered, every, holes in [zip(*files, strict=True)]
    ]


def complaints(packages: Sequence[Covered], named: Named, *, complete: Sequence[str] = COMPLETE) -> Iterator[str]:
    """Yield what is wrong: a hole without a name, a name without a hole, a package below its floor."""
    judged = {each.package for each in packages}
    for each in packages:
        if each.package in complete:
            for hole in sorted(each.holes - named.holes.keys()):
                yield f"{hole.file}: no test covers `{hole.line}`: write one, or name the hole in tests/{NAMED.name}"
        elif each.percent < (min_percent := named.least.get(each.package, MIN_PERCENT)):
            yield f"{each.package}: expected {min_percent:g} %, got {each.percent:.1f} %"
        elif each.package in named.least and each.percent >= MIN_PERCENT:
            yield f"{each.package}: has {each.percent:.1f} %: take its floor out of tests/{NAMED.name}"
    holes = frozenset().union(*(each.holes for each in packages))
    for hole in sorted(named.holes.keys() - holes):
        if package_of(hole.file) in judged:
            yield f"{hole.file}: `{hole.line}` is covered or gone: take it out of tests/{NAMED.name}"


def measured(only: Sequence[str], arguments: Sequence[str], folder: Path) -> tuple[int, Mapping[str, Any]]:
    """Run pytest; return its exit status and what `coverage json` says."""
    sources = [f"--cov=voicepipe.{package}" for package in only] or ["--cov=voicepipe"]
    data = folder / "coverage"
    config = f"--cov-config={ROOT / 'pyproject.toml'}"
    pytest = [sys.executable, "-m", "pytest", *sources, config, "--cov-report=", *arguments]
    # A run that is measured itself must not measure this one in its place.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    status = subprocess.run(pytest, cwd=ROOT, env={**environ, "COVERAGE_FILE": str(data)}, check=False).returncode
    reader = coverage.Coverage(data_file=str(data), config_file=str(ROOT / "pyproject.toml"))
    reader.load()
    reader.json_report(outfile=str(folder / "coverage.json"))
    report: Mapping[str, Any] = json.loads((folder / "coverage.json").read_text())
    return status, report


def main(arguments: Sequence[str]) -> int:
    """Measure and judge; return 0 when the tests pass and each package has what it must have."""
    parser = argparse.ArgumentParser(
        prog="tests.coverage_gate", description="branch coverage, judged", allow_abbrev=False
    )
    parser.add_argument("--only", default="", metavar="PACKAGE,PACKAGE", help="measure these packages alone")
    given, rest = parser.parse_known_args(arguments)
    only = [package for package in given.only.split(",") if package]
    named = Named.read(NAMED.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        status, report = measured(only, rest, Path(folder))
    packages = [each for each in by_package(report) if not only or each.package in only]
    for each in packages:
        sys.stdout.write(f"{each.package:<12} {each.percent:6.1f} %  {len(each.holes):4} holes\n")
    wrong = list(complaints(packages, named))
    sys.stdout.writelines(f"coverage: {line}\n" for line in wrong)
    return status or int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
