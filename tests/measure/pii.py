"""Measure the redaction of personal data on the labelled sentences: `python -m tests.measure.pii [-v]`.

`tests/data/pii.txt` has a sentence in each line; personal data in it is written as `{kind|text}`. Its sentences were
written together with the patterns. Those of `tests/data/pii_held_out.txt` were written afterwards, and no pattern was
changed for them: if one is, its sentences belong to the first file. `-v` prints what was missed, and what was found
where nothing is. Last comes the CPU time of a sentence of the first file.
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from voicepipe.pii.redact import KINDS, find

DATA = Path(__file__).parents[1] / "data"
SENTENCES = DATA / "pii.txt"
HELD_OUT = DATA / "pii_held_out.txt"
"""Sentences written after the patterns; no pattern was changed for them."""
LABEL = re.compile(r"\{(\w+)\|([^}]*)\}")


@dataclass
class Score:
    """What was found of the labelled sentences."""

    n_sentences: int = 0
    n_clean: int = 0
    """Sentences without personal data."""

    labelled: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    """Labels that were covered whole, as whichever kind."""

    false_hits: Counter[str] = field(default_factory=Counter)
    """What was found outside every label."""

    problems: list[str] = field(default_factory=list)


def read(line: str) -> tuple[str, list[tuple[int, int, str]]]:
    """Return a sentence without its labels, and the labels."""
    text, place = "", 0
    spans: list[tuple[int, int, str]] = []
    for label in LABEL.finditer(line):
        text += line[place : label.start()]
        spans.append((len(text), len(text) + len(label[2]), label[1]))
        text += label[2]
        place = label.end()
    return text + line[place:], spans


def score(sentences: Path = SENTENCES) -> Score:
    """Return the score over all sentences."""
    total = Score()
    for line in sentences.read_text(encoding="utf-8").splitlines():
        text, labels = read(line)
        hits = find(text)
        total.n_sentences += 1
        total.n_clean += not labels
        for first, end, kind in labels:
            total.labelled[kind] += 1
            if all(any(a <= place < b for a, b, _ in hits) for place in range(first, end) if text[place].isalnum()):
                total.found[kind] += 1
            else:
                total.problems.append(f"missed {kind} in: {text}")
        for first, end, kind in hits:
            if not any(first < b and a < end for a, b, _ in labels):
                total.false_hits[kind] += 1
                total.problems.append(f"false {kind} {text[first:end]!r} in: {text}")
    return total


def table(total: Score) -> str:
    """Return the score as a table in Markdown."""
    lines = ["| kind | labelled | found whole | recall | false hits |", "| --- | --- | --- | --- | --- |"]
    for kind in KINDS:
        n, n_found = total.labelled[kind], total.found[kind]
        lines.append(f"| `{kind}` | {n} | {n_found} | {n_found / n:.0%} | {total.false_hits[kind]} |")
    n, n_found = total.labelled.total(), total.found.total()
    lines.append(f"| all | {n} | {n_found} | {n_found / n:.0%} | {total.false_hits.total()} |")
    head = f"{total.n_sentences} sentences, {total.n_clean} of them without personal data:"
    return "\n".join((head, "", *lines, ""))


def report() -> str:
    """Return both tables, as the docs have them."""
    return f"With the patterns: {table(score())}\nHeld out: {table(score(HELD_OUT))}"


def cpu_line() -> str:
    """Return the CPU time of a sentence, the least of five searches."""
    texts = [read(line)[0] for line in SENTENCES.read_text(encoding="utf-8").splitlines()]
    p50, p95 = (sorted(map(_cpu_ms, texts))[len(texts) * share // 100] for share in (50, 95))
    return f"CPU of a sentence: p50 {p50:.2f} ms, p95 {p95:.2f} ms\n"


def _cpu_ms(text: str) -> float:
    found_ms = []
    for _ in range(5):
        begin_s = time.process_time()
        find(text)
        found_ms.append(1_000 * (time.process_time() - begin_s))
    return min(found_ms)


if __name__ == "__main__":
    sys.stdout.write(report())
    if "-v" in sys.argv:
        sys.stdout.write("\n".join((*score().problems, *score(HELD_OUT).problems)) + "\n")
    sys.stdout.write(cpu_line())
