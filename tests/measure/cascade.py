"""Measure the cascade on 200 labelled questions: which class each gets, and what that does to latency and cost.

`python -m tests.measure.cascade` prints, for the 100 questions on which the classes of `words` were tuned and for the
100 that were written afterwards, how many get their class. Then it runs the races of the questions (the router's own
code) in virtual time. Times to the first token are drawn around the catalog's medians. `--judge SPEC` asks that model
for its verdicts, of the settings or `local/smollm2-135m`, and uses them in the races; else the judge is right.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import statistics
import sys
import timeit
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from voicepipe.cli.bench_run import engines, stage_named
from voicepipe.config import load
from voicepipe.errors import StageError
from voicepipe.ports.model import ModelRequest, TextDelta
from voicepipe.providers import catalog
from voicepipe.registry import Spec
from voicepipe.router.candidate import Candidate
from voicepipe.router.complexity import words
from voicepipe.router.llm.judge import judge_request, verdict_of
from voicepipe.router.policies import CLASSES, Complexity, RoutingQuery
from voicepipe.router.race import Attempt, Race, RacePlan, Start
from voicepipe.wiring.stages import Stages

PROMPTS: Final = Path(__file__).parents[1] / "router" / "prompts"
MODELS: Final[dict[Complexity, str]] = {
    "hard": "anthropic/claude-sonnet-4-5",
    "medium": "gemini/gemini-2.5-flash",
    "easy": "gemini/gemini-2.5-flash-lite",
}
JUDGE: Final = "gemini/gemini-2.5-flash-lite"
READ, WRITTEN, JUDGED = 1_500.0, 80.0, 210.0
"""Input and output tokens of a turn, and input tokens of a verdict."""

SPREAD: Final = 0.5
"""Standard deviation of the logarithm of a time to the first token, as in `voicepipe simulate router`."""

REPEATS: Final = 200
DEADLINE_MS: Final = 600.0
HOLD_MS: Final = 590.0


@dataclass(frozen=True, slots=True)
class Question:
    """A question and its class."""

    text: str
    label: Complexity


def questions(part: str) -> list[Question]:
    """Return the labelled questions of a file."""
    by_class = tomllib.loads((PROMPTS / f"classes_{part}.toml").read_text(encoding="utf-8"))
    return [Question(text, label) for label in CLASSES for text in by_class[label]]


def candidate(spec: str) -> Candidate:
    """Return a model with the catalog's price and speed."""
    facts = catalog.load().model(Spec.parse(spec))
    return Candidate(spec=spec, price=facts.price, ttft_p50_ms=float(facts.ttft_p50_ms or 400))


@dataclass(frozen=True, slots=True)
class Outcome:
    """One question's answer."""

    ttft_ms: float
    usd: float
    answered_by: Complexity


Classify = Callable[[Question], Complexity]


class World:
    """Draws latencies, and runs races in virtual time."""

    def __init__(self, seed: int = 7) -> None:
        self._random = random.Random(seed)
        self._models = {label: candidate(spec) for label, spec in MODELS.items()}
        self._judge = candidate(JUDGE)

    def run(self, question: Question, classify: Classify, judge: Classify | None) -> Outcome:
        """Run the race of one question: a model of its class, and the judge's better one if it is in time."""
        guessed = classify(question)
        race, due, usd = Race(RacePlan(first=self._models[guessed], deadline_ms=DEADLINE_MS)), [], 0.0
        for order in race.begin(0.0):
            assert isinstance(order, Start)
            due.append((self._draw(order.attempt.candidate), order.attempt))
        verdict_ms = math.inf
        if judge is not None and guessed != "hard":
            usd += self._judge.answer_usd(JUDGED, 1, warm=False)
            verdict = judge(question)
            verdict_ms = self._draw(self._judge) if CLASSES.index(verdict) > CLASSES.index(guessed) else math.inf
        while race.winner is None:
            first = min((at_ms for at_ms, each in due if each.state == "running"), default=math.inf)
            now_ms = min(first, verdict_ms, race.wake_ms() or math.inf)
            if now_ms == verdict_ms:
                verdict_ms = math.inf
                started = race.prefer(self._models[verdict], HOLD_MS, now_ms)
                due += [
                    (now_ms + self._draw(each.attempt.candidate), each.attempt)
                    for each in started
                    if isinstance(each, Start)
                ]
            elif now_ms == first:
                race.spoke(next(each for at_ms, each in due if at_ms == first), now_ms)
            else:
                race.time_passed(now_ms)
        usd += sum(self._usd(each, spoke=each is race.winner) for each in race.attempts)
        by = next(label for label, model in self._models.items() if model is race.winner.candidate)
        return Outcome(now_ms, usd, by)

    def _draw(self, model: Candidate) -> float:
        return model.ttft_p50_ms * math.exp(self._random.gauss(0.0, SPREAD))

    def _usd(self, attempt: Attempt, *, spoke: bool) -> float:
        return attempt.candidate.answer_usd(READ, WRITTEN if spoke else 0.0, warm=False)


def row(name: str, labelled: Sequence[Question], classify: Classify, judge: Classify | None) -> str:
    """Return the table row of a way to choose the model."""
    world = World()
    pairs = [(each, world.run(each, classify, judge)) for _ in range(REPEATS) for each in labelled]
    ranks = [CLASSES.index(answer.answered_by) - CLASSES.index(each.label) for each, answer in pairs]
    right, weak = ranks.count(0) / len(ranks), sum(rank < 0 for rank in ranks) / len(ranks)
    times = sorted(answer.ttft_ms for _, answer in pairs)
    p50, p95 = statistics.median(times), times[int(0.95 * len(times))]
    usd = 1_000 * statistics.fmean(answer.usd for _, answer in pairs)
    return f"| {name} | {right:.1%} | {weak:.1%} | {p50:.0f} ms | {p95:.0f} ms | {usd:.3f} |"


def confusion(name: str, labelled: Sequence[Question], classify: Classify) -> str:
    """Return how many questions of each class get which."""
    found = Counter((each.label, classify(each)) for each in labelled)
    right = sum(count for (label, got), count in found.items() if label == got)
    weak = sum(count for (label, got), count in found.items() if CLASSES.index(got) < CLASSES.index(label))
    by_class = ", ".join(
        f"{label} {found[label, label]} of {sum(n for (true_label, _), n in found.items() if true_label == label)}"
        for label in CLASSES
    )
    return f"| {name} | {right} of {len(labelled)} | {weak} | {by_class} |"


async def verdicts(spec: str, labelled: Sequence[Question]) -> tuple[dict[str, Complexity], list[float]]:
    """Ask a judge for each question; return its verdicts that name a class, and its times in ms."""
    settings = load()
    stages = Stages(settings)
    _, model = stage_named(settings, stages, "llm", spec)
    found: dict[str, Complexity] = {}
    times = []
    async with engines(stages, [("llm", spec)]):
        for each in labelled:
            began_s = timeit.default_timer()
            text = await _text(model, judge_request(Candidate(spec=spec), each.text))
            times.append(1_000 * (timeit.default_timer() - began_s))
            if (verdict := verdict_of(text)) is not None:
                found[each.text] = verdict
    return found, times


async def _text(model: object, request: ModelRequest) -> str:
    try:
        async with model.open(request) as events:  # type: ignore[attr-defined]
            return "".join([event.text async for event in events if isinstance(event, TextDelta)])
    except StageError as failure:
        sys.stderr.write(f"{failure.why}\n")
        return ""


def report(judge_spec: str | None) -> Iterator[str]:
    """Yield the lines of both tables."""
    known: dict[str, Complexity] = {}
    parts = {part: questions(part) for part in ("tuning", "held_out")}
    yield "| 100 questions | right class | too easy | by class |\n| --- | --- | --- | --- |"
    for part, labelled in parts.items():
        yield confusion(f"`words`, {part}", labelled, by_words)
    if judge_spec is not None:
        known, times = asyncio.run(verdicts(judge_spec, [each for labelled in parts.values() for each in labelled]))
        for part, labelled in parts.items():
            yield confusion(f"{judge_spec}, {part}", labelled, lambda each: known.get(each.text, "easy"))
        yield f"\n{judge_spec}: {len(known)} verdicts of 200, {statistics.median(times):.0f} ms at the median"
    n, labelled = 2_000, parts["held_out"]
    each_us = 1e6 * min(timeit.repeat(partial(classes_of, labelled), number=n // 100, repeat=5)) / n
    yield f"\n`words`: {each_us:.0f} µs a question\n"
    yield "| held out | right class | too weak | p50 | p95 | USD for 1,000 turns |"
    yield "| --- | --- | --- | --- | --- | --- |"
    yield row("the best model for all", labelled, lambda each: "hard", None)
    yield row("two classes", labelled, lambda each: "easy" if by_words(each) == "easy" else "hard", None)
    yield row("three classes", labelled, by_words, None)
    verdict_by = (lambda each: known.get(each.text, "easy")) if known else (lambda each: each.label)
    yield row(f"three classes, judge {judge_spec or 'always right'}", labelled, by_words, verdict_by)
    yield row("no guess could be better", labelled, lambda each: each.label, None)


def classes_of(labelled: Sequence[Question]) -> list[Complexity]:
    """Return the class of each question."""
    return [by_words(each) for each in labelled]


def by_words(question: Question) -> Complexity:
    """Return the class of `words`."""
    return words(RoutingQuery(text=question.text))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="tests.measure.cascade", description=__doc__)
    parser.add_argument("--judge", metavar="SPEC", help="ask this model for verdicts")
    for line in report(parser.parse_args().judge):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
