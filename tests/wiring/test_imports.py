"""What starting the server loads: a fresh process shows it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from voicepipe.providers.built_in import PACKAGES

pytestmark = pytest.mark.slow

LATER = (
    *("onnxruntime", "xllamacpp", "moonshine_voice", "hibari", "soundfile", "rich", "openai", "pydantic", "pytest"),
    *("opentelemetry", "requests", "jwt", "cryptography", "num2words", "markdown_it", "yaml"),
)
"""Heavy modules, or ones outside the base: each is loaded by the code that needs it, when it does."""


def test_the_server_starts_without_the_engines_and_what_only_commands_need() -> None:
    code = "import sys, voicepipe.cli.serve, voicepipe.wiring.serve; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    modules = {name.partition(".")[0] for name in loaded.stdout.split()}
    assert "aiohttp" in modules
    assert modules.isdisjoint(LATER)
    assert not any(name.startswith("voicepipe.testing") for name in loaded.stdout.split())
    assert {"voicepipe.bench.llm", "voicepipe.router.complexity"}.isdisjoint(loaded.stdout.split())


def test_the_supervisor_of_workers_starts_without_what_serves() -> None:
    """It stays beside its workers, and they start when it has loaded."""
    code = "import sys, voicepipe.cli.serve, voicepipe.wiring.workers; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    modules = set(loaded.stdout.split())
    assert "voicepipe.server.workers.supervisor" in modules
    assert modules.isdisjoint(
        {"numpy", "aiohttp", "websockets", "voicepipe.wiring.server", "voicepipe.server.app", *LATER}
    )


def test_the_store_of_turns_loads_without_the_server() -> None:
    """A command that only reads it has no server to load."""
    code = "import sys, voicepipe.wiring.store; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    modules = set(loaded.stdout.split())
    assert "voicepipe.wiring.store" in modules
    assert modules.isdisjoint({"voicepipe.wiring.server", "voicepipe.server.app", "voicepipe.session.session"})


def test_the_vendors_profiles_load_without_their_adapters() -> None:
    code = "import sys, voicepipe.providers.built_in; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    modules = {name for name in loaded.stdout.split() if name.startswith("voicepipe.providers.")}
    packages = {f"voicepipe.providers.{name}" for name in PACKAGES}
    profiles = {f"{package}.vendor" for package in packages}
    assert modules == {"voicepipe.providers.built_in", "voicepipe.providers.vendor", *packages, *profiles}


def test_the_command_line_loads_a_command_on_use() -> None:
    """What one command needs is no other's time to start."""
    code = "import sys; from voicepipe.cli import main; main(['records', '--help'])"
    code = f"import atexit; atexit.register(lambda: print(*sorted(sys.modules)))\n{code}"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    modules = set(loaded.stdout.splitlines()[-1].split())
    assert "voicepipe.cli.main" in modules
    assert modules.isdisjoint({"aiohttp", "numpy", *LATER})


def test_the_settings_load_without_the_server() -> None:
    code = "import sys, voicepipe.config; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    modules = {name.partition(".")[0] for name in loaded.stdout.split()}
    assert modules.isdisjoint({"aiohttp", "numpy", *LATER})
