"""A provider's key: in an environment variable, or in a file that one names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from voicepipe.errors import ConfigError

SUFFIX = "_FILE"
"""`GROQ_API_KEY_FILE=/run/secrets/groq`: as containers and systemd hand secrets over, so that they stand in no
environment that others may read."""


def key_in(environ: Mapping[str, str], name: str) -> str:
    """The key that this variable holds, or else the file that `name` with `_FILE` names; empty: there is neither.

    Raises:
        ConfigError: the file can't be read, or holds nothing.
    """
    if environ.get(name) or not (path := environ.get(name + SUFFIX)):
        return environ.get(name, "")
    try:
        key = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(f"${name}{SUFFIX}: expected a file that can be read, got {path!r}: {problem}") from problem
    if not key:
        raise ConfigError(f"${name}{SUFFIX}: expected a file that holds a key, got {path!r}, which is empty")
    return key
