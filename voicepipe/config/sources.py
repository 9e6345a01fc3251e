"""The sources of settings: a file, the environment, the command line; later ones override earlier ones, key by key."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from voicepipe.agents import Agent
from voicepipe.config.convert import Found
from voicepipe.errors import ConfigError

KeyPath = tuple[str, ...]
Leaves = dict[KeyPath, Found]
"""The values as written, flat: ("agents", "default", "llm") -> its value."""

SECTIONS = (
    "server",
    "webrtc",
    "budget",
    "deadlines",
    "conversation",
    "cluster",
    "records",
    "journals",
    "recordings",
    "telemetry",
    "dashboard",
    "quality",
    "bench_schedule",
    "catalog",
    "router",
    "provider_limits",
    "quotas",
    "response_cache",
    "providers",
    "agents",
    "tools",
    "mcp",
    "pools",
    "rules",
    "experiments",
    "webhooks",
    "phone",
    "benches",
    "regions",
)

NAMED = (
    "providers",
    "agents",
    "tools",
    "mcp",
    "pools",
    "rules",
    "experiments",
    "webhooks",
    "phone",
    "benches",
    "regions",
)
"""Sections with several entries, each with its own name."""

PREFIX = "VOICEPIPE_"
FILE_NAME = "voicepipe.toml"

KEY_FILE_SUFFIX = "_FILE"
"""`GROQ_API_KEY_FILE=/run/secrets/groq`: the way containers and systemd pass secrets, so that no environment readable
by other processes contains them."""


def gather(config: str | None, overrides: Mapping[str, object], environ: Mapping[str, str], folder: Path) -> Leaves:
    """Collect all values; the command line overrides the environment, which overrides the file.

    Raises:
        ConfigError: the named file does not exist, can't be read, or is not TOML; an environment variable
            names no section.
    """
    path = find_file(config, environ, folder)
    leaves = from_file(path) if path is not None else {}
    leaves |= from_environment(environ, leaves)
    leaves |= {tuple(key.split(".")): Found(value, "command line", text=True) for key, value in overrides.items()}
    return leaves


def find_file(config: str | None, environ: Mapping[str, str], folder: Path) -> Path | None:
    """Return the settings' file: the named one, or the first that exists, or None.

    Raises:
        ConfigError: the named file does not exist.
    """
    named = config or environ.get("VOICEPIPE_CONFIG")
    if named:
        path = Path(named).expanduser()
        if not path.is_file():
            came_from = "--config" if config else "$VOICEPIPE_CONFIG"
            raise ConfigError(f"{came_from}: expected a settings file, got {named!r}, which does not exist")
        return path
    home = Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME", "~")).expanduser() / ".config")
    return next((path for path in (folder / FILE_NAME, home / "voicepipe" / FILE_NAME) if _is_there(path)), None)


def _is_there(path: Path) -> bool:
    """Return whether a file is there: none is in a folder that this user can't enter, as the home of the user who calls
    `sudo -u voicepipe`."""
    try:
        return path.is_file()
    except PermissionError:
        return False


def from_file(path: Path) -> Leaves:
    """Read a TOML file, flat.

    Raises:
        ConfigError: the file can't be read or is not TOML.
    """
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, RecursionError, tomllib.TOMLDecodeError) as problem:
        raise ConfigError(f"{path}: expected a TOML file, got one that can't be read: {problem}") from problem
    return {key: Found(value, str(path)) for key, value in _flat(tree, ())}


def from_environment(environ: Mapping[str, str], written: Leaves) -> Leaves:
    """Read `VOICEPIPE_SECTION__KEY` and `VOICEPIPE_AGENTS__NAME__KEY`.

    Names match those in the file regardless of case and of `-` against `_`.

    Raises:
        ConfigError: a variable begins like a section but is not written with `__`, or names no section.
    """
    leaves: Leaves = {}
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name == "VOICEPIPE_CONFIG":
            continue
        parts = tuple(name.removeprefix(PREFIX).lower().split("__"))
        if len(parts) == 1:
            _refuse_single_underscore(name)
        else:
            leaves[_as_written(parts, written)] = Found(environ[name], f"${name}", text=True)
    return leaves


def _refuse_single_underscore(name: str) -> None:
    """Refuse a variable with the prefix but without `__` only when it surely was meant as a setting."""
    section, _, rest = name.removeprefix(PREFIX).lower().partition("_")
    if section in SECTIONS and rest:
        raise ConfigError(f"${name}: unknown setting; did you mean {PREFIX}{section.upper()}__{rest.upper()}?")


def _as_written(parts: KeyPath, written: Leaves) -> KeyPath:
    if parts[0] not in NAMED or len(parts) < 3:
        return parts
    names = {path[1] for path in written if path[0] == parts[0] and len(path) > 1}
    name = next((n for n in sorted(names) if n.lower().replace("-", "_") == parts[1]), parts[1])
    return (parts[0], name, *parts[2:])


def from_agents(agents: Iterable[Agent]) -> Leaves:
    """Return the settings of agents in Python, flat."""
    leaves: Leaves = {}
    for agent in agents:
        at = ("agents", agent.name)
        leaves |= {at: Found({}, "Python")}
        leaves |= {path: Found(value, f"Agent {agent.name!r}") for path, value in _flat(agent.settings, at)}
    return leaves


def _flat(tree: Mapping[str, object], above: KeyPath) -> Iterator[tuple[KeyPath, object]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            if not value:
                yield (*above, key), value
            yield from _flat(value, (*above, key))
        else:
            yield (*above, key), value


def key_in(environ: Mapping[str, str], name: str) -> str:
    """Return the key in this variable, or else in the file that `name` with `_FILE` names; empty: neither is set.

    Raises:
        ConfigError: the file can't be read, or is empty.
    """
    if environ.get(name) or not (path := environ.get(name + KEY_FILE_SUFFIX)):
        return environ.get(name, "")
    try:
        key = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(
            f"${name}{KEY_FILE_SUFFIX}: expected a file that can be read, got {path!r}: {problem}"
        ) from problem
    if not key:
        raise ConfigError(f"${name}{KEY_FILE_SUFFIX}: expected a file that holds a key, got {path!r}, which is empty")
    return key
