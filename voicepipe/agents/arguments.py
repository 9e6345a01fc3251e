"""The parameters of a function: their JSON Schema for the LLM, and the check of what the LLM has written."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from voicepipe.ports.server_tool import ToolError


class Parameters:
    """The parameters of one function."""

    def __init__(self, name: str, fields: list[tuple[str, Any] | tuple[str, Any, Any]]) -> None:
        """`fields`: name, type and, if there is one, default of each, as for `msgspec.defstruct`.

        Raises:
            TypeError: JSON Schema has no such type.
        """
        self._struct = msgspec.defstruct(f"{name}_arguments", fields, kw_only=True, forbid_unknown_fields=True)
        self._decoder = msgspec.json.Decoder(self._struct)
        self.schema_json = json.dumps(_schema(self._struct), separators=(",", ":"), ensure_ascii=False)
        """The JSON Schema, as text."""

    def read(self, arguments: str) -> dict[str, Any]:
        """Return the arguments that the LLM has written, by name, with defaults.

        Raises:
            ToolError: they are no JSON, or do not fit; the text names the argument and what was expected.
        """
        try:
            found = self._decoder.decode(arguments or "{}")
        except (msgspec.DecodeError, UnicodeError, RecursionError) as why:
            raise ToolError(f"Wrong arguments: {why}") from None
        return {name: getattr(found, name) for name in self._struct.__struct_fields__}


def _schema(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the schema with the parameters at its top, as LLM vendors expect it."""
    _, components = msgspec.json.schema_components((struct,), ref_template="#/$defs/{name}")
    schema = dict(components.pop(struct.__name__))
    schema.pop("title", None)
    return {**schema, "$defs": components} if components else schema
