"""The options of each command of `voicepipe`, as its parser reads them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from voicepipe.errors import ConfigError

if TYPE_CHECKING:
    from voicepipe.agents import Agent

KEY_VARIABLE: Final = "VOICEPIPE_KEY"
"""The variable from which `talk` reads its key: command line arguments are visible to every user of the machine."""

SHORTHANDS: Final = {
    "host": "server.host",
    "port": "server.port",
    "workers": "server.workers",
    "data_dir": "server.data_dir",
    "tls_cert": "server.tls_cert",
    "tls_key": "server.tls_key",
    "tls_dev": "server.tls_dev",
    "trust_proxy": "server.trusted_proxies",
    "stt": "agents.default.stt",
    "llm": "agents.default.llm",
    "tts": "agents.default.tts",
}
"""Options that set a setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of every command. An omitted option has its default."""

    command: str
    config: str | None = None
    data_dir: str | None = None
    set: tuple[str, ...] = ()

    def overrides(self) -> dict[str, object]:
        """Return the settings among the options, by dotted key.

        Raises:
            ConfigError: a `--set` is not KEY=VALUE.
        """
        written: dict[str, object] = {}
        for pair in self.set:
            key, equals, value = pair.partition("=")
            if not (key and equals):
                raise ConfigError(f"--set: expected KEY=VALUE, for example server.port=9000, got {pair!r}")
            written[key.strip()] = value
        shorthands = ((key, getattr(self, name, None)) for name, key in SHORTHANDS.items())
        return written | {key: _written(key, value) for key, value in shorthands if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOptions(Options):
    """Options of commands that run a server or its stages."""

    file: Path | None = None
    """A Python file with agents."""

    stt: str | None = None
    llm: str | None = None
    tts: str | None = None

    @property
    def picks_models(self) -> bool:
        """Return whether models or a Python file were named, which only a locally started server can apply."""
        return any((self.stt, self.llm, self.tts, self.file))

    def agents(self) -> tuple[Agent, ...]:
        """Load the agents of the Python file that was named; none without one.

        Raises:
            ConfigError: the file cannot be read, fails, or has no agent.
        """
        if self.file is None:
            return ()
        from voicepipe.agents import load_file

        return load_file(self.file)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions(StageOptions):
    host: str | None = None
    port: str | None = None
    workers: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_dev: str | None = None
    trust_proxy: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TalkOptions(StageOptions):
    sound: Path | None = None
    """The recording; None: the microphone."""

    out: Path | None = None
    play: bool = False
    turns: int | None = None
    url: str | None = None
    key: str | None = None
    agent: str | None = None
    text: bool = False
    type: str | None = None
    """A typed question, in place of a recording."""

    @property
    def credential(self) -> str | None:
        """Return the key to connect with."""
        return self.key or environment_key()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalOptions(StageOptions):
    scenarios: tuple[Path, ...]
    runs: int = 1
    time: Literal["real", "virtual"] = "real"
    url: str | None = None
    key: str | None = None
    agent: str | None = None
    judge: str | None = None
    persona: str | None = None
    user_tts: str | None = None
    junit: Path | None = None
    html: Path | None = None

    @property
    def credential(self) -> str | None:
        """Return the key to connect with."""
        return self.key or environment_key()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions(StageOptions):
    agent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvidersOptions(Options):
    names: tuple[str, ...] = ()
    probe: bool = False
    json: bool = False
    project: str = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionsOptions(Options):
    names: tuple[str, ...] = ()
    tries: int = 5
    probe: bool = False
    json: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysOptions(Options):
    action: str
    project: str = "default"
    name: str = ""
    scope: tuple[str, ...] = ()
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenOptions(Options):
    project: str = "default"
    agent: str | None = None
    subject: str = ""
    identity: str = ""
    seconds: int | None = None
    scope: tuple[str, ...] = ()
    origin: tuple[str, ...] = ()
    max_sessions: int | None = None
    session_seconds: int | None = None
    turns: int | None = None
    spend_usd: float | None = None
    session: str = ""
    lock: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeOptions(Options):
    id: str = ""
    subject: str = ""
    project: str = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsOptions(Options):
    action: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions(Options):
    """Options of each bench of a stage."""

    action: str
    specs: tuple[str, ...]
    n: int = 20
    concurrency: int = 1
    out: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmBenchOptions(BenchOptions):
    prompts: Path | None = None
    cache: str = "cold"
    max_tokens: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SttBenchOptions(BenchOptions):
    manifest: Path | None = None
    language: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TtsBenchOptions(BenchOptions):
    texts: Path | None = None
    cached: bool = False
    voice: str | None = None
    language: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleOptions(Options):
    action: str
    once: bool = False
    list: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointingBenchOptions(Options):
    action: str
    data: tuple[Path, ...]
    rule: tuple[str, ...] = ()
    smart_turn: Path | None = None
    traces: Path | None = None
    without_words: bool = False
    without_sentence_end: bool = False
    out: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBenchOptions(Options):
    action: str
    sound: Path | None = None
    users: tuple[int, ...] = (1,)
    turns: int = 5
    rounds: int = 1
    silence_ms: int = 200
    server: tuple[str, ...] = ("voicepipe",)
    profile: bool = False
    pin: bool = False
    admission: int = 0
    flooded: int = 20
    target: str | None = None
    pid: int | None = None
    label: str = "server"
    providers_port: int | None = None
    out: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions(Options):
    action: str
    pool: tuple[str, ...] = ()
    policy: tuple[str, ...] = ()
    turns: int = 20_000
    seed: int = 7
    latencies: Path | None = None
    slower: float = 1.0
    cached_factor: float = 1.0
    csv: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityOptions(Options):
    action: str
    users: tuple[int, ...] = (100, 1_000, 10_000, 100_000)
    call_s: float = 180.0
    speech_ms: int = 2_500
    answer_ms: int = 4_900
    pause_ms: int = 400
    silence_ms: int = 200
    stt_ms: int = 50
    llm_ms: int = 200
    tts_ms: int = 80
    spread: float = 0.0
    failures: float = 0.0
    lost_nodes: int = 0
    cores: int = 8
    balance: str = "random"
    refused: float = 0.01
    costs: Path | None = None
    seed: int = 7
    csv: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions(Options):
    files: tuple[Path, ...]
    what_if: tuple[str, ...] = ()
    json: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions(Options):
    action: str
    files: tuple[Path, Path]
    p95_ms: float = 50.0
    misses: float = 0.01
    min_turns: int | None = None


def _written(key: str, value: str | tuple[str, ...]) -> str:
    """Return an option's value as the settings have it."""
    if isinstance(value, tuple):
        return ",".join(value)
    if key != "agents.default.llm" or not value.lower().endswith(".gguf") or value.startswith("gguf/"):
        return value
    return f"gguf/{Path(value).expanduser().absolute()}"


def environment_key() -> str | None:
    """Return the key in $VOICEPIPE_KEY."""
    return os.environ.get(KEY_VARIABLE) or None
