"""The rule of the mark `slow`: a test that starts a browser, a server, a local model or another Python has it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import long_first

TESTS = Path(__file__).parent

TWO = """
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def server():
    subprocess.run([sys.executable, "-c", ""], check=True)


def test_of_a_fixture(server): ...


def test_of_its_own():
    subprocess.run([sys.executable, "-c", ""], check=True)


@pytest.mark.slow
def test_marked():
    subprocess.run([sys.executable, "-c", ""], check=True)


@pytest.fixture
def engine_socket(): ...


def test_of_the_engine(engine_socket): ...


def test_quick():
    subprocess.run(["true"], check=True)
"""


def inner(folder: Path, *arguments: str) -> list[str]:
    """Return the lines of a run of those tests under the suite's own conftest."""
    (folder / "test_two.py").write_text(TWO)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-rA", "-q", "-p", "no:cacheprovider", *arguments]
    path = os.pathsep.join(map(str, (TESTS, TESTS.parent)))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ran = subprocess.run(
        command,
        cwd=folder,
        env={**environment, "PYTHONPATH": path, "COLUMNS": "400"},
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.stdout.splitlines()


@pytest.mark.slow
def test_a_slow_program_needs_the_mark(tmp_path: Path) -> None:
    """A fixture's program counts for the first test that has it; the error names the program."""
    lines = inner(tmp_path)
    errors = [line.partition(" - ") for line in lines if line.startswith("ERROR")]
    assert [line for line, _, _ in errors] == [
        "ERROR test_two.py::test_of_a_fixture",
        "ERROR test_two.py::test_of_its_own",
    ]
    assert all("mark this test slow, since it starts " + sys.executable in why for _, _, why in errors)
    assert "5 passed, 2 errors" in lines[-1]


@pytest.mark.slow
def test_a_slow_fixture_brings_the_mark(tmp_path: Path) -> None:
    """`-m` selects after it."""
    passed = [line for line in inner(tmp_path, "-m", "slow") if line.startswith("PASSED")]
    assert passed == ["PASSED test_two.py::test_marked", "PASSED test_two.py::test_of_the_engine"]


@pytest.mark.parametrize("n_processes", [1, 2, 6])
@pytest.mark.parametrize("n_others", [0, 1, 40, 41])
def test_each_process_begins_with_its_share_of_the_long_tests(n_processes: int, n_others: int) -> None:
    """xdist gives each process an equal part of the list, in order."""
    long, others = [f"long {n}" for n in range(13)], [f"other {n}" for n in range(n_others)]
    ordered = long_first(long, others, n_processes)
    assert sorted(ordered) == sorted([*long, *others])
    if n_others < 13:
        return
    at = 0
    for number in range(n_processes):
        n_part = (len(ordered) - at) // (n_processes - number)
        part, share = ordered[at : at + n_part], long[number::n_processes]
        assert part[: len(share)] == share
        assert not [name for name in part[len(share) :] if name.startswith("long")]
        at += n_part
