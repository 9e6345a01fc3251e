"""Read a form with one file into memory, never to disk, with limits of size and time."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from voicepipe.errors import ProtocolError
from voicepipe.server import form_reader
from voicepipe.server.form_reader import FileTooLarge, Form, FormReader
from voicepipe.server.request_bodies import BODIES

MAX_HEADERS_BYTES: Final = form_reader.MAX_PARTS * form_reader.PART_HEADER_BYTES


async def read_upload(request: web.Request) -> Form:
    """Read the form.

    Raises:
        ProtocolError: it is not such a form, or has too many fields; `field` names the missing or surplus field.
        HTTPRequestEntityTooLarge: 413: the file is too large.
        HTTPRequestTimeout: 408: the body comes too slowly.
        Overload: 503: too many bodies are in transit.
    """
    form, max_bytes = _reader(request), form_reader.FILE_BYTES + form_reader.FIELD_BYTES + MAX_HEADERS_BYTES
    n_bytes = request.content_length or 0

    def take(piece: bytes) -> None:
        nonlocal n_bytes
        n_bytes += len(piece) if request.content_length is None else 0
        if n_bytes > max_bytes:
            raise FileTooLarge
        form.push(piece)

    try:
        take(b"")  # a body that declares a too large length is not read
        await request.app[BODIES].read(request, take)
    except FileTooLarge:
        raise web.HTTPRequestEntityTooLarge(max_size=form_reader.FILE_BYTES, actual_size=n_bytes) from None
    found = form.finish()
    if found.file is None:
        raise ProtocolError("file: expected a file, got nothing", field="file", code="missing_required_parameter")
    return found


def _reader(request: web.Request) -> FormReader:
    if request.content_type != "multipart/form-data":
        why = "file: expected a form (multipart/form-data) with a file"
        raise ProtocolError(why, field="file", code="missing_required_parameter")
    return FormReader(request.headers.get("Content-Type", ""))
