"""Declare every log event: its name, levels, fields and meaning. The table of `web/docs/logs.md` is generated from it.

A test compares names, levels and fields with the calls of `log_event`.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

Level = Literal["info", "warning", "error"]


class LogEvent(Struct, frozen=True):
    """A log event. Its meaning is Markdown, with links as from a page below `web/docs`."""

    name: str
    levels: tuple[Level, ...]
    fields: tuple[str, ...]
    meaning: str


LOG_EVENTS: Final = (
    LogEvent("session_opened", ("info",), ("session", "project", "agent"), "a client has connected"),
    LogEvent("session_closed", ("info",), ("session", "lasted_ms"), "the session has ended"),
    LogEvent(
        "turn_closed",
        ("info", "warning"),
        (
            "session",
            "turn",
            "cause",
            "outcome",
            "reason",
            "total_ms",
            "verdict",
            "breach",
            "owner",
            "setting",
            "saves_ms",
            "actions",
        ),
        "a turn has ended; a failed turn is a warning. `breach` is the stage with the largest excess that the user "
        "waited for; `setting` would have made the answer up to `saves_ms` sooner",
    ),
    LogEvent(
        "stage_over_limit",
        ("warning",),
        ("session", "turn", "stage", "owner", "over_ms"),
        "the user waited for a stage for longer than its limit; never for the chosen silence of a turn in time",
    ),
    LogEvent(
        "tool_failed",
        ("info",),
        ("session", "tool", "outcome"),
        "a function that the server runs has no result: `failed` or `timed_out`. The LLM reads why",
    ),
    LogEvent(
        "mcp_connected",
        ("info",),
        ("server", "tools"),
        "a connection to an [MCP server](agents.md#mcp-servers) was made; `tools` is the number of its tools that "
        "are allowed",
    ),
    LogEvent(
        "mcp_failed",
        ("warning",),
        ("server", "why"),
        "a connection to an MCP server failed or was lost; the next attempt follows",
    ),
    LogEvent(
        "mcp_tool_refused", ("info",), ("server", "tool", "why"), "a tool of an MCP server is not offered to agents"
    ),
    LogEvent(
        "call_handed_over",
        ("info",),
        ("session", "agent"),
        "an agent has [handed a call over](agents.md#hand-a-call-over) to `agent`",
    ),
    LogEvent(
        "hook_failed",
        ("info",),
        ("session", "hook", "why"),
        "a hook of an agent in Python raised, took too long, or returned something else than expected",
    ),
    LogEvent("settings_reloaded", ("info",), ("agents",), "other settings are in force for new sessions"),
    LogEvent(
        "settings_refused",
        ("warning",),
        ("why",),
        "the settings as written now are wrong, or need a restart; the old ones stay in force",
    ),
    LogEvent(
        "session_stuck",
        ("error",),
        ("session", "user", "agent", "so_far"),
        "the watchdog ended a turn that had stopped making progress: a bug in voicepipe",
    ),
    LogEvent(
        "endpointing_failed",
        ("error",),
        ("session", "strategy", "why", "so_far"),
        "an end-of-turn strategy raised or returned an invalid decision; the session goes on with `silence`. Once a "
        "session",
    ),
    LogEvent(
        "provider_failed",
        ("warning",),
        ("session", "stage", "provider", "kind", "why"),
        "a provider refused, stalled or broke",
    ),
    LogEvent(
        "knowledge_late",
        ("warning",),
        ("session", "took_ms"),
        "a search of the agent's documents took too long; the answer comes without passages",
    ),
    LogEvent(
        "knowledge_embedded",
        ("info",),
        ("model", "passages", "new", "took_ms"),
        "an agent's documents are [searched by meaning](knowledge.md#by-meaning) from now on",
    ),
    LogEvent(
        "knowledge_embedding_failed",
        ("warning",),
        ("model", "why"),
        "documents can't be embedded now; tried again unless the vendor refuses for good",
    ),
    LogEvent(
        "knowledge_query_not_embedded",
        ("warning",),
        ("model", "why"),
        "queries are searched for by their words only; logged once until one is embedded",
    ),
    LogEvent(
        "phone_command_failed",
        ("warning",),
        ("line", "url", "status"),
        "the API of a [phone](phone.md) carrier did not take a command to a call; `status` 0: it was not reached",
    ),
    LogEvent(
        "phone_call_refused",
        ("warning",),
        ("line", "why"),
        "a [phone call](phone.md) got the busy tone, or was ended before its session began",
    ),
    LogEvent(
        "phone_signature_wrong",
        ("warning",),
        ("line", "url"),
        "a webhook request was not signed by the carrier, or not for this `url`: compare it with the one at the "
        "carrier; logged once a line",
    ),
    LogEvent(
        "field_not_served",
        ("info",),
        ("session", "field"),
        "a client has set a field that has [no effect](wire.md), and the agent's `unserved_fields` is `log`",
    ),
    LogEvent(
        "summary_failed",
        ("warning",),
        ("session", "why"),
        "the LLM of `summary_llm` failed; the items leave without a summary",
    ),
    LogEvent(
        "summary_not_stored",
        ("warning",),
        ("session", "why"),
        "the summary of a call is missing in its [transcript](operating.md#api)",
    ),
    LogEvent(
        "language_not_served",
        ("warning",),
        ("setting", "why"),
        "an agent has a [language](agents.md#languages) that its STT or TTS does not have",
    ),
    LogEvent(
        "bench_run",
        ("info", "warning"),
        ("bench", "stage", "provider", "result", "usd", "why"),
        "a [scheduled bench](benches.md) was `measured`, has `failed`, or was left out (`over_cap`); the last two are "
        "warnings",
    ),
    LogEvent(
        "bench_drifted",
        ("warning",),
        ("bench", "stage", "provider", "figure", "before_ms", "after_ms"),
        "a scheduled bench is slower or faster than before, by more than chance and `bench_schedule.drift_share`",
    ),
    LogEvent(
        "benches_not_measured",
        ("warning",),
        ("why",),
        "no scheduled bench runs: another process measures them, or their log can't be written; it tries each minute",
    ),
    LogEvent(
        "breaker_opened",
        ("warning", "error"),
        ("session", "stage", "provider", "kind", "why", "retry_in_ms", "must_act"),
        "a provider's circuit breaker has opened; an error when an operator must act",
    ),
    LogEvent(
        "api_keys_not_shared",
        ("warning",),
        ("why",),
        "the file of API keys can't be read or written: keys of other nodes are not known here, or the other way round",
    ),
    LogEvent(
        "breaker_hinted",
        ("info",),
        ("stage", "provider"),
        "a provider's circuit breaker has opened since that of another process is open; a call tests the provider soon",
    ),
    LogEvent(
        "router_state_unreadable",
        ("warning",),
        ("file", "why"),
        "what the router had learned can't be read: it starts with the published figures",
    ),
    LogEvent(
        "router_state_write_failed",
        ("warning",),
        ("file", "why"),
        "what the router has learned can't be saved; it tries again after a minute",
    ),
    LogEvent(
        "chat_closed",
        ("info",),
        (
            "id",
            "project",
            "model",
            "route",
            "outcome",
            "lasted_ms",
            "ttft_ms",
            "cache",
            "input_tokens",
            "output_tokens",
            "cached_tokens",
            "estimated",
            "cost_usd",
        ),
        "a chat completion has ended",
    ),
    LogEvent(
        "speech_closed",
        ("info",),
        ("id", "project", "model", "route", "outcome", "lasted_ms", "ttfb_ms", "spoken_ms", "characters", "cost_usd"),
        "a speech request over REST has ended",
    ),
    LogEvent(
        "transcription_closed",
        ("info",),
        ("id", "project", "model", "route", "outcome", "lasted_ms", "first_ms", "audio_ms", "cost_usd"),
        "a transcription over REST has ended",
    ),
    LogEvent(
        "translation_closed",
        ("info",),
        ("id", "project", "model", "route", "outcome", "lasted_ms", "first_ms", "audio_ms", "llm", "cost_usd"),
        "a translation over REST has ended; `llm` translated, unless the STT did",
    ),
    LogEvent(
        "embedding_closed",
        ("info",),
        ("id", "project", "model", "route", "outcome", "lasted_ms", "input_tokens", "cost_usd"),
        "a request for embeddings has ended",
    ),
    LogEvent(
        "embedding_failed",
        ("warning",),
        ("id", "project", "provider", "kind", "why"),
        "a provider failed during a request for embeddings",
    ),
    LogEvent(
        "chat_failed",
        ("warning",),
        ("id", "project", "provider", "kind", "why"),
        "a provider failed during a chat completion",
    ),
    LogEvent(
        "speech_failed",
        ("warning",),
        ("id", "project", "provider", "kind", "why"),
        "a provider failed during a speech request over REST",
    ),
    LogEvent(
        "transcription_failed",
        ("warning",),
        ("id", "project", "provider", "kind", "why"),
        "a provider failed during a transcription over REST",
    ),
    LogEvent(
        "translation_failed",
        ("warning",),
        ("id", "project", "provider", "kind", "why"),
        "a provider failed during a translation over REST",
    ),
    LogEvent("refused", ("info",), ("path", "status", "code", "address"), "a credential was refused"),
    LogEvent(
        "call_not_connected",
        ("info",),
        ("session",),
        "a client began a call over WebRTC and did not connect within `webrtc.connect_ms`",
    ),
    LogEvent(
        "ice_server_failed",
        ("warning",),
        ("server",),
        "a server of `webrtc.ice_servers` has given no address for a call: it did not answer within 5 s, it refused "
        "`webrtc.turn_username`, or its certificate is not trusted; the call goes on with the other addresses",
    ),
    LogEvent(
        "slow_client_dropped",
        ("warning",),
        ("why",),
        "a client read its events too slowly, and the server closed its connection; the client may resume",
    ),
    LogEvent(
        "session_taken_over",
        ("info",),
        ("session",),
        "a client has resumed a session of [another node](nodes.md#a-node-that-dies) here",
    ),
    LogEvent(
        "left_session_ended",
        ("info",),
        ("session", "n_turns"),
        "the node of this session has died, and its client has not come back: its open turns are recorded as over",
    ),
    LogEvent(
        "session_moved", ("warning",), (), "the client of this session has resumed it at another node; it ends here"
    ),
    LogEvent(
        "session_not_taken_over",
        ("warning",),
        ("why",),
        "a session of another node could not go on here: no slot was free, its client secret was revoked, or a "
        "newer voicepipe wrote it",
    ),
    LogEvent(
        "store_lost_data",
        ("error",),
        (),
        "the store of the [nodes](nodes.md#when-the-store-is-away) has lost its data; each process logs this once",
    ),
    LogEvent(
        "session_snapshot_too_large",
        ("warning",),
        ("session", "n_bytes"),
        "the session's snapshot is over 1 MB: it can't go on at another node",
    ),
    LogEvent("resume_refused", ("info",), ("peer",), "a client tried to resume a session without the right secret"),
    LogEvent("token_revoked", ("info",), ("project", "by"), "client secrets were revoked"),
    LogEvent(
        "session_deleted", ("info",), ("session", "project", "turns"), "a session's records were deleted on request"
    ),
    LogEvent("user_deleted", ("info",), ("project", "sessions", "turns"), "a user's records were deleted on request"),
    LogEvent("export_failed", ("info",), ("why",), "an export could not be written to its end"),
    LogEvent(
        "usage_update_failed",
        ("warning",),
        ("why",),
        "a client secret's usage can't be counted now; the server tries again",
    ),
    LogEvent(
        "usage_lost",
        ("error",),
        ("project", "what", "amount", "why"),
        "a client secret's usage could not be counted even at the server's end",
    ),
    LogEvent(
        "revocations_read_failed",
        ("warning",),
        ("why",),
        "the list of revocations can't be read now; the server tries again",
    ),
    LogEvent(
        "slot_renewal_failed",
        ("warning",),
        ("why",),
        "the shared count of sessions can't be written now; the server tries again",
    ),
    LogEvent(
        "slot_release_failed",
        ("warning",),
        ("session", "why"),
        "the shared count of sessions can't be written at a session's end; the server tries again",
    ),
    LogEvent(
        "bad_http",
        ("info",),
        ("address", "why", "unlogged"),
        "a client sent something that is not HTTP; at most one event in 10 s, `unlogged` counts those in between",
    ),
    LogEvent(
        "connections_full",
        ("warning",),
        ("why", "waiting", "unlogged"),
        "no descriptor was left for a connection; at most one event in 10 s",
    ),
    LogEvent(
        "decoder_ended",
        ("warning",),
        ("why", "unlogged"),
        "the process that decodes a recording crashed or was killed for its limits, or the process that starts the "
        "decoders has ended; at most one event in 10 s",
    ),
    LogEvent(
        "few_descriptors",
        ("warning",),
        ("limit", "needed"),
        "the system allows fewer open files than the configured sessions can need: raise `LimitNOFILE` or `ulimit -n`",
    ),
    LogEvent(
        "worker_started", ("info",), ("worker", "pid"), "the supervisor has started a [worker](operating.md#workers)"
    ),
    LogEvent(
        "worker_ended",
        ("error",),
        ("worker", "pid", "status", "why"),
        "a worker has ended without being stopped; the supervisor starts it again. `status` is its exit status, or "
        "minus a signal; `why` is there if it could not start",
    ),
    LogEvent(
        "worker_hung",
        ("error",),
        ("worker", "pid", "pings"),
        "a worker left `pings` pings of the supervisor unanswered, one a second; the supervisor kills it and starts it "
        "again",
    ),
    LogEvent(
        "worker_channel_full",
        ("warning",),
        ("message",),
        "a worker can't send its supervisor a message of this kind: too much waits. An answer is left out, so that the "
        "request for it gets a 503; slots and sessions are reported as soon as the supervisor reads again",
    ),
    LogEvent("worker_killed", ("error",), ("why",), "a worker did not end in time after a stop"),
    LogEvent(
        "worker_message_refused",
        ("error",),
        ("worker", "why"),
        "the supervisor can't read a message of a worker: a bug in voicepipe",
    ),
    LogEvent(
        "event_loop_stalled",
        ("warning",),
        ("stall_ms", "stack", "unlogged"),
        "the event loop was stalled, see [Loop health](operating.md#loop-health)",
    ),
    LogEvent(
        "storage_failed",
        ("error",),
        ("store", "kind", "why", "unlogged"),
        "a [store](records.md#when-storage-fails) has begun to fail; logged once, and at most every 10 s: `unlogged` "
        "counts the failures in between",
    ),
    LogEvent("storage_recovered", ("info",), ("store", "lasted_ms"), "the store works again"),
    LogEvent("storage_lost", ("error",), ("store", "count", "what"), "the server ends and could not store this"),
    LogEvent(
        "records_lost",
        ("error",),
        ("count", "why"),
        "turn records are lost: the queue is full, the store fails, or the server ends; logged once until a record "
        "is stored; the metric counts all",
    ),
    LogEvent(
        "record_maintenance_failed", ("error",), ("why",), "old records can't be summed up or deleted now; logged once"
    ),
    LogEvent(
        "spans_lost", ("warning",), ("count",), "the trace collector did not accept spans; logged once until it does"
    ),
    LogEvent("log_lines_dropped", ("warning",), ("count",), "stderr was blocked and these log events were dropped"),
    LogEvent("journal_refused", ("warning",), ("why",), "a session has no journal, because there is no room"),
    LogEvent("journal_failed", ("warning",), ("why",), "a journal could not be written"),
    LogEvent(
        "recording_stopped",
        ("warning",),
        ("session", "why"),
        "the rest of a call is not recorded: the disk failed, or there is no room",
    ),
    LogEvent("webhook_failing", ("warning",), ("webhook", "why"), "a receiver does not accept events"),
    LogEvent("webhook_recovered", ("info",), ("webhook",), "the receiver accepts events again"),
    LogEvent("webhook_given_up", ("warning",), ("webhook", "id", "why"), "an event is now a dead letter"),
    LogEvent("webhooks_given_up", ("warning",), ("count", "why"), "the oldest events were given up to make room"),
    LogEvent(
        "webhooks_dropped",
        ("error",),
        ("count",),
        "events were dropped: the webhook queue can't be written, and the memory before it is full",
    ),
    LogEvent(
        "webhook_queue_write_failed", ("error",), ("why",), "the events could not be written even at the server's end"
    ),
    LogEvent("local_engine_gone", ("warning",), ("pid",), "the local models' process died; the server starts it again"),
    LogEvent(
        "local_engine_failed",
        ("error",),
        ("why",),
        "the local models' process can't be started; the server tries again at growing intervals",
    ),
    LogEvent(
        "audio_cache_closed",
        ("info",),
        ("hits", "misses", "dropped", "bytes"),
        "the totals of the audio cache, at the end",
    ),
    LogEvent(
        "prompt_never_cached",
        ("warning",),
        ("setting", "provider", "about_tokens", "min_tokens"),
        "an agent's instructions are too short for its provider's cache",
    ),
    LogEvent("model_unknown", ("warning",), ("provider", "near"), "a provider's list lacks a model of the settings"),
    LogEvent("model_list_failed", ("warning",), ("provider", "why"), "a provider's list can't be read"),
    LogEvent(
        "crashed", ("error",), ("where", "session", "turn", "exception"), "a bug in voicepipe, with its traceback"
    ),
)
