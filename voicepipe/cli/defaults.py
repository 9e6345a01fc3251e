"""Find the default of an option of the command line: that of its setting, or of its field."""

from __future__ import annotations

from dataclasses import MISSING, fields

from voicepipe.cli.options import SHORTHANDS, Options


def default_of(kind: type[Options], name: str) -> str:
    """Return the default of the option `name` of a command, as a user would write it; empty if it has none.

    `kind` is the class of the command's options.
    """
    if name in SHORTHANDS:
        return _written(_default_setting(SHORTHANDS[name]))
    defaults = {field.name: field.default for field in fields(kind) if field.default is not MISSING}
    return _written(defaults.get(name))


def _default_setting(key: str) -> object:
    from voicepipe.config import AgentSettings, ServerSettings  # on use: only the help of a command needs them

    section, _, name = key.rpartition(".")
    return getattr(ServerSettings() if section == "server" else AgentSettings(), name)


def _written(value: object) -> str:
    match value:
        case None | bool():
            return ""
        case tuple():
            return " ".join(map(str, value))
        case float():
            return f"{value:g}"
        case _:
            return str(value)
