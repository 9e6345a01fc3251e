"""Read a provider's key from an environment variable, or from a file that an environment variable names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from voicepipe.errors import ConfigError

SUFFIX = "_FILE"
"""`GROQ_API_KEY_FILE=/run/secrets/groq`: the way containers and systemd pass secrets, so that no environment readable
by other processes contains them."""


def key_in(environ: Mapping[str, str], name: str) -> str:
    """Return the key in this variable, or else in the file that `name` with `_FILE` names; empty: neither is set.

    Raises:
        ConfigError: the file can't be read, or is empty.
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
