"""An agent as a Python object: its settings, its functions and its hooks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from voicepipe.agents.functions import TIMEOUT_MS, FunctionTool, tool
from voicepipe.errors import ConfigError
from voicepipe.ports.server_tool import ServerTool

DEFAULT_NAME: Final = "default"


class Agent:
    """An agent. `voicepipe serve FILE.py` serves the agents of a file; tests give them to `config.load(agents=...)`."""

    def __init__(
        self,
        instructions: str = "",
        *,
        name: str = DEFAULT_NAME,
        tools: Iterable[ServerTool | Callable[..., Any]] = (),
        **settings: Any,
    ) -> None:
        """Describe an agent.

        Args:
            instructions: the system prompt, as `agents.NAME.instructions`.
            name: the agent's name; a section `[agents.NAME]` of the settings' file overrides what is written here.
            tools: functions that it may call: made with `@tool`, or plain ones.
            settings: any option of `[agents.NAME]`, such as `greeting="Hello"`; a table is a dict.

        Raises:
            ConfigError: two functions have one name, or a function cannot be a tool.
        """
        self.name = name
        self.settings = {**({"instructions": instructions} if instructions else {}), **settings}
        self.tools: dict[str, ServerTool] = {}
        """The functions, by name."""

        for each in tools:
            self._add(tool(each) if inspect.isfunction(each) else cast("ServerTool", each))

    def tool(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str = "",
        timeout_ms: int = TIMEOUT_MS,
        side_effects: bool = True,
        cancellable: bool = False,
    ) -> Any:
        """Make a function one that this agent may call: `@agent.tool`, or with the options of `tool`."""

        def added(its: Callable[..., Any]) -> FunctionTool:
            made = tool(name=name, timeout_ms=timeout_ms, side_effects=side_effects, cancellable=cancellable)(its)
            self._add(made)
            return made

        return added if function is None else added(function)

    def _add(self, its: ServerTool) -> None:
        name = its.facts.tool.name
        if name in self.tools:
            raise ConfigError(f"agent {self.name}: expected tools of different names, got two called {name!r}")
        self.tools[name] = its
