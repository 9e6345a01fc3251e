"""Draw a turn's waterfall for the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from voicepipe.telemetry.advice import setting_for
from voicepipe.telemetry.waterfall import Span, Waterfall, WaterfallRow
from voicepipe.turn.record.attribution import SILENCE
from voicepipe.turn.record.values import Breach, Speculation, TurnCost

MIN_WIDTH: Final = 56
"""Narrower than this the lines wrap."""

MAX_WIDTH: Final = 120
"""Wider bars show no more detail."""

_NAME_WIDTH: Final = 13
_FIGURES_WIDTH: Final = 27
_WAITED, _HELD, _HIDDEN, _LIMIT, _EMPTY = "█", "▒", "░", "┊", " "
_ASCII: Final = str.maketrans("█▒░┊·", "#=.:-")

_DIGITS: Final = dict(
    zip(
        "0123456789",
        (
            "### #.# #.# #.# ###",
            ".#. ##. .#. .#. ###",
            "### ..# ### #.. ###",
            "### ..# ### ..# ###",
            "#.# #.# ### ..# ..#",
            "### #.. ### ..# ###",
            "### #.. ### #.# ###",
            "### ..# ..# ..# ..#",
            "### #.# ### #.# ###",
            "### #.# ### ..# ###",
        ),
        strict=True,
    )
)
"""Each digit as five rows of three dots."""

_HALVES: Final = {"..": " ", "#.": "▀", ".#": "▄", "##": "█"}
"""Two dots, one above the other, as one character."""


@dataclass(frozen=True, slots=True)
class TurnChart:
    """A turn drawn with block characters, for `rich`: `console.print(TurnChart(waterfall(record)))`.

    The total is large; below it each stage has a bar from its start to its end. The bar is full where the user waited
    for the stage, light where it ran hidden behind another. All values stand there as text too, so the picture needs
    no colour. As wide as the console, from 56 to 120 columns.
    """

    waterfall: Waterfall
    agent: str
    """The agent that answered: its settings are named."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(MIN_WIDTH, min(MAX_WIDTH, options.max_width))
        for line in _lines(self.waterfall, self.agent, width, large=not options.ascii_only):
            if options.ascii_only:
                line.plain = line.plain.translate(_ASCII)
            yield line


def _lines(turn: Waterfall, agent: str, width: int, *, large: bool) -> Iterator[Text]:
    yield from _head(turn, large=large)
    if turn.rows:
        scale = _Scale(max(turn.end_ms, turn.total_limit_ms), width - _NAME_WIDTH - _FIGURES_WIDTH)
        yield Text()
        yield from (_bar(row, scale, turn.total_limit_ms) for row in turn.rows)
        yield _axis(scale, turn.total_limit_ms)
    yield from _legend(turn)
    yield from _early(turn.speculation)
    yield from _resumed(turn)
    yield from _tried(turn)
    if turn.actions:
        yield Text(f"actions: {', '.join(turn.actions)}")
    yield from _paid(turn.cost)
    if turn.breach is not None:
        yield from _advice(turn.breach, agent)


def _legend(turn: Waterfall) -> Iterator[Text]:
    if not turn.waits:
        return  # the user did not wait to the end: which stage hid behind which is not known
    links = [f"{wait.stage} {wait.span.duration_ms}" for wait in turn.waits]
    links += [f"unattributed {turn.unattributed_ms}"] if turn.unattributed_ms else []
    yield Text(f"{_WAITED} waited for: {' + '.join(links)}")
    if any(row.held for row in turn.rows):
        yield Text(f"{_HELD} held until the turn was over")
    if any(row.critical != (row.span,) for row in turn.rows):
        yield Text(f"{_HIDDEN} hidden behind another stage")


def _head(turn: Waterfall, *, large: bool) -> Iterator[Text]:
    if turn.total_ms is None:
        yield Text("No reply was played.", style="bold")
        return
    over_ms = turn.total_ms - turn.total_limit_ms
    verdict = f"OVER by {over_ms} ms" if turn.total_verdict == "over" else "within"
    style = "bold red" if turn.total_verdict == "over" else "bold green"
    beside = (
        f"ms, last voiced sample to first {turn.ends_with}",
        f"limit {turn.total_limit_ms} ms · {verdict}{' · estimated' if turn.latency_source == 'estimated' else ''}",
    )
    if large:
        top, middle, bottom = _large(str(max(0, turn.total_ms)))
        yield Text(top, style)
        yield Text.assemble((middle, style), f"  {beside[0]}")
        yield Text.assemble((bottom, style), f"  {beside[1]}")
    else:
        yield Text.assemble((str(turn.total_ms), style), f" {beside[0]}")
        yield Text(beside[1])


def _large(number: str) -> tuple[str, str, str]:
    rows = [" ".join(dots) for dots in zip(*(_DIGITS[digit].split() for digit in number), strict=True)]
    rows = [row.replace(" ", ".") for row in [*rows, "." * len(rows[0])]]
    top, middle, bottom = (
        "".join(_HALVES[upper + lower] for upper, lower in zip(rows[i], rows[i + 1], strict=True)) for i in (0, 2, 4)
    )
    return top, middle, bottom


@dataclass(frozen=True, slots=True)
class _Scale:
    """Milliseconds to columns; `length_ms` are `n_columns`."""

    length_ms: int
    n_columns: int

    def column(self, at_ms: int) -> int:
        """Return the column that begins nearest to this instant; instants outside are at the edge."""
        return max(0, min(self.n_columns - 1, round(at_ms * self.n_columns / self.length_ms)))

    def columns(self, span: Span) -> range:
        """Return the columns of a span: at least one, however short it is."""
        first = self.column(span.start_ms)
        last = min(self.n_columns, round(span.end_ms * self.n_columns / self.length_ms))
        return range(first, max(first + 1, last))


def _bar(row: WaterfallRow, scale: _Scale, total_limit_ms: int) -> Text:
    cells = [_EMPTY] * scale.n_columns
    cells[scale.column(total_limit_ms)] = _LIMIT
    for symbol, spans in ((_HIDDEN, (row.span,)), (_WAITED, row.critical), (_HELD, row.held)):
        for span in spans:
            for column in scale.columns(span):
                cells[column] = symbol
    over = row.verdict == "over"
    limit = "chosen" if row.stage == SILENCE and not over else f"limit {row.limit_ms:>4}"
    figures = f"{row.duration_ms:>6} ms  {limit}{'  OVER' if over else ''}"
    bar, words = ("red", "bold red") if over else ("cyan", "")
    return Text.assemble(f"{row.stage:<{_NAME_WIDTH}}", ("".join(cells), bar), (figures, words))


def _axis(scale: _Scale, total_limit_ms: int) -> Text:
    limit = f"{total_limit_ms} ms"
    cells = f"0{' ' * (scale.n_columns - 1)}"
    start = max(2, min(scale.column(total_limit_ms) - len(limit) // 2, scale.n_columns - len(limit)))
    return Text(f"{'':{_NAME_WIDTH}}{cells[:start]}{limit}", style="dim")


def _early(speculation: Speculation) -> Iterator[Text]:
    """Return the lines about speculative replies, in a turn with any."""
    if not speculation.starts and not speculation.refused:
        return
    facts = [f"{speculation.starts} started early, {speculation.used} used"]
    facts += [f"{speculation.saved_ms} ms saved"] if speculation.used else []
    about = "about " if speculation.estimated else ""
    facts += [f"{about}{speculation.wasted_tokens} tokens wasted"] if speculation.starts > speculation.used else []
    facts += [f"{speculation.refused} refused"] if speculation.refused else []
    yield Text(f"replies: {', '.join(facts)}")


def _resumed(turn: Waterfall) -> Iterator[Text]:
    """Return the line about the answers that the user's voice took back, in a turn with any."""
    if turn.resumed:
        times = "once" if turn.resumed == 1 else f"{turn.resumed} times"
        yield Text(f"resumed: you went on over an answer {times}, after {turn.taken_back_ms} ms of it")


def _tried(turn: Waterfall) -> Iterator[Text]:
    """Return the lines about the models that were requested to answer, where there was a choice."""
    if not turn.attempts:
        return
    yield Text(f"model: {turn.route}")
    for call in turn.attempts:
        first = "" if call.first_ms is None else f", first output after {call.first_ms} ms"
        why = f": {call.why}" if call.why else ""
        yield Text(f"  {call.provider}  {call.role} from {call.began_ms} ms, {call.outcome}{first}{why}")


def _paid(cost: TurnCost) -> Iterator[Text]:
    """Return the line about the cost, where there was any."""
    if not cost.usd:
        return
    wasted_usd = cost.hedge_usd + cost.speculation_usd
    isolated = f", {wasted_usd:.6f} of it wasted" if wasted_usd else ""
    yield Text(f"cost: {'' if cost.whole else 'at least '}{cost.usd:.6f} USD{isolated}")


def _advice(breach: Breach, agent: str) -> Iterator[Text]:
    yield Text.assemble(("over", "bold red"), f"  {breach.stage} by {breach.over_ms} ms · owner {breach.owner}")
    if breach.depends_on:
        yield Text(f"      {setting_for(breach.depends_on, agent)}: up to {breach.saves_ms} ms sooner")
