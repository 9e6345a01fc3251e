"""Convert a turn's record to the JSON of the store and the API.

All times are integer ms; those of `marks` count from the beginning of the session.

====================  ======================================================================
`id`                  the turn's name on the wire (`response.metadata.voicepipe_turn`)
`session`             the session's id
`turn`                number of the turn in its session, from 1
`revision`            how often the user continued speaking before anything was audible
`cause`               `vad`, `commit`, `create`, `tool`, `idle`, `greeting`, or `apology` for a turn that failed
`outcome`             `completed`, `interrupted`, `failed`, `abandoned`; null: still running
`reason`              why it ended so; empty when it simply completed
`marks`               object, mark -> ms, in time order
`total_ms`            turn latency, or null when nothing was heard
`total_limit_ms`      its limit
`total_verdict`       `within`, `over`, or null when there is no total
`latency_source`            source of that: `reported` by the client, `estimated`, or `none`: nothing was heard
`stages`              list of objects: `stage`, `duration_ms`, `limit_ms`, `verdict`,
                      `critical_ms` (the user waited for it), `hidden_ms` (ran behind
                      another stage), `owner` (which party could make it shorter)
`parts`               object, sub-part of a stage (`stt_final`, `gate_wait`, `connect`) -> ms
`contributions`       list of objects: `stage`, `from_mark`, `to_mark`, `duration_ms`; they
                      lie end to end and, with `unattributed_ms`, sum to `total_ms`
`unattributed_ms`     time without a name
`breach`              null, or the stage with the largest excess that the user waited for: `stage`,
                      `over_ms`, `owner`, `depends_on` (what would help; empty: nothing known),
                      the `setting` for that or null, and `saves_ms`: how much sooner the
                      answer would have been heard with that stage at its limit
`providers`           object, stage -> provider that served the turn
`tokens`              object, as the provider counts them: `input`, `output`, and of the input
                      those that its cache had (`cached`) and those put there (`cache_write`)
`user_text`         what the user said; empty when texts are not kept
`agent_text`          the whole reply; likewise
`played_text`          what the user heard of it; likewise
`spoken_ms`           how much audio of the reply was sent
`actions`             list of strings: what was done to save the budget
`projected`           object, mark -> the turn latency that was expected then, in ms
`filler`              the phrase said before the answer came; no part of `agent_text`
`language`            the user's language, as BCP-47: as the STT detected it, or else as it is set
`route`               why that model answered; empty when there was no choice
`attempts`            list of objects, the LLM calls of a router for the answer: `provider`,
                      `role`, `outcome`, `began_ms`, `first_ms` or null, `why`, `cost_usd` or null
`itl_ms`              the mean time from one token of the answer to the next, or null: its tokens were
                      not counted, came at once, or are those of two models
`tokens_per_s`        1000 / `itl_ms`, or null
`tts_connect_hidden_ms`   how much of connecting to the TTS was over when the reply began: what it did
                      not wait for; null for a TTS without a connection that is kept
`carrier_estimated_ms` of a phone call: what the way to the carrier and back has of the total, as estimated
                      from the carrier's marks to about 20 ms; else null
`resumed`             how often the user went on while an answer was audible that had begun softly
`taken_back_ms`       how much the user had heard of the answers that were dropped for that
`tools`               list of objects, the function calls that the answer waited for: `name`, `ran_by`,
                      `arguments` (at most 2,000 characters of the text that the LLM wrote; empty when
                      texts are not kept), `took_ms` or null, `early_ms`, `outcome`: `running`,
                      `returned`, `unanswered`, `failed`, `timed_out`, `cancelled`
`first_audio_ms`      from t0 to the first audible sample of any kind, or null
`answer_audio_ms`     from t0 to the first audible sample of the answer, or null
`failed_stage`        the stage in which it failed: `stt`, `llm`, `tts`, `client` (it took no more, or
                      disabled truncation) or `reply` (not complete in time); null: it did not fail
`stt_connect_hidden_ms` how much of connecting to the STT was over when the user began to speak, or null
`context`             object, what the LLM was given of the conversation, in tokens estimated from the
                      text: `tokens_before` (all of it), `tokens_after` (sent), `items_dropped`,
                      and `limit_tokens` or null
`knowledge`           object, the search of the agent's documents: `passages` given to the LLM, a list of
                      objects (`document`, `passage`: its number there), `took_ms` or null,
                      `embedding_ms`, the part of it for the query's vector, or null, and
                      `embedding_usd`, what that has cost, or null if its price is unknown
`speculation`         object, replies started before the turn was over: `starts`, `used`,
                      `refused` (not made: it would not have paid, or a limit was reached),
                      `saved_ms` (how much sooner the used ones were audible),
                      `wasted_input_tokens` and `wasted_output_tokens` of the others, and
                      `estimated`: true when some of these are estimated from the text
`session_speculation` the same of all turns of the session, up to this record
`cost`                object, in USD: `answer_usd`, `hedge_usd` (calls that were slower or failed),
                      `speculation_usd`, `tts_usd`, `stt_usd`, `embedding_usd` and their sum `usd`; `whole`: false
                      when something has no known price; `estimated`: tokens estimated from the text
`session_cost`        object, of all turns of the session up to this record: `usd`, `hedge_usd`,
                      `speculation_usd`, `summary_usd` (summaries, of no turn), `active_ms` (time spent in turns),
                      `usd_per_active_minute` or null, `cached_share` (of the tokens read) or
                      null, and `whole`
====================  ======================================================================
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from voicepipe.telemetry.advice import depends_on_for, setting_for
from voicepipe.turn.record.arm import Arm
from voicepipe.turn.record.values import TurnRecord

_PAIRS = ("marks", "parts", "providers", "projected")  # tuples of pairs in the record, objects in JSON
_MISSING: Final[dict[str, dict[str, int]]] = {"projected": {}}
"""Fields that records of the first version did not have."""

_TEXTS = ("user_text", "agent_text", "played_text")
_BESIDE = ("pool", "arm")  # stored and published beside the record, for filters and statistics


def record_plain(record: TurnRecord, agent: str) -> dict[str, Any]:
    """Return a record as plain values, ready for any JSON encoder; the fields are those of the module's docstring.
    `agent` is the name in its settings."""
    plain: dict[str, Any] = msgspec.to_builtins(record)
    for name in _BESIDE:
        del plain[name]
    for name in _PAIRS:
        plain[name] = dict(plain[name])
    for name in _TEXTS:
        plain[name] = _whole_characters(plain[name])
    if breach := plain["breach"]:
        breach["setting"] = setting_for(breach["depends_on"], agent) or None
    return plain


def record_json(record: TurnRecord, agent: str) -> bytes:
    """Return a record as JSON in UTF-8; the fields are those of the module's docstring."""
    return msgspec.json.encode(record_plain(record, agent))


def record_from_json(data: bytes | str) -> TurnRecord:
    """Return the record that `record_json` wrote, now or in an older version.

    Fields that this version does not have are skipped, and those that an older version did not
    write take their defaults: a new field of `TurnRecord` needs one.

    Raises:
        ValueError: this is not a turn's record; the text has where it differs.
    """
    plain = msgspec.json.decode(data, type=dict[str, Any])
    for name in _PAIRS:
        pairs = plain.get(name, _MISSING.get(name))
        if not isinstance(pairs, dict):
            raise ValueError(f"{name}: expected an object, got {type(pairs).__name__}")
        plain[name] = tuple(pairs.items())
    if isinstance(breach := plain.get("breach"), dict) and isinstance(setting := breach.get("setting"), str):
        breach.setdefault("depends_on", depends_on_for(setting))
    if isinstance(arm := plain.get("arm"), str):  # stands beside the record in a turn as the API serves it
        plain["arm"] = Arm.read(arm)
    return msgspec.convert(plain, TurnRecord)


def _whole_characters(text: str) -> str:
    """Return the text with half surrogate pairs replaced: an LLM cut in mid-emoji leaves such, invalid in UTF-8."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
