"""Check what this machine can run, with the standard library alone."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

OLDEST_PYTHON = (3, 11)

CPU_FLAGS = ("avx2", "fma", "f16c")
"""The instruction sets that the local models' wheels are compiled for; without them they end with an illegal
instruction instead of an error, which is why they are checked before anything is installed or loaded."""

OLDEST_GLIBC = (2, 34)
"""The STT wheel has the tag manylinux_2_34."""


def unfit_python() -> str | None:
    """Return why this interpreter can't run voicepipe, or None when it can."""
    if sys.version_info >= OLDEST_PYTHON:
        return None
    return f"expected Python {dotted(OLDEST_PYTHON)} or newer, got {platform.python_version()} ({sys.executable})"


def unfit_for_local_models(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """Return why the local models can't run here, or None when they can.

    Args:
        cpuinfo: the kernel's description of the processor, as in proc(5).
    """
    system, processor = platform.system(), platform.machine()
    if (system, processor) != ("Linux", "x86_64"):
        return f"they need Linux on x86_64, this is {system} on {processor}"
    missing = [flag for flag in CPU_FLAGS if flag not in cpu_flags(cpuinfo.read_text())]
    if missing:
        return f"they need a processor with {', '.join(CPU_FLAGS)}; this one lacks {', '.join(missing)}"
    if (glibc := glibc_version()) < OLDEST_GLIBC:
        return (
            f"they need glibc {dotted(OLDEST_GLIBC)} or newer, this system has {dotted(glibc) or 'another C library'}"
        )
    return None


def cpu_flags(cpuinfo: str) -> set[str]:
    """Return the flags of the first processor in the text of /proc/cpuinfo; empty when it names none."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return set(value.split())
    return set()


def glibc_version() -> tuple[int, ...]:
    """Return the running C library's version, such as (2, 36); empty when it isn't glibc."""
    name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    return tuple(int(part) for part in version.split(".")) if name == "glibc" else ()


def dotted(version: tuple[int, ...]) -> str:
    """Format a version: `3.11`."""
    return ".".join(map(str, version))


def has_openmp() -> bool:
    """Whether GCC's OpenMP library is installed: the LLM's wheel uses the system's, and a bare Debian has none."""
    try:
        ctypes.CDLL("libgomp.so.1")
    except OSError:
        return False
    return True


def has_pip() -> bool:
    """Whether a new environment gets pip: Debian has it in a separate package."""
    return importlib.util.find_spec("ensurepip") is not None


def has_browser() -> bool:
    """Whether there is a browser that the tests can drive."""
    return any(shutil.which(name) for name in BROWSERS)


def has_postgres() -> bool:
    """Whether there is a Postgres that the tests can start."""
    return shutil.which("initdb") is not None or any(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


def has_redis() -> bool:
    """Whether there is a Redis that the tests can start."""
    return shutil.which("redis-server") is not None


def has_nginx() -> bool:
    """Whether there is an nginx that the tests can put in front of a server."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") is not None


def has_haproxy() -> bool:
    """Whether there is an HAProxy that the tests can put in front of servers."""
    return shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin") is not None


def has_systemd() -> bool:
    """Whether the tests can check the unit with systemd's own tool."""
    return shutil.which("systemd-analyze") is not None


def has_compiler() -> bool:
    """Whether the compiler of this Python's modules is here."""
    compiler = str(sysconfig.get_config_var("CC") or "cc").split()[0]
    return shutil.which(compiler) is not None and (
        platform.system() != "Linux" or Path("/usr/include/stdio.h").exists()
    )


def has_headers() -> bool:
    """Whether modules for this Python can be compiled."""
    return Path(sysconfig.get_path("include"), "Python.h").exists()


def has_promtool() -> bool:
    """Whether the tests can check the alerts with Prometheus' own tool."""
    return shutil.which("promtool") is not None


BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
CHROMIUM = "chromium"
OPENMP = "libgomp1"
POSTGRES = "postgresql"
REDIS = "redis-server"
NGINX = "nginx-light"
HAPROXY = "haproxy"
SYSTEMD = "systemd"
"""Contains `systemd-analyze`, with which the tests check the unit."""

PROMETHEUS = "prometheus"
"""Contains `promtool`, with which the tests check the alerts."""

GCC = "gcc"
LIBC = "libc6-dev"
"""The C library's headers, without which the compiler compiles nothing."""

PIP = f"python{dotted(sys.version_info[:2])}-venv"
HEADERS = f"python{dotted(sys.version_info[:2])}-dev"
"""Python's headers, with which its modules are compiled."""

TO_COMPILE = (GCC, LIBC, HEADERS)


def missing_packages(*, local: bool, tests: bool = False, compiled: bool = False) -> list[str]:
    """Return the missing system packages, under Debian's names.

    Empty if their contents are installed, from any source.

    Args:
        local: whether the local models will run.
        tests: whether to test the talk page, turns in Postgres, shared state in Redis, the balancer examples, the unit,
            and the alerts.
        compiled: whether modules of voicepipe will be compiled.
    """
    needs = (
        (PIP, not has_pip()),
        (OPENMP, local and not has_openmp()),
        (CHROMIUM, tests and not has_browser()),
        (POSTGRES, tests and not has_postgres()),
        (REDIS, tests and not has_redis()),
        (NGINX, tests and not has_nginx()),
        (HAPROXY, tests and not has_haproxy()),
        (SYSTEMD, tests and not has_systemd()),
        (PROMETHEUS, tests and not has_promtool()),
        (GCC, compiled and not has_compiler()),
        (LIBC, compiled and not has_compiler()),
        (HEADERS, compiled and not has_headers()),
    )
    return [package for package, missing in needs if missing]


def install_line(packages: list[str]) -> str:
    """Return one command line that installs these packages, where there is apt-get."""
    if shutil.which("apt-get") is None:
        return f"install what Debian calls {' and '.join(packages)}"
    return f"run `sudo apt-get update && sudo apt-get install -y {' '.join(packages)}`"


def install(packages: list[str]) -> bool:
    """Install Debian packages where no consent is needed; return whether it did.

    As root, and in CI through a sudo without a password. On a personal machine it does nothing: the choice of
    packages there is the user's.

    Raises:
        subprocess.CalledProcessError: apt-get failed; its message has been shown.
    """
    root = os.geteuid() == 0
    if shutil.which("apt-get") is None or not (root or (os.environ.get("CI") and shutil.which("sudo"))):
        return False
    prefix = [] if root else ["sudo", "-n"]
    quiet = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", "Dpkg::Use-Pty=0"]
    subprocess.run([*quiet, "update"], check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    arguments = ["install", "-y", "--no-install-recommends", *packages]
    subprocess.run([*quiet, *arguments], check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    return True
