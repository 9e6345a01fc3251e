"""Read a request for a call: the client's SDP offer, and a session object."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from aiohttp import web

from voicepipe.errors import ProtocolError
from voicepipe.server.form_reader import FIELD_BYTES, MAX_PARTS, PART_HEADER_BYTES, FormReader
from voicepipe.server.request_bodies import read_body

MAX_BYTES: Final = FIELD_BYTES + MAX_PARTS * PART_HEADER_BYTES


class Offer(msgspec.Struct, frozen=True):
    """A request for a call."""

    sdp: str
    session: dict[str, Any] | None
    """As in `session.update`; None: the session of the agent or of the client secret."""


async def read_offer(request: web.Request) -> Offer:
    """Read the body: `application/sdp`, or a form with `sdp` and `session`.

    Raises:
        ProtocolError: the body is neither, or has no offer.
        HTTPException: 408, 413: the body is received too slowly, or is too long.
        Overload: too many bodies are in transit.
    """
    body = await read_body(request, MAX_BYTES)
    if request.content_type == "application/sdp":
        return Offer(_checked(body.decode("utf-8", "replace")), None)
    if request.content_type != "multipart/form-data":
        why = f"Expected application/sdp or multipart/form-data, got {request.content_type[:64]}."
        raise ProtocolError(why, code="invalid_type")
    form = FormReader(request.headers["Content-Type"])
    form.push(body)
    fields = form.finish().fields
    return Offer(_checked(fields.get("sdp", [""])[0]), _session(fields.get("session", [""])[0]))


def _checked(sdp: str) -> str:
    """Return the offer, once checked for audio and a data channel."""
    if not sdp.lstrip().startswith("v=0"):
        raise ProtocolError("sdp: expected an SDP offer", field="sdp", code="missing_required_parameter")
    for media, what in (("m=audio", "audio"), ("m=application", "a data channel")):
        if media not in sdp:
            raise ProtocolError(f"sdp: expected an offer with {what}, got none", field="sdp")
    return sdp.strip() + "\r\n"


def _session(text: str) -> dict[str, Any] | None:
    if not text.strip():
        return None
    try:
        session = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        session = None
    if not isinstance(session, dict):
        raise ProtocolError("session: expected a JSON object", field="session", code="invalid_json")
    return session
