"""A form with one file in it, read into memory and never onto a disk, within bounds of size and time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from aiohttp import BodyPartReader, web
from aiohttp.http_exceptions import HttpProcessingError

from voicepipe.errors import ProtocolError

FILE_BYTES: Final = 25 << 20
"""The published size of a file."""

TEXT_BYTES: Final = 64 << 10
"""Of all other fields."""

MOST_FIELDS: Final = 64

UPLOAD_S: Final = 120
"""How long sending it may take: it holds a place meanwhile. 25 MiB in that time is 1.7 Mbit/s."""


@dataclass(slots=True)
class Upload:
    """What a form holds."""

    file: bytes = b""
    fields: dict[str, list[str]] = field(default_factory=dict)
    """All values of each; `name[]` is written `name`."""


async def read_upload(request: web.Request) -> Upload:
    """Read the form.

    Raises:
        ProtocolError: it is no such form; `field` names what is missing.
        HTTPRequestEntityTooLarge: 413.
        HTTPRequestTimeout: 408: it took too long.
    """
    if request.content_length is not None and request.content_length > FILE_BYTES + TEXT_BYTES:
        raise web.HTTPRequestEntityTooLarge(max_size=FILE_BYTES, actual_size=request.content_length)
    try:
        async with asyncio.timeout(UPLOAD_S):
            return await _read(request)
    except TimeoutError:
        raise web.HTTPRequestTimeout from None


async def _read(request: web.Request) -> Upload:
    if request.content_type != "multipart/form-data":
        why = "file: expected a form (multipart/form-data) with a file"
        raise ProtocolError(why, field="file", code="missing_required_parameter")
    found, left = Upload(), TEXT_BYTES
    file: bytes | None = None
    try:
        async for part in await request.multipart():
            if not isinstance(part, BodyPartReader) or part.name is None or len(found.fields) == MOST_FIELDS:
                raise ProtocolError("Expected a form of named fields, not nested.", code="invalid_type")
            if part.name == "file":
                file = await _bytes(part, FILE_BYTES)
                continue
            value = await _bytes(part, left)
            left -= len(value) + len(part.name)
            found.fields.setdefault(part.name.removesuffix("[]"), []).append(value.decode())
    except (ValueError, HttpProcessingError):  # aiohttp's of a broken form; UnicodeDecodeError is a ValueError
        raise ProtocolError("Expected a form (multipart/form-data), got a broken one.", code="invalid_type") from None
    if file is None:
        raise ProtocolError("file: expected a file, got nothing", field="file", code="missing_required_parameter")
    found.file = file
    return found


async def _bytes(part: BodyPartReader, most: int) -> bytes:
    read = bytearray()
    while chunk := await part.read_chunk(1 << 16):
        read += chunk
        if len(read) > most:
            raise web.HTTPRequestEntityTooLarge(max_size=most, actual_size=len(read))
    return bytes(read)
