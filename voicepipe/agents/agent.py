"""An agent as a Python object: its settings, its functions and its hooks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar, cast, get_args, overload

from voicepipe.agents.functions import TIMEOUT_MS, FunctionTool, tool
from voicepipe.errors import ConfigError
from voicepipe.ports.server_tool import ServerTool

DEFAULT_NAME: Final = "default"

Hook = Literal["session_started", "before_reply", "turn_ended", "session_ended"]

_GIVEN: Final[Mapping[Hook, tuple[str, ...]]] = MappingProxyType(
    {
        "session_started": ("session",),
        "before_reply": ("session", "request"),
        "turn_ended": ("session", "record"),
        "session_ended": ("session",),
    }
)
"""What each hook is called with."""

_Function = TypeVar("_Function", bound=Callable[..., Coroutine[Any, Any, Any]])


class Agent:
    """An agent. `voicepipe serve FILE.py` serves the agents of a file; tests give them to `config.load(agents=...)`."""

    def __init__(
        self,
        instructions: str = "",
        *,
        name: str = DEFAULT_NAME,
        tools: Iterable[ServerTool | Callable[..., Any] | str] = (),
        **settings: Any,
    ) -> None:
        """Describe an agent.

        Args:
            instructions: the system prompt, as `agents.NAME.instructions`.
            name: the agent's name; a section `[agents.NAME]` of the settings' file overrides what is written here.
            tools: functions that it may call: made with `@tool`, or plain ones; or names of tools of the settings.
            settings: any option of `[agents.NAME]`, such as `greeting="Hello"`; a table is a dict.

        Raises:
            ConfigError: two functions have one name, or a function cannot be a tool.
        """
        self.name = name
        self.settings = {**({"instructions": instructions} if instructions else {}), **settings}
        self.tools: dict[str, ServerTool] = {}
        """The functions, by name."""

        self.hooks: dict[Hook, Callable[..., Coroutine[Any, Any, Any]]] = {}
        """The hooks, by what they follow."""

        if named := [each for each in tools if isinstance(each, str)]:
            self.settings["tools"] = named
        for each in (each for each in tools if not isinstance(each, str)):
            self._add(tool(each) if inspect.isroutine(each) else cast("ServerTool", each))

    @overload
    def tool(self, function: Callable[..., Any], /) -> FunctionTool: ...
    @overload
    def tool(
        self, /, *, name: str = "", timeout_ms: int = TIMEOUT_MS, side_effects: bool = True, cancellable: bool = False
    ) -> Callable[[Callable[..., Any]], FunctionTool]: ...
    def tool(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str = "",
        timeout_ms: int = TIMEOUT_MS,
        side_effects: bool = True,
        cancellable: bool = False,
    ) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
        """Make a function one that this agent may call: `@agent.tool`, or with the options of `tool`."""

        def added(decorated: Callable[..., Any]) -> FunctionTool:
            made = tool(name=name, timeout_ms=timeout_ms, side_effects=side_effects, cancellable=cancellable)(decorated)
            self._add(made)
            return made

        return added if function is None else added(function)

    def on(self, when: Hook) -> Callable[[_Function], _Function]:
        """Have an async function called: `@agent.on("session_started")`.

        - `session_started(session)`: may return variables (a dict of texts) for instructions and greeting.
        - `before_reply(session, request)`: may return a text that the LLM reads behind the conversation. It runs before
          each request to the LLM, also one whose reply is never heard, and the user waits for it.
        - `turn_ended(session, record)`: gets the turn's `TurnRecord`.
        - `session_ended(session)`.

        Raises:
            ConfigError: there is no such hook, it is taken, or the function is not async or takes something else.
        """

        def added(function: _Function) -> _Function:
            is_async: bool = inspect.iscoroutinefunction(function)
            if when not in get_args(Hook) or when in self.hooks or not is_async:
                expected = f"one async function for each of {', '.join(get_args(Hook))}"
                raise ConfigError(f"agent {self.name}: expected {expected}, got {function!r} for {when!r}")
            try:
                inspect.signature(function).bind(*_GIVEN[when])
            except TypeError:
                expected = f"{when}({', '.join(_GIVEN[when])})"
                got = f"{function.__name__}{inspect.signature(function)}"
                raise ConfigError(f"agent {self.name}: expected a function that takes {expected}, got {got}") from None
            self.hooks[when] = function
            return function

        return added

    def _add(self, server_tool: ServerTool) -> None:
        name = server_tool.facts.tool.name
        if name in self.tools:
            raise ConfigError(f"agent {self.name}: expected tools of different names, got two called {name!r}")
        self.tools[name] = server_tool
