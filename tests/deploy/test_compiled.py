"""The package with compiled modules and without any: the tests of the audio pass with both."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]

TESTS = (
    *(f"tests/audio/test_{name}.py" for name in ("echo_detector", "frame_gaps", "history", "levels", "near_field")),
    *(f"tests/audio/test_{name}.py" for name in ("kernels", "resample", "samples", "silero", "vad_segmenter")),
    "tests/audio/test_compiled_kernels.py",
    *("tests/session/test_audio_input.py", "tests/session/test_read_limit.py", "tests/wiring/test_running.py"),
)
"""Of the compiled modules, and of a whole server that uses them."""

PRINT_FILES = """\
import importlib, pathlib, setup
for path in (*setup.COMPILED, "voicepipe/audio/_kernels.py"):
    print(importlib.import_module(path.removesuffix(".py").replace("/", ".")).__file__)
"""


@pytest.fixture
def source(up: ModuleType, root: Path, tmp_path: Path) -> Path:
    """A folder with the package, of which nothing is compiled, and the tests."""
    folder = tmp_path / "clone"
    up.copy_sources(folder)
    shutil.copytree(root / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def build(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Compile there what `setup.py` names."""
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    unset = {name: value for name, value in os.environ.items() if name != "UP_COMPILE"}
    return subprocess.run(command, cwd=folder, env={**unset, **variables}, capture_output=True, text=True, check=False)


def run(folder: Path, *arguments: str, **variables: str) -> str:
    """Run this Python there, on that package; return what it printed, which a failure shows."""
    given = {**os.environ, "PYTHONPATH": str(folder), **variables}
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr[-2_000:]
    return done.stdout


def loops(folder: Path) -> list[Path]:
    """Return the loops in C that are there."""
    return list((folder / "voicepipe" / "audio").glob("_kernels.*.so"))


def why_numpy(folder: Path) -> str:
    """Return why the loops run in numpy there; empty if they run in C."""
    return run(folder, "-c", "from voicepipe.audio.compiled import WHY_NUMPY; print(WHY_NUMPY)").strip()


def test_tests_of_audio_pass_with_compiled_modules(source: Path) -> None:
    """Their assertions are those of the plain modules."""
    done = build(source, UP_COMPILE="1", MYPYC_OPT_LEVEL="1")  # sooner done than -O3
    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr[-2_000:]
    files = run(source, "-c", PRINT_FILES).split()
    assert len(files) > 10
    assert [file for file in files if not file.endswith(".so") or not file.startswith(str(source))] == []
    assert " passed" in run(source, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not plain", *TESTS)


def test_tests_of_audio_pass_in_numpy(source: Path) -> None:
    """Where nothing could be compiled. Tests of the loops in C would fail there."""
    assert build(source, UP_COMPILE="0").returncode == 0
    assert loops(source) == []
    assert why_numpy(source) == "they are not compiled"
    tests = [each for each in TESTS if "compiled_kernels" not in each]
    arguments = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not in_c", *tests)
    assert int(re.findall(r"(\d+) passed", run(source, *arguments))[-1]) > 300


def test_loops_are_optional_unless_requested(source: Path) -> None:
    """The package is built without them where the compiler fails."""
    assert build(source, CC="false").returncode == 0
    assert loops(source) == []
    program = "import setup; setup.modules = list; (loops,) = setup.extensions(); print(loops.name, loops.optional)"
    in_a_build = ("-c", f"import sys; sys.argv.append('build_ext'); {program}")
    assert run(source, *in_a_build, UP_COMPILE="").split() == ["voicepipe.audio._kernels", "True"]
    assert run(source, *in_a_build, UP_COMPILE="1").split() == ["voicepipe.audio._kernels", "False"]
    assert build(source).returncode == 0
    assert len(loops(source)) == 1
    assert why_numpy(source) == ""


def test_a_wheel_has_no_modules_of_another_build(source: Path) -> None:
    """One with compiled modules leaves them in its build folder: a plain wheel has only the loops."""
    left = source / "build" / "compiled" / f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    for folder in (left, source / "build" / "lib"):
        (folder / "voicepipe" / "audio").mkdir(parents=True)
        (folder / "voicepipe" / "audio" / f"samples{sysconfig.get_config_var('EXT_SUFFIX')}").write_text("old")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "."]
    unset = {name: value for name, value in os.environ.items() if name != "UP_COMPILE"}
    done = subprocess.run(
        [*command, "-w", "wheels"], cwd=source, env=unset, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    (wheel,) = (source / "wheels").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        compiled = [name for name in archive.namelist() if name.endswith(".so")]
    assert len(compiled) == 1
    assert compiled[0].startswith("voicepipe/audio/_kernels.")


def test_loops_that_do_not_fit_are_not_used(source: Path) -> None:
    """Those of another source, of a version without a digest, those that can't be loaded, and those without AVX2."""
    assert build(source).returncode == 0
    code = source / "voicepipe" / "audio" / "_kernels.c"
    text = code.read_text()
    code.write_text(text + "\n")
    assert why_numpy(source) == "they were compiled from another version of _kernels.c"
    code.unlink()  # an installation without sources
    assert why_numpy(source) == ""
    code.write_text(text.replace('module, "SOURCE_SHA256"', 'module, "OTHER"'))
    assert build(source).returncode == 0
    assert why_numpy(source) == "they were compiled from another version of _kernels.c"
    code.write_text(text.replace('__builtin_cpu_supports("avx2")', "0"))  # as on another processor
    assert build(source).returncode == 0
    assert why_numpy(source) == ""
    is_used = (
        "from voicepipe.audio import compiled, samples; print(compiled.IS_COMPILED, samples.peak is samples._peak)"
    )
    assert run(source, "-c", is_used).split() == ["False", "True"]
    loops(source)[0].write_bytes(b"for another machine")
    assert why_numpy(source).startswith("compiled ones can't be loaded: ")
