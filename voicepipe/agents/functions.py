"""Python functions as tools: parameters from the signature, descriptions from the docstring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Final, get_type_hints, overload

import msgspec

from voicepipe.agents.arguments import Parameters
from voicepipe.agents.threads import run_in_thread
from voicepipe.errors import ConfigError
from voicepipe.ports.server_tool import TOOL_NAME, ToolSession
from voicepipe.turn.settings import ServerTool as ToolFacts
from voicepipe.turn.settings import Tool

TIMEOUT_MS: Final = 10_000
"""The time limit of a call, unless the function sets its own."""

LABEL: Final = "agent"
"""The `server_label` of Python functions on the wire."""

_SECTION: Final = re.compile(
    r"^(Args|Arguments|Parameters|Returns|Raises|Yields|Example|Examples|Note|Notes):\s*$", re.M
)
_ARGUMENT: Final = re.compile(r"^\s{0,8}\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.*(?:\n\s{6,}\S.*)*)", re.M)


class FunctionTool:
    """A Python function that the agent may call. Implements `ServerTool`; called directly, it is the function."""

    def __init__(
        self, function: Callable[..., Any], *, name: str, timeout_ms: int, side_effects: bool, cancellable: bool
    ) -> None:
        """Raises ConfigError: LLMs refuse the name, or a parameter has no type, or one that JSON does not have."""
        if not TOOL_NAME.fullmatch(name):
            raise ConfigError(f"tool {name}: expected a name of at most 64 letters (a-z), digits, _ and -")
        self.function, self.timeout_ms = function, timeout_ms
        self.__doc__ = function.__doc__
        description, arguments = _described(inspect.getdoc(function) or "")
        self._session_parameter, fields = _fields(function, name, arguments)
        try:
            self._parameters = Parameters(name, fields)
        except TypeError as why:
            raise ConfigError(f"tool {name}: expected parameters of types that JSON has: {why}") from None
        self.facts = ToolFacts(
            tool=Tool(name, description, self._parameters.schema_json),
            label=LABEL,
            side_effects=side_effects,
            runs_early=not side_effects,
            cancellable=cancellable,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    async def call(self, arguments: str, session: ToolSession) -> str:
        """Return the function's result as JSON, a text as it is. A function that is not async runs in a thread."""
        named = self._parameters.read(arguments)
        if self._session_parameter:
            named[self._session_parameter] = session
        if inspect.iscoroutinefunction(self.function):
            result = await self.function(**named)
        else:
            result = await run_in_thread(partial(self.function, **named))
        return result if isinstance(result, str) else msgspec.json.encode(result).decode()


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(
    *, name: str = "", timeout_ms: int = TIMEOUT_MS, side_effects: bool = True, cancellable: bool = False
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str = "",
    timeout_ms: int = TIMEOUT_MS,
    side_effects: bool = True,
    cancellable: bool = False,
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a function one that an agent may call: `@tool`, or `@tool(side_effects=False)`.

    The LLM reads the docstring's text, the names and types of the parameters, and the lines of `Args:`. A parameter of
    the type `ToolSession` gets the session, and the LLM does not see it. What the function returns goes to the LLM: a
    text, or anything that JSON has.

    Args:
        function: async, or a function that runs in a thread.
        name: what the LLM calls it; empty: the function's name.
        timeout_ms: the time limit of a call.
        side_effects: it changes something: the same call runs once in a turn, when the end of the turn is certain.
            False: it runs as soon as the LLM calls it, and its result is dropped if the user goes on.
        cancellable: the user's next turn cancels it while it runs.

    Raises:
        ConfigError: LLMs refuse the name, or a parameter has no type, or one that JSON does not have.
    """

    def made(decorated: Callable[..., Any]) -> FunctionTool:
        return FunctionTool(
            decorated,
            name=name or decorated.__name__,
            timeout_ms=timeout_ms,
            side_effects=side_effects,
            cancellable=cancellable,
        )

    return made if function is None else made(function)


def _fields(
    function: Callable[..., Any], name: str, descriptions: dict[str, str]
) -> tuple[str, list[tuple[str, Any] | tuple[str, Any, Any]]]:
    """Return the name of the parameter for the session, and the others."""
    hints = get_type_hints(function, include_extras=True)
    session, fields = "", list[tuple[str, Any] | tuple[str, Any, Any]]()
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name not in hints or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ConfigError(f"tool {name}: expected a type for each parameter, got none for {parameter.name!r}")
        hint = hints[parameter.name]
        if hint is ToolSession:
            session = parameter.name
            continue
        if described := descriptions.get(parameter.name):
            hint = Annotated[hint, msgspec.Meta(description=described)]
        has_default = parameter.default is not parameter.empty
        fields.append((parameter.name, hint, parameter.default) if has_default else (parameter.name, hint))
    return session, fields


def _described(doc: str) -> tuple[str, dict[str, str]]:
    """Return a docstring's text, and the text of each parameter below `Args:`."""
    heads = list(_SECTION.finditer(doc))
    text = doc[: heads[0].start()] if heads else doc
    arguments: dict[str, str] = {}
    for place, head in enumerate(heads):
        if head[1] in ("Args", "Arguments", "Parameters"):
            body = doc[head.end() : heads[place + 1].start() if place + 1 < len(heads) else None]
            arguments = {found[1]: " ".join(found[2].split()) for found in _ARGUMENT.finditer(body)}
    return " ".join(text.split()), arguments
