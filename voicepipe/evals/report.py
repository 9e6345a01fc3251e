"""Report the results of scenarios: lines for the terminal, JUnit XML, and HTML with the audio."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from statistics import median
from typing import Final, Literal
from xml.etree import ElementTree

from rich.table import Table

from voicepipe.audio.samples import Samples
from voicepipe.client import RATE_HZ
from voicepipe.evals.run import RunResult
from voicepipe.evals.scenario import Scenario

_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid #ccc;padding:.3rem .6rem;text-align:left;"
    "vertical-align:top}audio{width:100%;margin:.5rem 0}.failed{color:#a00000}.passed{color:#006000}"
    "h2{margin-top:2.5rem}"
)


Time = Literal["real", "virtual"]


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """All runs of a scenario."""

    scenario: Scenario
    runs: tuple[RunResult, ...]
    took_ms: int
    time: Time = "real"
    """The time in which they ran."""

    @property
    def n_passed(self) -> int:
        """Return the number of passed runs."""
        return sum(run.passed for run in self.runs)

    @property
    def passed(self) -> bool:
        """Return whether enough runs have passed."""
        return self.n_passed >= self.scenario.pass_share * len(self.runs)

    def latency_text(self) -> str:
        """Return the median and the longest latency of all answers, in ms."""
        found = [ms for run in self.runs for ms in run.latencies_ms]
        return f"{median(found):.0f} / {max(found)}" if found else "-"


def failures_of(result: ScenarioResult) -> Iterator[str]:
    """Yield a line for each failure, with its run and step."""
    for number, run in enumerate(result.runs, start=1):
        place = f"run {number}, " if len(result.runs) > 1 else ""
        for n, step in enumerate(run.steps, start=1):
            yield from (f"{place}step {n} ({step.title}): {failure}" for failure in step.failures)
        yield from (f"{place}conversation: {failure}" for failure in run.failures)
        if not run.passed:
            yield from (f"{place}the server reported: {message}" for message in run.notes)


def table(results: Sequence[ScenarioResult]) -> Table:
    """Return the table for the terminal."""
    in_time = " (virtual time)" if any(each.time == "virtual" for each in results) else ""
    lines = Table("scenario", "agent", "passed", f"latency p50 / max, ms{in_time}", "result")
    for each in results:
        result = "[green]passed[/]" if each.passed else "[red]failed[/]"
        scenario = each.scenario
        lines.add_row(
            scenario.name, scenario.agent_name, f"{each.n_passed} of {len(each.runs)}", each.latency_text(), result
        )
    return lines


def junit(results: Sequence[ScenarioResult]) -> bytes:
    """Return JUnit XML: a test case for each scenario, with its failures."""
    suite = ElementTree.Element(
        "testsuite",
        name="voicepipe eval",
        tests=str(len(results)),
        failures=str(sum(not each.passed for each in results)),
        time=f"{sum(each.took_ms for each in results) / 1_000:.3f}",
    )
    for each in results:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            name=each.scenario.name,
            classname=str(each.scenario.path),
            time=f"{each.took_ms / 1_000:.3f}",
        )
        if each.time == "virtual":
            ElementTree.SubElement(ElementTree.SubElement(case, "properties"), "property", name="time", value="virtual")
        lines = _printable("\n".join(failures_of(each)))
        if not each.passed:
            message = f"{each.n_passed} of {len(each.runs)} runs passed"
            ElementTree.SubElement(case, "failure", message=message).text = lines
        elif lines:
            ElementTree.SubElement(case, "system-out").text = lines
    root = ElementTree.Element("testsuites")
    root.append(suite)
    whole: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return whole


def html(results: Sequence[ScenarioResult]) -> str:
    """Return one HTML file with everything in it, the audio too."""
    return "\n".join(_html(results))


def _html(results: Sequence[ScenarioResult]) -> Iterator[str]:
    n_passed = sum(each.passed for each in results)
    yield "<!doctype html><html lang=en><meta charset=utf-8><title>voicepipe eval</title>"
    yield f"<style>{_STYLE}</style><h1>{n_passed} of {len(results)} scenarios passed</h1>"
    for each in results:
        yield f"<h2>{escape(each.scenario.name)}: {_word(each.passed)}</h2>"
        place = f"{each.scenario.path}, agent {each.scenario.agent_name}"
        in_time = ", in virtual time" if each.time == "virtual" else ""
        yield f"<p>{escape(place)}: {each.n_passed} of {len(each.runs)} runs passed{in_time}</p>"
        for number, run in enumerate(each.runs, start=1):
            yield f"<h3>Run {number}: {_word(run.passed)}</h3>"
            yield '<p>The user is on the left, the agent on the right.</p><audio controls preload="none" '
            yield f'src="data:audio/flac;base64,{base64.b64encode(_flac(run.audio)).decode()}"></audio>'
            yield "<table><tr><th>user<th>understood<th>agent<th>latency, ms<th>failures</tr>"
            yield from (
                _row(step.title, step.transcript, step.agent_text, step.latencies_ms, step.failures)
                for step in run.steps
            )
            yield "</table>"
            yield from (f"<p class=failed>{escape(failure)}</p>" for failure in run.failures)
            yield from (f"<p>The server reported: {escape(message)}</p>" for message in run.notes)
    yield "</html>"


def _row(title: str, transcript: str, agent_text: str, latencies_ms: Sequence[int], failures: Iterable[str]) -> str:
    wrong = "<br>".join(map(escape, failures))
    latency = ", ".join(map(str, latencies_ms)) or "-"
    cells = (escape(title), escape(transcript), escape(agent_text), latency, f"<span class=failed>{wrong}</span>")
    return f"<tr>{''.join(f'<td>{cell}' for cell in cells)}</tr>"


def _word(passed: bool) -> str:
    return "<span class=passed>passed</span>" if passed else "<span class=failed>failed</span>"


def _flac(samples: Samples) -> bytes:
    import soundfile  # costly to import

    file = io.BytesIO()
    soundfile.write(file, samples, RATE_HZ, format="FLAC", subtype="PCM_16")
    return file.getvalue()


def _printable(text: str) -> str:
    """Return a text without the control characters that XML can't hold."""
    return "".join(each if each.isprintable() or each in "\n\t" else "\ufffd" for each in text)
