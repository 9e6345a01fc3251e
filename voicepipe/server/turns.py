"""`GET /v1/turns` and `/v1/turns/{id}`: the records of the caller's own project, or of their token's own sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from aiohttp import web

from voicepipe.auth.scopes import TURNS
from voicepipe.auth.tokens import session_prefix
from voicepipe.errors import AuthError, ProtocolError
from voicepipe.server.doorway import Visitor
from voicepipe.server.parts import PARTS
from voicepipe.server.refusals import Missing
from voicepipe.telemetry.store import NEWEST, TurnQuery, turn_plain

KNOWN: Final = ("limit", "before", "session", "agent", "outcome", "over", "token")
"""`token` is a credential's place, see `auth.credentials`."""

OUTCOMES: Final = ("completed", "interrupted", "failed", "abandoned")


async def list_turns(request: web.Request) -> web.Response:
    """Newest first, a page at a time: `{"object": "list", "data": [...], "next": cursor or null}`."""
    parts = request.app[PARTS]
    visitor = await parts.doorway.admit(request)
    visitor.check_scope(TURNS)
    query = read_query(request.query)
    if not _is_own(visitor, query.session or ""):
        raise AuthError(
            "A client secret reads only the turns of its own sessions: add ?session= with the id of one of them, from "
            "its session.created.",
            code="own_turns_only",
            status=403,
        )
    page = await parts.turns.list(visitor.project, query)
    return _json({"object": "list", "data": [turn_plain(turn) for turn in page.turns], "next": page.next})


async def one_turn(request: web.Request) -> web.Response:
    """The turn of that id; one of another project is as unknown as one that never was."""
    parts = request.app[PARTS]
    visitor = await parts.doorway.admit(request)
    visitor.check_scope(TURNS)
    id_ = request.match_info["id"]
    turn = await parts.turns.get(id_, visitor.project)
    if turn is None or not _is_own(visitor, turn.record.session):
        raise Missing(f"There is no turn {id_[:64]!r}.", param="id", code="turn_not_found")
    return _json(turn_plain(turn))


def _is_own(visitor: Visitor, session_id: str) -> bool:
    """Whether the visitor may read that session's turns: a key all of its project's, a token those that it began."""
    return visitor.claims is None or session_id.startswith(session_prefix(visitor.claims))


def read_query(query: Mapping[str, str]) -> TurnQuery:
    """Read what a list was asked to hold.

    Raises:
        ProtocolError: a parameter is unknown or has a wrong value; `field` names it.
    """
    unknown = next((name for name in query if name not in KNOWN), None)
    if unknown is not None:
        raise ProtocolError(f"Unknown parameter; known are {', '.join(KNOWN[:-1])}.", field=unknown[:64])
    asked = {name: query[name] for name in ("before", "session", "agent") if name in query}
    return TurnQuery(
        limit=_limit(query["limit"]) if "limit" in query else NEWEST.limit,
        outcome=_one_of(query["outcome"], OUTCOMES, "outcome") if "outcome" in query else None,
        over=_one_of(query["over"], ("true", "false"), "over") == "true" if "over" in query else None,
        **asked,
    )


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 9):
        raise ProtocolError(f"Expected a whole number, got {text[:32]!r}.", field="limit")
    return int(text)


def _one_of(text: str, choices: tuple[str, ...], field: str) -> Any:
    if text not in choices:
        raise ProtocolError(f"Expected one of {', '.join(choices)}, got {text[:32]!r}.", field=field)
    return text


def _json(body: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")
