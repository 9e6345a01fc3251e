"""`voicepipe serve` has its memory in huge pages where Linux gives them to programs that request them."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import signal
import sys
import warnings
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.wiring.test_serve import config_file, lines_until
from voicepipe.cli import main
from voicepipe.huge_pages import (
    CHOSEN_BY_OPERATOR,
    ENABLED,
    VARIABLES,
    environment_without_huge_pages,
    restart_with_huge_pages,
    variables,
)
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.waiting import WAIT_S

ON_ANY_MACHINE = pytest.mark.filterwarnings("default:no huge pages on request")
"""A machine without huge pages is no failure, and pytest's summary names what it lacks."""

GLIBC = ("glibc", "2.36")
REQUESTED = "always [madvise] never\n"

SCRIPT = "import sys\nfrom voicepipe.cli import main\nsys.exit(main())\n"
"""What pip writes into the program `voicepipe`."""


@pytest.mark.parametrize("libc", [GLIBC, ("glibc", "2.35"), ("glibc", "3.0"), ("glibc", "2.100")])
def test_a_process_can_request_huge_pages(libc: tuple[str, str]) -> None:
    assert variables({"PATH": "/bin"}, libc, REQUESTED) == VARIABLES


@pytest.mark.parametrize("libc", [("glibc", "2.34"), ("glibc", "2.4"), ("musl", "2.36"), ("", "")])
def test_another_c_library_requests_none(libc: tuple[str, str]) -> None:
    assert variables({}, libc, REQUESTED) == {}


@pytest.mark.parametrize("enabled", [None, "", "always madvise [never]\n", "[always] madvise never\n"])
def test_linux_has_none_or_gives_them_unrequested(enabled: str | None) -> None:
    assert variables({}, GLIBC, enabled) == {}


@pytest.mark.parametrize("name", CHOSEN_BY_OPERATOR)
@pytest.mark.parametrize("value", ["", "pymalloc"])
def test_the_operator_s_choice_stays(name: str, value: str) -> None:
    assert variables({name: value}, GLIBC, REQUESTED) == {}


Started = list[tuple[str, Sequence[str], Mapping[str, str]]]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """What the process would be restarted as; it is on a machine with huge pages."""
    found: Started = []
    monkeypatch.setattr(os, "execve", lambda *call: found.append(call))
    monkeypatch.setattr(platform, "libc_ver", lambda: GLIBC)
    for name in CHOSEN_BY_OPERATOR:
        monkeypatch.delenv(name, raising=False)
    return found


@pytest.fixture
def enabled(tmp_path: Path) -> Path:
    path = tmp_path / "enabled"
    path.write_text(REQUESTED)
    return path


def test_a_process_is_restarted_once_with_its_own_arguments(
    started: Started, enabled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python3", "-X", "utf8", "-m", "voicepipe", "serve", "--port", "0"])
    environ = dict(os.environ)
    restart_with_huge_pages(enabled)
    arguments = [sys.executable, "-X", "utf8", "-m", "voicepipe", "serve", "--port", "0"]
    assert started == [(sys.executable, arguments, {**environ, **VARIABLES})]
    assert dict(os.environ) == environ
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    restart_with_huge_pages(enabled)
    assert len(started) == 1


def test_a_machine_without_the_setting_is_no_failure(started: Started, tmp_path: Path) -> None:
    restart_with_huge_pages(tmp_path / "absent")
    assert started == []


def test_a_process_that_may_start_no_program_goes_on(
    started: Started, enabled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*call: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "execve", refuse)
    restart_with_huge_pages(enabled)
    assert started == []


def test_only_the_command_s_own_process_is_restarted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A program that calls `main` with arguments, as tests do, is not `voicepipe`."""
    calls: list[str] = []
    monkeypatch.setattr(sys.modules["voicepipe.cli.main"], "restart_with_huge_pages", lambda: calls.append("restarted"))
    serve = ["serve", "--config", str(tmp_path / "absent.toml")]
    assert main(serve) == 2
    monkeypatch.setattr(sys, "argv", ["voicepipe", "keys", "list", "--data-dir", str(tmp_path)])
    assert main() == 0
    assert calls == []
    monkeypatch.setattr(sys, "argv", ["voicepipe", *serve])
    assert main() == 2
    assert calls == ["restarted"]


def test_a_program_that_saves_memory_gets_the_operator_s_variables_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    without = dict(os.environ)
    monkeypatch.setenv("PYTHONMALLOC", "malloc")
    assert environment_without_huge_pages() == without | {"PYTHONMALLOC": "malloc"}
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    assert environment_without_huge_pages() == without


@asynccontextmanager
async def serving(folder: Path, *program: str, **environ: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A server that has started, on a machine whose operator has chosen `environ`."""
    left_out = ("VOICEPIPE_", *CHOSEN_BY_OPERATOR)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    async with FakeVendor() as vendor:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *program, "serve", "--config", str(config_file(folder, vendor))),
            stdout=asyncio.subprocess.PIPE,
            env=inherited | environ,
        )
        try:
            await lines_until(process, "Ctrl-C")
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()


def given(pid: int) -> dict[str, str]:
    """The variables that choose the allocator, of those that a process was started with."""
    pairs = (pair.partition("=") for pair in Path(f"/proc/{pid}/environ").read_text().split("\0"))
    return {name: value for name, _, value in pairs if name in CHOSEN_BY_OPERATOR}


def huge_kib(pid: int) -> int:
    """The memory in huge pages of a process, in KiB."""
    found = re.search(r"^AnonHugePages: +(\d+) kB$", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
    assert found is not None
    return int(found[1])


def expected() -> Mapping[str, str]:
    """The variables that a server on this machine gets. Where there are none, pytest's summary has a warning."""
    text = ENABLED.read_text() if ENABLED.exists() else None
    found = variables({}, platform.libc_ver(), text)
    if not found:
        warnings.warn(f"no huge pages on request: {ENABLED} has {text!r}, libc is {platform.libc_ver()}", stacklevel=1)
    return found


@pytest.mark.slow
@ON_ANY_MACHINE
@pytest.mark.parametrize("form", ["module", "script"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_server_has_huge_pages_and_ends_as_before(tmp_path: Path, form: str, number: signal.Signals) -> None:
    script = tmp_path / "voicepipe"
    script.write_text(SCRIPT)
    program = ("-m", "voicepipe") if form == "module" else (str(script),)
    async with serving(tmp_path, *program) as process:
        assert given(process.pid) == expected()
        assert huge_kib(process.pid) > 0 or not expected()
        process.send_signal(number)
        async with asyncio.timeout(WAIT_S):
            assert await process.wait() == 0


@pytest.mark.slow
@ON_ANY_MACHINE
async def test_the_operator_can_switch_it_off(tmp_path: Path) -> None:
    async with serving(tmp_path, "-m", "voicepipe", PYTHONMALLOC="pymalloc") as process:
        assert given(process.pid) == {"PYTHONMALLOC": "pymalloc"}
        assert huge_kib(process.pid) == 0 or not expected()


@pytest.mark.slow
@ON_ANY_MACHINE
async def test_workers_have_huge_pages_too(tmp_path: Path) -> None:
    async with serving(tmp_path, "-m", "voicepipe", VOICEPIPE_SERVER__WORKERS="2") as process:
        workers = psutil.Process(process.pid).children()
        assert len(workers) == 2
        for worker in workers:
            assert given(worker.pid) == expected()
            assert huge_kib(worker.pid) > 0 or not expected()
