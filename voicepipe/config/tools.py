"""`[tools.NAME]`: functions that agents may call, and a server of yours answers over HTTP."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, Protocol

from voicepipe.agents.http_tool_options import HttpToolOptions, ParameterType
from voicepipe.config.convert import SECRET, SECRET_TABLE, between
from voicepipe.config.sources import KeyPath, Leaves, key_in
from voicepipe.errors import ConfigError
from voicepipe.ports.server_tool import ENDING_TOOLS, SEND_DTMF, TOOL_NAME
from voicepipe.protocol.prompt import check_placeholders, listed
from voicepipe.session.hand_over import HAND_OVER
from voicepipe.telemetry.webhooks.payload import read_secrets
from voicepipe.values import replace

_VARIABLE: Final = re.compile(r"\$\{(\w+)\}")

Read = Callable[[Any, KeyPath, Leaves], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterEntry:
    """A `[tools.NAME.parameters.NAME]`: a parameter of a tool."""

    type: ParameterType = "string"
    """The type of the value."""

    description: str = ""
    """What the LLM reads of it."""

    required: bool = True
    """Whether the LLM must give a value."""

    one_of: tuple[str, ...] = ()
    """The allowed texts; empty: any."""

    list: bool = False
    """Whether the value is a list of such values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEntry:
    """A `[tools.NAME]`: a function that agents may call."""

    description: str = ""
    """What the LLM reads of the function."""

    url: Annotated[str, SECRET] = field(default="", repr=False)
    """The address to call, `http://` or `https://`; `{{name}}` is replaced by the parameter of that name. Redirects are
    not followed. Never shown, since it may contain a key."""

    method: Literal["POST", "GET", "PUT", "PATCH", "DELETE"] = "POST"
    """With `GET` and `DELETE`, parameters that the address does not name are its query; otherwise the body has the
    arguments and the session as JSON."""

    headers: Annotated[tuple[tuple[str, str], ...], SECRET_TABLE] = field(default=(), repr=False)
    """Headers of the request. `${NAME}` in a value is replaced by that environment variable; the server does not start
    without it."""

    secret: Annotated[str, SECRET] = field(default="", repr=False)
    """Signs each request as [webhooks](webhooks.md) are signed: `whsec_` and 24 to 64 bytes in base64. Empty: none
    does."""

    secret_env: str = ""
    """The environment variable that holds the secret; if it is named but empty or unset, the server does not start."""

    timeout_ms: Annotated[int, between(1, 600_000)] = 10_000
    """Time limit of a call. The LLM then reads that there is no result."""

    side_effects: bool = True
    """Whether the function changes something: the same call then runs once in a turn, when the end of the turn is
    certain. Off: it runs as soon as the LLM calls it, and its result is dropped if the user goes on."""

    cancellable: bool = False
    """Whether the user's next turn cancels a call that runs."""


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """A tool of the settings, checked."""

    entry: ToolEntry
    parameters: tuple[tuple[str, ParameterEntry], ...]

    def options(self, name: str) -> HttpToolOptions:
        """Return the tool as the caller of its address needs it."""
        entry = self.entry
        return HttpToolOptions(
            name=name,
            description=entry.description,
            url=entry.url,
            method=entry.method,
            headers=entry.headers,
            secrets=read_secrets(entry.secret) if entry.secret else (),
            timeout_ms=entry.timeout_ms,
            side_effects=entry.side_effects,
            cancellable=entry.cancellable,
            parameters=tuple(
                (each, of.type, of.description, of.required, of.one_of, of.list) for each, of in self.parameters
            ),
        )


class _HasTools(Protocol):
    @property
    def tools(self) -> tuple[str, ...]: ...
    @property
    def hand_over(self) -> tuple[str, ...]: ...


def read_tools(leaves: Leaves, read: Read, env: Mapping[str, str]) -> dict[str, ToolSettings]:
    """Return the tools of the settings.

    Raises:
        ConfigError: naming the key of a missing or wrong value.
    """
    tools: dict[str, ToolSettings] = {}
    for name in sorted({path[1] for path in leaves if path[0] == "tools" and len(path) > 1}):
        at = ("tools", name)
        below = (*at, "parameters")
        entry: ToolEntry = read(ToolEntry(), at, {path: leaf for path, leaf in leaves.items() if path[:3] != below})
        names = sorted({path[3] for path in leaves if path[:3] == below and len(path) > 3})
        parameters = tuple((each, read(ParameterEntry(), (*below, each), leaves)) for each in names)
        tools[name] = ToolSettings(_checked(entry, name, names, env), parameters)
    return tools


def _checked(entry: ToolEntry, name: str, parameters: Collection[str], env: Mapping[str, str]) -> ToolEntry:
    at = f"tools.{name}"
    if name in (*BUILT_IN, HAND_OVER):
        raise ConfigError(f"{at}: expected another name than that of the built-in tool")
    if not TOOL_NAME.fullmatch(name):
        raise ConfigError(f"{at}: expected a name of letters, digits, _ and -, at most 64, got {name!r}")
    if not entry.url.startswith(("http://", "https://")):
        raise ConfigError(f"{at}.url: expected an address that begins with http(s)://, got another one or none")
    check_placeholders(entry.url, parameters, f"{at}.url")
    if entry.secret_env and not entry.secret:
        secret = key_in(env, entry.secret_env)
        if not secret:
            raise ConfigError(f"{at}.secret_env: expected a secret in the variable {entry.secret_env}, got none")
        entry = replace(entry, secret=secret)
    try:
        read_secrets(entry.secret) if entry.secret else ()
    except ConfigError as why:
        raise ConfigError(f"{at}.secret: {why}") from None
    return replace(
        entry, headers=tuple((head, filled_in(text, f"{at}.headers.{head}", env)) for head, text in entry.headers)
    )


def filled_in(text: str, key: str, env: Mapping[str, str]) -> str:
    """Return the text with the values of the environment variables that it names as `${NAME}`.

    Raises:
        ConfigError: one of them is not set; `key` is the setting.
    """

    def value(found: re.Match[str]) -> str:
        if not (secret := key_in(env, found[1])):
            raise ConfigError(f"{key}: expected a value in the environment variable {found[1]}, which is not set")
        return secret

    return _VARIABLE.sub(value, text)


BUILT_IN: Final = (*ENDING_TOOLS, SEND_DTMF)
"""The tools that need no section."""


def check_tools(agents: Mapping[str, _HasTools], tools: Collection[str]) -> None:
    """Check that agents name only tools, and other agents, that exist.

    Raises:
        ConfigError: one does not; the text lists those that exist.
    """
    for agent, options in agents.items():
        others = [name for name in agents if name != agent]
        for name in options.hand_over:
            if name not in others:
                key = f"agents.{agent}.hand_over"
                raise ConfigError(f"{key}: expected names of other agents ({listed(others)}), got {name!r}")
        for name in options.tools:
            if name not in (*tools, *BUILT_IN):
                known = listed((*tools, *BUILT_IN))
                raise ConfigError(f"agents.{agent}.tools: expected names of tools ({known}), got {name!r}")
