"""Tools that a server of the operator's answers over HTTP."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Optional
from urllib.parse import quote

import aiohttp
import msgspec

from voicepipe.agents.arguments import Parameters
from voicepipe.agents.echoed_secrets import secrets_of, without
from voicepipe.agents.http_tool_options import HttpToolOptions, ParameterType
from voicepipe.clock import answer_from_outside, unix_s
from voicepipe.ports.server_tool import MAX_RESULT_CHARS, ToolError, ToolSession
from voicepipe.protocol.prompt import filled, placeholders
from voicepipe.telemetry.webhooks.payload import signature_headers
from voicepipe.turn.settings import ServerTool as ToolFacts
from voicepipe.turn.settings import Tool

LABEL: Final = "http"
"""The `server_label` of these tools on the wire."""

_TYPES: Final[Mapping[ParameterType, type]] = {"string": str, "integer": int, "number": float, "boolean": bool}
_READ_BYTES: Final = 4 * MAX_RESULT_CHARS
"""No more of an answer is read: a character has at most four bytes."""


class HttpTool:
    """Calls an address. Implements `ServerTool`."""

    def __init__(self, options: HttpToolOptions, http: aiohttp.ClientSession) -> None:
        self._options, self._http = options, http
        self._hidden = secrets_of(options.url, options.headers)
        self._in_url = set(placeholders(options.url))
        self._parameters = Parameters(options.name, [_field(*parameter) for parameter in options.parameters])
        self.timeout_ms = options.timeout_ms
        self.facts = ToolFacts(
            tool=Tool(options.name, options.description, self._parameters.schema_json),
            label=LABEL,
            side_effects=options.side_effects,
            runs_early=not options.side_effects,
            cancellable=options.cancellable,
        )

    async def call(self, arguments: str, session: ToolSession) -> str:
        """Return the body of the answer, at most `MAX_RESULT_CHARS` characters of it.

        Raises:
            ToolError: wrong arguments, no connection, or another status than 2xx.
        """
        options = self._options
        named = {name: value for name, value in self._parameters.read(arguments).items() if value is not None}
        url = _address(options.url, {name: quote(_text(named.get(name, "")), safe="") for name in self._in_url})
        rest = {name: value for name, value in named.items() if name not in self._in_url}
        body, query = b"", None
        if options.method in ("GET", "DELETE"):
            query = [(name, _text(each)) for name, value in rest.items() for each in _each(value)]
        else:
            body = msgspec.json.encode({"tool": options.name, "arguments": named, "session": _plain(session)})
        headers = {**({"Content-Type": "application/json"} if body else {}), **dict(options.headers)}
        if options.secrets:
            call_id = f"call_{secrets.token_urlsafe(18)}"
            headers |= signature_headers(options.secrets, call_id, body, now_s=unix_s())
        try:
            with answer_from_outside(url):
                async with self._http.request(
                    options.method, url, params=query, data=body or None, headers=headers, allow_redirects=False
                ) as answer:
                    text = without(self._hidden, (await _read(answer)).decode("utf-8", "replace"))
        except (aiohttp.ClientError, OSError) as why:
            raise ToolError(f"The request failed ({type(why).__name__}).") from None
        if not 200 <= answer.status < 300:
            raise ToolError(f"The request was answered with status {answer.status}: {text[:500]}")
        return text


def _address(template: str, quoted: Mapping[str, str]) -> str:
    """Return the address with these values.

    Raises:
        ToolError: a part of the path would be empty, `.` or `..`: the address of something else.
    """
    path, *_ = template.partition("?")
    for part in path.split("/"):
        if (names := placeholders(part)) and filled(part, quoted) in ("", ".", ".."):
            raise ToolError(f"Wrong arguments: expected a name or a number for {' and '.join(names)}.")
    return filled(template, quoted)


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    pieces = bytearray()
    async for piece in answer.content.iter_any():
        pieces += piece
        if len(pieces) >= _READ_BYTES:
            break
    return bytes(pieces[:_READ_BYTES])


def _field(
    name: str, kind: ParameterType, description: str, required: bool, one_of: tuple[str, ...], many: bool
) -> tuple[str, Any] | tuple[str, Any, Any]:
    hint: Any = Literal[one_of] if one_of else _TYPES[kind]
    hint = list[hint] if many else hint
    if description:
        hint = Annotated[hint, msgspec.Meta(description=description)]
    return (name, hint) if required else (name, Optional[hint], None)  # noqa: UP045 - of a value, not of a type


def _each(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _plain(session: ToolSession) -> dict[str, Any]:
    return {
        "id": session.session_id,
        "project": session.project,
        "agent": session.agent,
        "identity": session.identity,
        "metadata": dict(session.metadata),
    }
