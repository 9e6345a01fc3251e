"""What a machine is found fit for."""

from pathlib import Path
from types import ModuleType

import pytest

FIT = "processor\t: 0\nflags\t\t: fpu sse2 avx2 fma f16c\n\nprocessor\t: 1\nflags\t\t: fpu\n"


@pytest.fixture
def cpuinfo(tmp_path: Path, machine: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Linux machine whose processor is as the file says."""
    monkeypatch.setattr(machine.platform, "system", lambda: "Linux")
    monkeypatch.setattr(machine.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(machine, "glibc_version", lambda: (2, 36))
    path = tmp_path / "cpuinfo"
    path.write_text(FIT)
    return path


def test_a_fit_machine_is_fit(machine: ModuleType, cpuinfo: Path) -> None:
    """Linux, x86-64, the instructions and the C library that the wheels were built for."""
    assert machine.unfit_for_local_models(cpuinfo) is None


@pytest.mark.parametrize("flag", ["avx2", "fma", "f16c"])
def test_a_missing_instruction_set_is_named(machine: ModuleType, cpuinfo: Path, flag: str) -> None:
    """Before a model is loaded, which would end the process without a word."""
    cpuinfo.write_text(FIT.replace(f" {flag}", ""))
    assert machine.unfit_for_local_models(cpuinfo).endswith(f"lacks {flag}")


def test_another_system_is_named(machine: ModuleType, cpuinfo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason names the machine, and no Linux file is requested."""
    monkeypatch.setattr(machine.platform, "system", lambda: "Darwin")
    cpuinfo.unlink()
    assert machine.unfit_for_local_models(cpuinfo) == "they need Linux on x86_64, this is Darwin on x86_64"


@pytest.mark.parametrize(("version", "words"), [((2, 31), "has 2.31"), ((), "has another C library")])
def test_an_older_c_library_is_named(
    machine: ModuleType, cpuinfo: Path, monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...], words: str
) -> None:
    """Debian 11 has glibc 2.31; Alpine has none."""
    monkeypatch.setattr(machine, "glibc_version", lambda: version)
    assert machine.unfit_for_local_models(cpuinfo).endswith(words)


def test_only_missing_packages_are_listed(machine: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bare Debian lacks all; the OpenMP library matters to the local models only, the others to tests only."""
    monkeypatch.setattr(machine, "has_pip", lambda: False)
    monkeypatch.setattr(machine, "has_openmp", lambda: False)
    monkeypatch.setattr(machine, "has_browser", lambda: False)
    monkeypatch.setattr(machine, "has_postgres", lambda: False)
    monkeypatch.setattr(machine, "has_redis", lambda: False)
    monkeypatch.setattr(machine, "has_nginx", lambda: False)
    monkeypatch.setattr(machine, "has_haproxy", lambda: False)
    monkeypatch.setattr(machine, "has_systemd", lambda: False)
    monkeypatch.setattr(machine, "has_promtool", lambda: False)
    monkeypatch.setattr(machine, "has_compiler", lambda: False)
    monkeypatch.setattr(machine, "has_headers", lambda: False)
    assert machine.missing_packages(local=True) == [machine.PIP, "libgomp1"]
    assert machine.missing_packages(local=False) == [machine.PIP]
    assert machine.missing_packages(local=False, compiled=True) == [machine.PIP, *machine.TO_COMPILE]
    for_tests = ["chromium", "postgresql", "redis-server", "nginx-light", "haproxy", "systemd", "prometheus"]
    assert machine.missing_packages(local=False, tests=True) == [machine.PIP, *for_tests]
    monkeypatch.setattr(machine, "has_pip", lambda: True)
    monkeypatch.setattr(machine, "has_openmp", lambda: True)
    monkeypatch.setattr(machine, "has_browser", lambda: True)
    monkeypatch.setattr(machine, "has_postgres", lambda: True)
    monkeypatch.setattr(machine, "has_redis", lambda: True)
    monkeypatch.setattr(machine, "has_nginx", lambda: True)
    monkeypatch.setattr(machine, "has_haproxy", lambda: True)
    monkeypatch.setattr(machine, "has_systemd", lambda: True)
    monkeypatch.setattr(machine, "has_promtool", lambda: True)
    monkeypatch.setattr(machine, "has_compiler", lambda: True)
    monkeypatch.setattr(machine, "has_headers", lambda: True)
    assert machine.missing_packages(local=True, tests=True, compiled=True) == []


@pytest.mark.parametrize(
    ("user", "ci", "prefix"), [(0, "", ["env"]), (1000, "true", ["sudo", "-n", "env"]), (1000, "", None)]
)
def test_who_installs_system_packages(
    machine: ModuleType, monkeypatch: pytest.MonkeyPatch, user: int, ci: str, prefix: list[str] | None
) -> None:
    """Root installs them, CI uses sudo, and a person gets a request to do it."""
    ran: list[list[str]] = []
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(machine.os, "geteuid", lambda: user)
    monkeypatch.setattr(machine.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(machine.subprocess, "run", lambda command, **_: ran.append(command))
    assert machine.install(["libgomp1"]) is (prefix is not None)
    assert [command[: command.index("env") + 1] for command in ran] == ([prefix, prefix] if prefix else [])
    assert [command[-1] for command in ran] == (["update", "libgomp1"] if prefix else [])
