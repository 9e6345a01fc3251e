"""The package with compiled modules: they are compiled, and the tests of the audio pass with them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]

TESTS = (
    *(f"tests/audio/test_{name}.py" for name in ("echo_detector", "frame_gaps", "history", "levels", "near_field")),
    *(f"tests/audio/test_{name}.py" for name in ("kernels", "resample", "samples", "silero", "vad_segmenter")),
    "tests/audio/check_compiled_kernels.py",
    *("tests/session/test_audio_input.py", "tests/session/test_read_limit.py", "tests/wiring/test_running.py"),
)
"""Of the compiled modules, and of a whole server that uses them."""

PRINT_FILES = """\
import importlib, pathlib, setup
for path in (*setup.COMPILED, "voicepipe/audio/_kernels.py"):
    print(importlib.import_module(path.removesuffix(".py").replace("/", ".")).__file__)
"""


@pytest.fixture
def compiled(up: ModuleType, root: Path, tmp_path: Path) -> Path:
    """A folder with the package, its compiled modules and the tests."""
    folder = tmp_path / "clone"
    up.copy_sources(folder)
    shutil.copytree(root / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    variables = {**os.environ, "UP_COMPILE": "1", "MYPYC_OPT_LEVEL": "1"}  # sooner done than -O3
    done = subprocess.run(build, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr[-2_000:]
    return folder


def run(folder: Path, *arguments: str) -> str:
    """Run this Python there, on that package; return what it printed, which a failure shows."""
    variables = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr[-2_000:]
    return done.stdout


def test_tests_of_audio_pass_with_compiled_modules(compiled: Path) -> None:
    """Their assertions are those of the plain modules."""
    files = run(compiled, "-c", PRINT_FILES).split()
    assert len(files) > 10
    assert [file for file in files if not file.endswith(".so") or not file.startswith(str(compiled))] == []
    assert " passed" in run(compiled, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not plain", *TESTS)
