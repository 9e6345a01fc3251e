"""Turns as a file: all of them, whole, and harmless in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import aiohttp
import pytest

from voicepipe.server.api.export import COLUMNS, STAGES, csv_rows
from voicepipe.telemetry.store.port import StoredTurn, StoreError
from voicepipe.testing.records import turn_record
from voicepipe.turn.record.values import ToolCall
from voicepipe.turn.settings import BudgetLimits
from voicepipe.values import replace


def stored_turn(number: int, *, project: str = "acme", **changes: Any) -> StoredTurn:
    return StoredTurn(replace(turn_record(), id=f"t{number:03}", **changes), project, "default", number)


async def test_every_turn_is_in_the_file_however_many_pages_that_takes(serve: Any) -> None:
    """Turns come newest first, from the principal's own project, as one JSON object per line unless another format is
    requested.
    """
    async with serve() as server:
        await server.context.turns.store([stored_turn(number) for number in range(250)])
        await server.context.turns.store([stored_turn(number, project="bank") for number in range(3)])
        async with server.http.get(f"{server.base}/v1/turns/export", headers=server.new_key()) as answer:
            assert answer.status == 200
            assert answer.content_type == "application/x-ndjson"
            assert answer.headers["Content-Disposition"] == 'attachment; filename="turns.jsonl"'
            lines = (await answer.text()).splitlines()
        assert [json.loads(line)["id"] for line in lines] == [f"t{number:03}" for number in reversed(range(250))]
        assert (json.loads(lines[0])["object"], json.loads(lines[0])["project"]) == ("voicepipe.turn", "acme")
        async with server.http.get(f"{server.base}/v1/turns/export?format=csv", headers=server.new_key()) as answer:
            assert (answer.content_type, answer.charset) == ("text/csv", "utf-8")
            assert (await answer.read()).startswith("\ufeffid,".encode())  # by which a spreadsheet knows UTF-8
            rows = list(csv.reader(io.StringIO(await answer.text("utf-8-sig"))))
        assert rows[0] == list(COLUMNS)
        assert [row[0] for row in rows[1:]] == [f"t{number:03}" for number in reversed(range(250))]


async def test_the_file_has_the_turns_that_match(serve: Any) -> None:
    """And has its head when that is nothing."""
    async with serve() as server:
        await server.context.turns.store([stored_turn(1), stored_turn(2, outcome="failed")])
        async with server.http.get(f"{server.base}/v1/turns/export?format=csv&outcome=failed") as answer:
            rows = list(csv.DictReader(io.StringIO(await answer.text("utf-8-sig"))))
        assert [row["id"] for row in rows] == ["t002"]
        async with server.http.get(f"{server.base}/v1/turns/export?format=csv&session=none") as answer:
            assert (await answer.text("utf-8-sig")).splitlines() == [",".join(COLUMNS)]
        async with server.http.get(f"{server.base}/v1/turns/export?session=none") as answer:
            assert (answer.status, await answer.text()) == (200, "")


async def test_a_row_says_where_the_second_went(serve: Any) -> None:
    """The stages' columns and what has no name make the total."""
    async with serve() as server:
        await server.context.turns.store([stored_turn(1)])
        async with server.http.get(f"{server.base}/v1/turns/export?format=csv") as answer:
            (row,) = csv.DictReader(io.StringIO(await answer.text("utf-8-sig")))
    spent = sum(int(row[f"{stage}_ms"] or 0) for stage in STAGES)
    assert spent + int(row["unattributed_ms"]) == int(row["total_ms"]) == 983
    assert (row["llm"], row["tokens_cached"], row["started_at"]) == ("fake-llm", "96", "1970-01-01T00:00:00.001Z")
    assert (row["silence_ms"], row["endpoint_ms"], row["breach_stage"]) == ("500", "25", "")


async def test_a_row_names_the_tools_and_what_was_audible_before_the_answer(serve: Any) -> None:
    """An announcement does not hide the tool, in a spreadsheet either."""
    tools = (
        ToolCall(name="find_table", ran_by="server", took_ms=312, outcome="returned"),
        ToolCall(name="show_map", took_ms=None, outcome="unanswered"),
    )
    async with serve() as server:
        await server.context.turns.store([stored_turn(1, tools=tools, first_audio_ms=438, answer_audio_ms=983)])
        async with server.http.get(f"{server.base}/v1/turns/export?format=csv") as answer:
            (row,) = csv.DictReader(io.StringIO(await answer.text("utf-8-sig")))
    assert (row["first_audio_ms"], row["answer_audio_ms"]) == ("438", "983")
    assert row["tools"] == "find_table server returned 312; show_map client unanswered"


def test_every_stage_of_the_budget_has_a_column() -> None:
    limits = {name.removesuffix("_ms") for name in BudgetLimits.__dataclass_fields__} - {"total"}
    assert limits <= set(STAGES)


@pytest.mark.parametrize("text", ["=1+1", "+49", "-1", "@SUM(A1)", "\tx", "\rx", '=HYPERLINK("http://x")'])
def test_no_text_is_a_formula(text: str) -> None:
    """What users say ends up in spreadsheets; numbers stay numbers."""
    (row,) = csv.reader(io.StringIO(csv_rows([[text, -5, "x=1", None]]).decode(), newline=""))
    assert row == [f"'{text}", "-5", "x=1", ""]


async def test_a_failure_on_the_way_cuts_the_line(serve: Any, monkeypatch: Any) -> None:
    """A client can't mistake half of a file for all of it; a failure at the beginning has an HTTP status."""
    async with serve() as server:
        await server.context.turns.store([stored_turn(number) for number in range(150)])
        whole, queries = server.context.turns.list, []

        async def broken(project: str | None, query: Any) -> Any:
            queries.append(query)
            if len(queries) == 2:
                raise StoreError("turns: the disk is gone")
            return await whole(project, query)

        monkeypatch.setattr(server.context.turns, "list", broken)
        async with server.http.get(f"{server.base}/v1/turns/export") as answer:
            with pytest.raises(aiohttp.ClientError):
                await answer.read()
        queries[:] = [None]
        assert (await server.get("/v1/turns/export"))[0] == 503


async def test_a_client_secret_exports_a_session_of_its_own(serve: Any) -> None:
    async with serve() as server:
        token = {"Authorization": f"Bearer {server.forge(scopes=['realtime', 'turns'])}"}
        for query in ("", "?session=sess_theirs"):
            status, body = await server.get(f"/v1/turns/export{query}", headers=token)
            assert (status, body["error"]["code"]) == (403, "own_turns_only")
