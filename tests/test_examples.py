"""What passes once passes every time: the property tests draw the same examples in each run, and others in a search."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

TESTS = Path(__file__).parent

DRAW = """
import sys
from hypothesis import given, settings, strategies

sys.path.append(sys.argv[1])
import hypothesis_profiles

if sys.argv[2:]:
    settings.load_profile(sys.argv[2])

@given(strategies.lists(strategies.integers()))
def drawn(numbers):
    print(numbers)

drawn()
"""


def drawn(folder: Path, *profile: str, hash_seed: str, **environment: str) -> list[str]:
    """The examples of a property under the tests' own settings, drawn by a process of its own.

    It does without the tests' `conftest.py`, which imports the whole server.
    """
    program = folder / "draw.py"
    program.write_text(DRAW)
    out = subprocess.run(
        [sys.executable, str(program), str(TESTS), *profile],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env=os.environ | {"PYTHONHASHSEED": hash_seed} | environment,
    ).stdout.splitlines()
    assert len(out) >= 100
    return out


@pytest.mark.slow
def test_each_run_draws_the_same_examples_and_a_search_draws_others(tmp_path: Path) -> None:
    """Nothing is stored that another run would begin with, except by a search."""
    first = drawn(tmp_path, hash_seed="1")
    assert drawn(tmp_path, hash_seed="2") == first
    assert not (tmp_path / ".hypothesis" / "examples").exists()
    assert drawn(tmp_path, "search", hash_seed="1") != first
    assert drawn(tmp_path, "search", hash_seed="1", CI="true") != first  # which changes the library's own default


def test_this_run_draws_the_same_examples() -> None:
    """It has the profile that the processes above have."""
    assert settings.default is settings.get_profile("same")


def test_no_test_decides_that_for_itself() -> None:
    """A profile that one file loads holds for all that come after it, and settings of its own win over the profile."""
    words = ("load_profile(", "derandomize=", "database=Ex", "database=Dir", "register_profile(")
    files = [path for path in TESTS.rglob("test_*.py") if path != Path(__file__)]
    assert [str(path) for path in files for word in words if word in path.read_text()] == []
