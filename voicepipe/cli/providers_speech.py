"""The STTs and TTSs of `voicepipe providers`: keys and prices; `--probe` has each transcribe or speak 1 sentence."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from io import BytesIO
from typing import Final, Literal

import msgspec

from voicepipe.audio.samples import Samples
from voicepipe.cli.probe import CLAUSE, Probe, StageOutput, probe, probe_stt, probe_tts
from voicepipe.cli.provider_status import key_of
from voicepipe.config import Settings
from voicepipe.config.settings import LOCAL
from voicepipe.ports.synthesizer import RATE_HZ, Voice
from voicepipe.ports.transcriber import TranscriptionOptions
from voicepipe.providers.built_in import TRANSCRIBERS, VOICES, key_env_of
from voicepipe.providers.vendor import SpeechFacts
from voicepipe.registry import Spec
from voicepipe.turn.cost import tts_usd
from voicepipe.values import replace

HEAD: Final = ("STT or TTS", "", "key", "reached", "USD", "evidence")

LANGUAGE: Final = "en"
"""Language of the clause."""

CLIP: Final = "probe.flac"
"""The clause, spoken by the local TTS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechLine:
    """One STT or TTS."""

    stage: Literal["stt", "tts"]
    spec: Spec
    in_use: bool
    key: str
    """As `key_of` returns it."""

    evidence: str
    usd: float | None
    """Price of 1 minute of transcription, or of 1 million characters of speech."""

    source: str
    """Source of that price."""

    reached: str = ""
    """How long connecting took, or why it failed; empty: not tried, since the key is missing."""

    probe: Probe | None = None

    @property
    def provider(self) -> str:
        """Return its section of the settings."""
        return self.spec.provider


def lines(settings: Settings, names: tuple[str, ...]) -> Iterator[SpeechLine]:
    """Yield the agents' STTs and TTSs, then the known ones of all vendors, or of `names` only."""
    for stage, known in (("stt", TRANSCRIBERS), ("tts", VOICES)):
        speech_stage: Literal["stt", "tts"] = "stt" if stage == "stt" else "tts"
        used = list(dict.fromkeys(spec for agent in settings.agents.values() for spec in agent.specs(speech_stage)))
        facts = {Spec.parse(row.spec): row for row in known if key_env_of(row)}
        for spec in dict.fromkeys([*used, *facts]):
            if not names or spec.provider in names:
                yield _line(settings, speech_stage, spec, facts.get(spec), in_use=spec in used)


def _line(
    settings: Settings, stage: Literal["stt", "tts"], spec: Spec, facts: SpeechFacts | None, *, in_use: bool
) -> SpeechLine:
    from voicepipe.wiring.prices import stt_usd_per_minute_of, tts_usd_per_million_of

    entry = settings.providers[spec.provider]
    own = entry.stt_usd_per_minute if stage == "stt" else entry.tts_usd_per_million_chars
    return SpeechLine(
        stage=stage,
        spec=spec,
        in_use=in_use,
        key=key_of(settings, spec.provider),
        evidence="your settings" if facts is None else facts.evidence.replace("_", " "),
        usd=stt_usd_per_minute_of(settings, spec) if stage == "stt" else tts_usd_per_million_of(settings, spec),
        source=f"providers.{spec.provider}" if own is not None else "" if facts is None else facts.price_source,
    )


def table(lines_: list[SpeechLine]) -> Iterator[str]:
    """Yield the lines of a table for people; a probe's result follows its STT or TTS."""
    rows = [HEAD, *(_cells(line) for line in lines_)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    for row, line in zip(rows, [None, *lines_], strict=True):
        marker = "* " if line is not None and line.in_use else "  "
        yield (marker + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()
        if line is not None and line.probe is not None:
            yield f"    {line.probe.summary}"
    yield "* an agent uses it. Prices are for a minute of STT or a million characters of TTS."


def _cells(line: SpeechLine) -> tuple[str, ...]:
    unit = "min" if line.stage == "stt" else "M"
    usd = "-" if line.usd is None else f"{line.usd:.4g}/{unit}"
    return (
        str(line.spec),
        line.stage,
        line.key,
        line.reached or "-",
        usd,
        line.evidence,
    )


def plain(line: SpeechLine) -> dict[str, object]:
    """Return the line as values for JSON."""
    values = {**msgspec.to_builtins(line), "provider": line.provider, "model": line.spec.model}
    del values["spec"]
    return values


# --- probing --------------------------------------------------------------------------------------


def is_probed(settings: Settings, line: SpeechLine, named: set[str]) -> bool:
    """Return whether a probe calls it: its key is set, or it needs none and is in use or named. Never a local one."""
    probed = line.key == "set" or (line.key == "not needed" and (line.in_use or line.provider in named))
    return probed and settings.providers[line.provider].kind not in LOCAL


def cost_usd(line: SpeechLine) -> float | None:
    """Return what a probe of it costs; None when its price is not known."""
    if line.usd is None:
        return None
    return tts_usd(len(CLAUSE), line.usd) if line.stage == "tts" else line.usd * len(_clip()) / RATE_HZ / 60


async def probed(settings: Settings, line: SpeechLine) -> SpeechLine:
    """Return the line with the result of its probe."""
    clip = await asyncio.to_thread(_clip)
    result, _ = await probe(line.stage, str(line.spec), _query(settings, line, clip))
    return replace(line, probe=_judged(settings, line, result))


async def _query(settings: Settings, line: SpeechLine, clip: Samples) -> StageOutput:
    from voicepipe.wiring import Stages

    provider = Stages(settings).get(line.stage, line.spec, key="--probe")
    if line.stage == "tts":
        return await probe_tts(provider, Voice(model=line.spec.model, language=LANGUAGE))
    return await probe_stt(provider, TranscriptionOptions(model=line.spec.model, language=LANGUAGE), clip)


def _judged(settings: Settings, line: SpeechLine, result: Probe) -> Probe:
    """Return the verdict: an STT that transcribed none of the words fails; a refusal names the key that was used."""
    if result.ok and line.stage == "stt" and not set(_words(CLAUSE)) & set(_words(result.outcome)):
        return replace(result, ok=False, outcome=f'{result.outcome}, not "{CLAUSE}"')
    env = settings.providers[line.provider].api_key_env
    if not result.ok and env and ("HTTP 401" in result.outcome or "HTTP 403" in result.outcome):
        return replace(result, outcome=f"{result.outcome}; it was sent ${env}")
    return result


def _words(text: str) -> list[str]:
    return "".join(char if char.isalnum() else " " for char in text.casefold()).split()


def _clip() -> Samples:
    """Return the clip, int16, (n_samples,), 24 kHz. Reads a file."""
    from voicepipe.audio.files import read_sound

    return read_sound(BytesIO(files(__package__).joinpath(CLIP).read_bytes()), RATE_HZ)
