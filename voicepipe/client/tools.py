"""Python functions that the agent may call: their definitions from their signatures, and their calls."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_type_hints

import msgspec

from voicepipe.client import events as e
from voicepipe.client.errors import CallEnded
from voicepipe.tasks import BackgroundTasks

Function = Callable[..., Any]
"""An async function, or a plain one, which runs in a thread."""

Deliver = Callable[[list[dict[str, Any]]], Awaitable[None]]
"""Sends items to the conversation and requests the answer."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the agent may call."""

    name: str
    description: str
    """Text for the LLM."""

    parameters: Mapping[str, Any]
    """JSON Schema of the arguments."""

    run: Callable[[str], Awaitable[str]]
    """Run it with its arguments as JSON; return the result as text for the LLM."""

    @classmethod
    def of(cls, function: Function) -> Tool:
        """Return a tool from a function: its name, its docstring's first paragraph, and the types of its parameters.

        Types are those that msgspec reads from JSON; `Annotated[str, msgspec.Meta(description="...")]` describes one.

        Raises:
            TypeError: a parameter has no name for callers, or a type that JSON cannot hold.
        """
        arguments = _arguments(function)

        async def run(text: str) -> str:
            named = msgspec.structs.asdict(msgspec.json.decode(text or "{}", type=arguments))
            if inspect.iscoroutinefunction(function):
                return _text(await function(**named))
            return _text(await asyncio.to_thread(function, **named))

        description = " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())
        return cls(function.__name__, description, _schema(arguments), run)

    def to_wire(self) -> dict[str, Any]:
        """Return its definition in a `session.update`."""
        parameters = dict(self.parameters)
        return {"type": "function", "name": self.name, "description": self.description, "parameters": parameters}


def _arguments(function: Function) -> type[msgspec.Struct]:
    """Return a struct with a field for each parameter."""
    hints = get_type_hints(function, include_extras=True)
    fields: list[Any] = []
    for each in inspect.signature(function).parameters.values():
        if each.kind not in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY):
            raise TypeError(f"{function.__name__}: expected parameters with a name, got {each}")
        default = () if each.default is each.empty else (each.default,)
        fields.append((each.name, hints.get(each.name, Any), *default))
    return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)


def _schema(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the schema as one object, as LLM vendors expect it; other types are in `$defs`."""
    (_, *_), parts = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    schema: dict[str, Any] = parts.pop("Arguments")
    schema.pop("title", None)
    return schema | ({"$defs": parts} if parts else {})


def _text(result: object) -> str:
    return result if isinstance(result, str) else msgspec.json.encode(result).decode()


@dataclass(slots=True)
class _Calls:
    """The function calls of one response."""

    running: int = 0
    complete: bool = False
    items: list[dict[str, Any]] = field(default_factory=list)


class ToolCalls:
    """Runs the functions that responses call. Sends all results of a response once it is over."""

    def __init__(self, tools: Iterable[Tool], tasks: BackgroundTasks, deliver: Deliver) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._tasks, self._deliver = tasks, deliver
        self._responses: dict[str, _Calls] = {}

    @property
    def names(self) -> frozenset[str]:
        """Names of the functions that run here."""
        return frozenset(self._tools)

    def to_wire(self, own: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the session's definitions with these added; these replace definitions with the same name."""
        others = [tool for tool in own if tool.get("name") not in self._tools]
        return [*others, *(tool.to_wire() for tool in self._tools.values())]

    async def handle(self, event: e.ServerEvent) -> None:
        """Start the functions that a response calls; send the results once it is over."""
        match event:
            case e.FunctionCalled(response_id, call_id, name, arguments) if name in self._tools:
                calls = self._responses.setdefault(response_id, _Calls())
                calls.running += 1
                run = self._run(self._tools[name], response_id, call_id, arguments)
                self._tasks.start(run, name=f"tool {name}")
            case e.ReplyEnded(response_id) if response_id in self._responses:
                self._responses[response_id].complete = True
                await self._submit(response_id)

    async def _run(self, tool: Tool, response_id: str, call_id: str, arguments: str) -> None:
        try:
            output = await tool.run(arguments)
        except Exception as why:  # a function's failure is its result: the LLM reports it to the user
            output = msgspec.json.encode({"error": str(why) or type(why).__name__}).decode()
        calls = self._responses[response_id]
        calls.running -= 1
        calls.items.append({"type": "function_call_output", "call_id": call_id, "output": output})
        try:
            await self._submit(response_id)
        except CallEnded:
            return  # the receiving side gets the same error

    async def _submit(self, response_id: str) -> None:
        calls = self._responses[response_id]
        if calls.complete and not calls.running:
            del self._responses[response_id]
            await self._deliver(calls.items)
