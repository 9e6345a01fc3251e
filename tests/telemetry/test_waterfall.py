"""A turn laid out in time, and its picture in a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from voicepipe.cli.turn_chart import TurnChart
from voicepipe.telemetry.waterfall import Span, Wait, waterfall
from voicepipe.testing.records import MARKS, turn_record
from voicepipe.turn.record.attribution import DEPENDS_ON, with_stalls
from voicepipe.turn.record.values import ModelAttempt, Speculation, TurnCost, TurnRecord
from voicepipe.turn.settings import BudgetLimits

HELD = (
    ("voiced_last", 5_000),
    ("llm_requested", 5_155),
    ("first_delta", 5_300),
    ("first_clause", 5_350),
    ("first_sound", 5_460),
    ("end_due", 5_600),
    ("ended", 5_620),
    ("gate_opened", 5_621),
    ("first_sent", 5_624),
    ("first_audible", 5_670),
)
"""Speculation: the reply was ready while the user might still have gone on."""

TEXT = (
    ("voiced_last", 0),
    ("end_due", 480),
    ("ended", 500),
    ("llm_requested", 503),
    ("first_delta", 1_700),
    ("first_sent", 1_701),
)


def drawn(record: TurnRecord, *, width: int = 80, colour: bool = False, encoding: str = "utf-8") -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, width=width, force_terminal=colour, color_system="standard" if colour else None)
    console.print(TurnChart(waterfall(record), "default"))
    file.seek(0)
    return "\n".join(line.rstrip() for line in file.read().splitlines())


def test_stages_lie_where_their_marks_are() -> None:
    """Rows count from t0; a stage that ran while nothing else did was waited for from end to end."""
    turn = waterfall(turn_record())
    assert [(row.stage, row.span) for row in turn.rows] == [
        ("silence", Span(0, 500)),
        ("endpoint", Span(500, 525)),
        ("llm_ttft", Span(525, 760)),
        ("first_clause", Span(760, 820)),
        ("tts_ttfb", Span(820, 930)),
        ("overhead", Span(930, 933)),
        ("playback", Span(933, 983)),
    ]
    assert all(row.critical == (row.span,) and not row.held for row in turn.rows)
    assert turn.end_ms == turn.total_ms == 983


def test_audio_before_the_answer_has_a_row() -> None:
    """A filler that still played is no playback of the client's."""
    turn = waterfall(turn_record((*MARKS[:-1], ("earlier_audio_ended", 6_300), ("first_audible", 6_320))))
    assert [(row.stage, row.span) for row in turn.rows][-2:] == [
        ("earlier_audio", Span(933, 1_300)),
        ("playback", Span(1_300, 1_320)),
    ]
    assert sum(wait.span.duration_ms for wait in turn.waits) == turn.total_ms == 1_320
    assert "earlier_audio " in drawn(turn_record((*MARKS[:-1], ("earlier_audio_ended", 6_300), MARKS[-1])))


def test_a_held_loop_lies_in_pieces() -> None:
    """What it delayed is waited for before it and behind it; the server's row reaches over all of its own."""
    held = turn_record(tuple(with_stalls(dict(MARKS), [(5_600, 5_755)]).items()))
    turn = waterfall(held)
    rows = {row.stage: row for row in turn.rows}
    assert (rows["llm_ttft"].span, rows["llm_ttft"].critical) == (Span(525, 760), (Span(525, 600), Span(755, 760)))
    assert (rows["overhead"].span, rows["overhead"].critical) == (Span(600, 933), (Span(600, 755), Span(930, 933)))
    assert (rows["llm_ttft"].duration_ms, rows["overhead"].duration_ms) == (80, 158)  # what is drawn is longer
    assert "   80 ms  limit  600" in drawn(held)
    assert sum(wait.span.duration_ms for wait in turn.waits) == turn.total_ms == 983


def test_the_waits_make_the_total() -> None:
    """The critical path has no gap: its links sum to what the user felt."""
    turn = waterfall(turn_record())
    assert sum(wait.span.duration_ms for wait in turn.waits) + turn.unattributed_ms == turn.total_ms


def test_what_ran_before_the_gate_was_hidden() -> None:
    """With speculation the model and the voice cost nothing: the user waited for the gate."""
    rows = {row.stage: row for row in waterfall(turn_record(HELD)).rows}
    assert rows["silence"].critical == (rows["silence"].span,) == (Span(0, 600),)
    assert rows["endpoint"].critical == (rows["endpoint"].span,) == (Span(600, 621),)
    assert rows["llm_ttft"].critical == rows["tts_ttfb"].critical == ()
    assert rows["overhead"].critical == (Span(621, 624),)


def test_a_turn_that_failed_shows_what_ran() -> None:
    """No total, no waits, but the stages that came to their end."""
    turn = waterfall(turn_record(MARKS[:7], outcome="failed"))
    assert [row.stage for row in turn.rows] == ["silence", "endpoint", "llm_ttft"]
    assert (turn.total_ms, turn.waits, turn.end_ms) == (None, (), 760)


def test_a_turn_without_marks_is_empty() -> None:
    """A turn that was abandoned before anything happened is drawn too."""
    assert waterfall(turn_record(())).rows == ()
    assert drawn(turn_record(())) == "No reply was played."


def test_a_text_reply_ends_with_its_first_text() -> None:
    """No sound, no voice: its waits end where the text left."""
    turn = waterfall(turn_record(TEXT, audible=False))
    assert turn.ends_with == "text"
    assert turn.waits[-1] == Wait("overhead", Span(1_700, 1_701))


@pytest.mark.parametrize("marks", [MARKS, HELD])
def test_every_stage_of_the_budget_has_a_place(marks: tuple[tuple[str, int], ...]) -> None:
    """A stage that joins the budget must be given its mark here."""
    assert {row.stage for row in waterfall(turn_record(marks)).rows} == {*DEPENDS_ON, "overhead"} - {"speech_to_speech"}


UPSTREAM = (("voiced_last", 5_000), ("ended", 5_100), ("speech_requested", 5_120), ("first_sound", 5_600))


@pytest.mark.parametrize("replaced", [True, False])
def test_a_speech_to_speech_model_has_a_row_where_it_was_awaited(replaced: bool) -> None:
    """It ends at its first audio; or, where it failed, at the request to the LLM."""
    failed = (("llm_requested", 5_400), ("first_delta", 5_500), ("first_clause", 5_550)) if replaced else ()
    marks = (*UPSTREAM, *failed, ("first_sent", 5_610), ("first_audible", 5_620))
    rows = {row.stage: row for row in waterfall(turn_record(marks)).rows}
    assert rows["speech_to_speech"].span == Span(120, 400 if replaced else 600)
    assert rows["endpoint"].span.end_ms == 120
    assert ("llm_ttft" in rows) is replaced


GOLDEN = """\
█▀█ █▀█ ▀▀█
▀▀█ █▀█ ▀▀█  ms, last voiced sample to first sound
▀▀▀ ▀▀▀ ▀▀▀  limit 1000 ms · within

silence      ████████████████████                   ┊   500 ms  chosen
endpoint                         █                  ┊    25 ms  limit  150
llm_ttft                          █████████         ┊   235 ms  limit  600
first_clause                               ███      ┊    60 ms  limit  100
tts_ttfb                                      ████  ┊   110 ms  limit  150
overhead                                          █ ┊     3 ms  limit   20
playback                                          ██┊    50 ms  limit   50
             0                                1000 ms
█ waited for: silence 500 + endpoint 25 + llm_ttft 235 + first_clause 60 +
tts_ttfb 110 + overhead 3 + playback 50"""

GOLDEN_TEXT_ASCII = """\
1701 ms, last voiced sample to first text
limit 1000 ms - OVER by 701 ms

silence      #####    :         480 ms  chosen
endpoint          #   :          23 ms  limit  150
llm_ttft          ###########  1197 ms  limit  600  OVER
overhead              :     #     1 ms  limit   20
             0     1000 ms
# waited for: silence 480 + endpoint 23 + llm_ttft 1197
+ overhead 1
over  llm_ttft by 597 ms - owner fake-llm
      agents.default.llm: up to 597 ms sooner"""


@pytest.mark.parametrize(
    ("speculation", "line"),
    [
        (Speculation(starts=1, used=1, saved_ms=310), "replies: 1 started early, 1 used, 310 ms saved"),
        (
            Speculation(
                starts=2, used=1, saved_ms=310, wasted_input_tokens=600, wasted_output_tokens=12, estimated=True
            ),
            "replies: 2 started early, 1 used, 310 ms saved, about 612 tokens wasted",
        ),
        (Speculation(starts=1, wasted_input_tokens=120), "replies: 1 started early, 0 used, 120 tokens wasted"),
        (Speculation(refused=2), "replies: 0 started early, 0 used, 2 refused"),
    ],
)
def test_the_picture_says_what_was_begun_early(speculation: Speculation, line: str) -> None:
    """In the turns where anything was, or would have been."""
    assert drawn(turn_record(speculation=speculation)).splitlines()[-1] == line


def test_the_picture_says_that_the_turn_has_resumed() -> None:
    assert "resumed" not in drawn(turn_record(MARKS))
    once = drawn(turn_record(MARKS, resumed=1, taken_back_ms=240)).splitlines()
    assert "resumed: you went on over an answer once, after 240 ms of it" in once
    assert "over an answer 3 times, after 900 ms" in drawn(turn_record(MARKS, resumed=3, taken_back_ms=900))


def test_the_picture_of_a_turn() -> None:
    """The total large, a bar for each stage, the broken limit marked, and what would move it."""
    assert drawn(turn_record()) == GOLDEN


def test_the_picture_of_a_turn_that_was_held() -> None:
    """Waited for and hidden look different, and the legend says so."""
    picture = drawn(turn_record(HELD), width=67)
    assert "silence      ████████" in picture
    assert "llm_ttft         ░░░░" in picture
    assert "░ hidden behind another stage" in picture


def test_the_picture_of_a_record_without_the_end_of_its_silence() -> None:
    """Of an older version: held by the gate looks different, and the legend says so."""
    older = tuple(mark for mark in HELD if mark[0] != "end_due")
    picture = drawn(turn_record(older), width=67)
    assert "endpoint     ████▒▒▒▒" in picture
    assert "▒ held until the turn was over\n░ hidden behind another stage" in picture


def test_the_picture_without_block_characters() -> None:
    """A terminal that knows only ASCII gets ASCII, at the smallest width."""
    assert drawn(turn_record(TEXT, audible=False), width=56, encoding="ascii") == GOLDEN_TEXT_ASCII


def test_an_estimate_is_marked() -> None:
    """A client that did not report what it played: the figure says that it is not measured."""
    assert "within · estimated" in drawn(turn_record(latency_source="estimated"))


@pytest.mark.parametrize("width", [56, 72, 120])
def test_bars_fit_the_width(width: int) -> None:
    """The bars use the console's width and never wrap."""
    late = turn_record(limits=BudgetLimits(llm_ttft_ms=100))
    lines = [line for line in drawn(late, width=width).splitlines() if " limit " in line[20:]]
    assert len(lines) == 6
    assert max(map(len, lines)) == width
    assert drawn(turn_record(), width=400) == drawn(turn_record(), width=120)


def test_colour_adds_nothing_but_colour() -> None:
    """What red says is said in words too."""
    late = turn_record(limits=BudgetLimits(llm_ttft_ms=100))
    plain, coloured = drawn(late), drawn(late, colour=True)
    assert "\x1b[" in coloured
    assert "OVER" in plain
    assert "\x1b" not in plain


def test_every_model_that_was_tried_is_in_the_chart() -> None:
    """Where there was a choice; a turn without one has no such lines."""
    lost = ModelAttempt(provider="a/m", role="primary", outcome="lost", began_ms=0, first_ms=None)
    spoke = ModelAttempt(provider="b/m", role="hedge", outcome="spoke", began_ms=310, first_ms=120)
    broke = ModelAttempt(provider="c/m", role="primary", outcome="failed", began_ms=0, first_ms=None, why="HTTP 500")
    said = drawn(turn_record(MARKS, route="first to speak", attempts=(lost, spoke, broke)))
    assert "model: first to speak" in said
    assert "  a/m  primary from 0 ms, lost\n" in said
    assert "  b/m  hedge from 310 ms, spoke, first output after 120 ms\n" in said
    assert "  c/m  primary from 0 ms, failed: HTTP 500" in said
    assert "model:" not in drawn(turn_record(MARKS))


def test_the_picture_says_what_was_done_and_what_it_cost() -> None:
    cost = TurnCost(usd=0.0012, answer_usd=0.001, hedge_usd=0.0002)
    said = drawn(turn_record(MARKS, actions=("hedge", "filler"), cost=cost))
    assert "actions: hedge, filler" in said
    assert "cost: 0.001200 USD, 0.000200 of it wasted" in said
    assert "cost: at least 0.001000 USD" in drawn(turn_record(MARKS, cost=TurnCost(usd=0.001, whole=False)))
    assert "cost" not in drawn(turn_record(MARKS))
