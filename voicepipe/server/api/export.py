"""`GET /v1/turns/export`: turns as a file, with one page of turns in memory at a time."""

from __future__ import annotations

import asyncio
import csv
import io
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import msgspec
from aiohttp import web

from voicepipe.auth.scopes import TURNS
from voicepipe.errors import ProtocolError, VoicepipeError
from voicepipe.server.api.query import export_query, own_sessions_only
from voicepipe.server.api.turns import own_prefix, visible_turn
from voicepipe.server.context import CONTEXT
from voicepipe.server.streaming import StreamedResponse
from voicepipe.telemetry.log import log_event
from voicepipe.telemetry.store.port import StoredTurn, TurnPage, TurnQuery, TurnStore, turn_plain
from voicepipe.values import replace

STAGES: Final = (
    *("silence", "endpoint", "llm_ttft", "first_clause", "tts_ttfb", "playback", "overhead", "tool"),
    "earlier_audio",
    "speech_to_speech",
)

PLAIN: Final = (
    "id",
    "session",
    "project",
    "agent",
    "user",
    "language",
    "pool",
    "arm",
    "started_at",
    "turn",
    "revision",
    "cause",
    "outcome",
    "reason",
    "total_ms",
    "total_limit_ms",
    "total_verdict",
    "first_audio_ms",
    "answer_audio_ms",
    "latency_source",
    "unattributed_ms",
    "spoken_ms",
)
"""Columns that are fields of the record, unchanged."""

COLUMNS: Final = (
    *PLAIN,
    *(f"{stage}_ms" for stage in STAGES),
    "breach_stage",
    "breach_owner",
    "breach_over_ms",
    "breach_setting",
    "breach_saves_ms",
    "stt",
    "llm",
    "tts",
    "tokens_input",
    "tokens_output",
    "tokens_cached",
    "cost_usd",
    "actions",
    "tools",
    "user_text",
    "played_text",
)
"""Columns of the CSV, one row per turn. The stages' columns are what each contributed to `total_ms`."""

FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""First characters of cells that spreadsheets read as a formula (OWASP, CSV Injection)."""


async def export_turns(request: web.Request) -> web.StreamResponse:
    """Send all turns that match, newest first, as `format=csv` or `jsonl`.

    A failure while sending aborts the connection, so that the client does not take half of a file for all of it.
    """
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(TURNS)
    query, kind = export_query(request.query), _format(request.query)
    own_sessions_only(query.session, own_prefix(principal))
    project = principal.requested_project(request.query.get("project"))
    first = await context.turns.list(project, query)  # an immediate failure still has its own status
    content_type = "text/csv" if kind == "csv" else "application/x-ndjson"
    response = StreamedResponse(
        request, content_type, lambda: {"Content-Disposition": f'attachment; filename="turns.{kind}"'}
    )
    try:
        await response.send(BOM_UTF8 + csv_rows([COLUMNS]) if kind == "csv" else b"")  # Excel needs the BOM
        async for turns in _pages(context.turns, project, query, first):
            visible = tuple(visible_turn(turn, principal) for turn in turns)
            await response.send(await asyncio.to_thread(_written, visible, kind))
        return await response.end(b"")
    except VoicepipeError as why:
        log_event("export_failed", why=str(why))
        response.cut()
        raise ConnectionResetError("the export broke") from why


def _format(query: Mapping[str, str]) -> str:
    kind = query.get("format", "jsonl")
    if kind not in ("csv", "jsonl"):
        raise ProtocolError(f"Expected csv or jsonl, got {kind[:32]!r}.", field="format")
    return kind


async def _pages(
    store: TurnStore, project: str | None, query: TurnQuery, first: TurnPage
) -> AsyncIterator[tuple[StoredTurn, ...]]:
    page = first
    yield page.turns
    while page.next is not None:
        page = await store.list(project, replace(query, before=page.next))
        yield page.turns


def _written(turns: tuple[StoredTurn, ...], kind: str) -> bytes:
    if kind == "csv":
        return csv_rows([row(turn_plain(turn)) for turn in turns])
    return b"".join(msgspec.json.encode(turn_plain(turn)) + b"\n" for turn in turns)


def row(turn: Mapping[str, Any]) -> list[object]:
    """Return one turn's cells, in the order of `COLUMNS`."""
    spent: dict[str, int] = {}
    for part in turn["contributions"]:
        spent[part["stage"]] = spent.get(part["stage"], 0) + part["duration_ms"]
    breach, providers, tokens = turn["breach"] or {}, turn["providers"], turn["tokens"]
    return [
        *(turn[name] for name in PLAIN),
        *(spent.get(stage) for stage in STAGES),
        *(breach.get(name) for name in ("stage", "owner", "over_ms", "setting", "saves_ms")),
        *(providers.get(stage) for stage in ("stt", "llm", "tts")),
        *(tokens[name] for name in ("input", "output", "cached")),
        turn["cost"]["usd"],
        " ".join(turn["actions"]),
        "; ".join(_tool(each) for each in turn["tools"]),
        turn["user_text"],
        turn["played_text"],
    ]


def _tool(call: Mapping[str, Any]) -> str:
    """Return a function call in one cell: its name, who ran it, its outcome, and its time in ms where it has one."""
    took = "" if call["took_ms"] is None else f" {call['took_ms']}"
    return f"{call['name']} {call['ran_by']} {call['outcome']}{took}"


def csv_rows(rows: list[Any]) -> bytes:
    """Return rows as in RFC 4180, in UTF-8; texts that would be formulas begin with an apostrophe."""
    text = io.StringIO()
    csv.writer(text).writerows([[_cell(cell) for cell in cells] for cells in rows])
    return text.getvalue().encode("utf-8", "replace")


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
