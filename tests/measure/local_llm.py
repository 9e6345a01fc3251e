"""Count the plain questions that the local LLM answers rightly, as an agent with the shipped instructions.

`python -m tests.measure.local_llm tests/measure/local_llm_tuned.tsv tests/measure/local_llm_held_out.tsv` starts an
engine and asks each question in a conversation of its own. An answer is right if it contains the pattern beside its
question. `--show` prints each question with its answer. The examples of `voicepipe.providers.local.llm_models` were
chosen with the tuned questions, so the others say what to expect.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from voicepipe.config.agents import AgentSettings
from voicepipe.ports.model import Content, Model, ModelRequest, Text, TextDelta
from voicepipe.providers.local import llm
from voicepipe.providers.local.process import start_engine
from voicepipe.registry import ProviderSettings, Spec


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the pattern that its right answer contains."""

    text: str
    pattern: str

    def is_answered_by(self, answer: str) -> bool:
        """Return whether the answer is right; upper and lower case are the same."""
        return re.search(self.pattern, answer, re.IGNORECASE) is not None


def questions_in(path: Path) -> list[Question]:
    """Read a file with a question and a pattern on each line, apart by a tab, below a heading."""
    return [Question(*line.split("\t")) for line in path.read_text(encoding="utf-8").splitlines()[1:]]


async def answer_to(model: Model, question: Question) -> str:
    """Ask with the shipped instructions; return the whole answer."""
    messages = (
        Content("system", (Text(AgentSettings().instructions),)),
        Content("user", (Text(question.text),)),
    )
    async with model.open(ModelRequest(model=llm.MODEL, messages=messages)) as events:
        return "".join([event.text async for event in events if isinstance(event, TextDelta)])


async def measure(files: list[Path], socket_path: Path, *, show: bool) -> None:
    """Print a line for each file."""
    async with start_engine(socket_path, stages=("llm",)):
        settings = ProviderSettings(kind="local", options=(("socket", str(socket_path)),), idle_timeout_ms=60_000)
        model = llm.open_model(Spec("local", llm.MODEL), settings)
        for path in files:
            n_right, lengths = 0, []
            questions = questions_in(path)
            for question in questions:
                answer = await answer_to(model, question)
                is_right = question.is_answered_by(answer)
                n_right += is_right
                lengths.append(len(answer.split()))
                if show:
                    sys.stdout.write(f"{'right' if is_right else 'WRONG'}  {question.text}  {answer.strip()}\n")
            words = f"{statistics.median(lengths):.0f} words at the median, {max(lengths)} at most"
            sys.stdout.write(f"{path.name}: {n_right} of {len(questions)} right, {words}\n")
            sys.stdout.flush()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="tests.measure.local_llm", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--show", action="store_true", help="print each question with its answer")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(arguments.files, Path(folder) / "e.sock", show=arguments.show))


if __name__ == "__main__":
    main()
