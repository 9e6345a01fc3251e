"""Declare every endpoint: its method, path, scope and meaning. `build_app` registers them; the table of
`web/docs/endpoints.md` is generated from them."""

from __future__ import annotations

import re
from typing import Final, Literal

from aiohttp.typedefs import Handler
from msgspec import Struct

from voicepipe.auth.scopes import AUDIO, CHAT, OPERATE, OPERATE_ALL, REALTIME, TOKENS, TURNS
from voicepipe.server.api.benches import list_benches
from voicepipe.server.api.call_recording import call_recording
from voicepipe.server.api.dashboard import about
from voicepipe.server.api.deletion import delete_session_data, delete_user_data
from voicepipe.server.api.experiments import feedback, list_experiments
from voicepipe.server.api.export import export_turns
from voicepipe.server.api.health import healthz, readyz
from voicepipe.server.api.item_audio import item_audio
from voicepipe.server.api.legacy_tokens import sessions, transcription_sessions
from voicepipe.server.api.metrics import metrics
from voicepipe.server.api.nodes import list_nodes
from voicepipe.server.api.pages import asset, dashboard, docs, home, talk
from voicepipe.server.api.providers import list_providers
from voicepipe.server.api.recordings import list_recordings, one_recording
from voicepipe.server.api.regions import list_regions
from voicepipe.server.api.settings import reload_settings
from voicepipe.server.api.stats import list_sessions, stats
from voicepipe.server.api.stream import stream_turns
from voicepipe.server.api.tokens import client_secrets, jwks, revoke, talk_token
from voicepipe.server.api.transcript import session_transcript
from voicepipe.server.api.turns import list_turns, one_turn
from voicepipe.server.api.webhooks import list_dead, list_webhooks, retry_dead
from voicepipe.server.detached import detached
from voicepipe.server.gateway.chat import chat_completions
from voicepipe.server.gateway.embeddings import embeddings
from voicepipe.server.gateway.models import list_models, one_model
from voicepipe.server.gateway.responses import create_response
from voicepipe.server.gateway.speech import speech
from voicepipe.server.gateway.stored_responses import cancel_response, delete_response, input_items, one_response
from voicepipe.server.gateway.transcriptions import transcriptions
from voicepipe.server.gateway.translations import translations
from voicepipe.server.gpt_live import live_sessions
from voicepipe.server.phone.dial import phone_dial
from voicepipe.server.phone.routes import phone_next, phone_stream, phone_webhook
from voicepipe.server.realtime import realtime
from voicepipe.server.webrtc.create_call import create_call, hang_up
from voicepipe.server.websocket_auth_errors import websocket_auth_errors


class Endpoint(Struct, frozen=True):
    """An endpoint. Its handler checks the scope; None: it needs no credential.

    The meaning is Markdown, with links as from a page below `web/docs`.
    """

    method: Literal["GET", "POST", "DELETE"]
    path: str
    handler: Handler
    scope: str | None
    meaning: str
    other_paths: tuple[str, ...] = ()
    """Paths of the same endpoint, for clients of other servers."""

    any_origin_reads: bool = False
    """Whether a page of any origin may read the answer to a GET (CORS). A browser hides from a page why its WebSocket
    was refused, so the page requests the reason again over HTTP. Such an answer has no more than the credential in the
    request allows: cookies mean nothing here."""

    @property
    def documented_path(self) -> str:
        """Return the path without the patterns of its variables."""
        return re.sub(r":[^}]+}", "}", self.path)


REALTIME_ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/v1/realtime",
        detached(websocket_auth_errors(realtime)),
        REALTIME,
        "the WebSocket; the other paths are for clients of Azure (the two with `openai`) and Inworld",
        ("/openai/v1/realtime", "/openai/realtime", "/api/v1/realtime/session"),
        any_origin_reads=True,
    ),
    Endpoint(
        "POST",
        "/v1/realtime/calls",
        create_call,
        REALTIME,
        "begins a call [over WebRTC](webrtc.md): an SDP offer in, an SDP answer out; 501 without the extra `webrtc`",
    ),
    Endpoint("POST", "/v1/realtime/calls/{id}/hangup", hang_up, REALTIME, "ends such a call"),
    Endpoint(
        "POST",
        "/v1/realtime/client_secrets",
        client_secrets,
        TOKENS,
        "mints a short-lived `ek_` for a browser, for a backend's API key, see [Tokens](security.md#tokens)",
    ),
    Endpoint(
        "POST",
        "/v1/realtime/client_secrets/revoke",
        revoke,
        TOKENS,
        "revokes one client secret by its `token_id`, or all of a `subject` until now; their sessions end",
    ),
    Endpoint(
        "POST",
        "/v1/realtime/sessions",
        sessions,
        TOKENS,
        "mints for older clients: a flat session in and out, with the secret in it, valid for a minute",
    ),
    Endpoint(
        "POST",
        "/v1/realtime/transcription_sessions",
        transcription_sessions,
        TOKENS,
        "the same, for a transcription session",
    ),
    Endpoint(
        "GET",
        "/v1/live/sessions",
        live_sessions,
        REALTIME,
        "refused (404): sessions of GPT-Live, which speak [another protocol](wire.md#clients)",
    ),
    Endpoint("POST", "/v1/live/sessions", live_sessions, REALTIME, "likewise, over WebRTC"),
)

PHONE: Final = (
    Endpoint(
        "POST",
        "/v1/phone/{line}",
        phone_webhook,
        None,
        "a carrier's webhook for [calls to a phone number](phone.md); the carrier signs it",
    ),
    Endpoint(
        "POST",
        "/v1/phone/{line}/next",
        phone_next,
        None,
        "requested by the carrier when the agent is done: a transfer, or the end of the call; signed likewise",
    ),
    Endpoint(
        "POST",
        "/v1/phone/{line}/calls",
        phone_dial,
        TOKENS,
        "calls the number `to`, for an `agent`; for API keys of the line's project, see "
        "[Calls that the server makes](phone.md#calls-that-the-server-makes)",
    ),
    Endpoint(
        "GET",
        "/v1/phone/{line}/stream/{token}",
        detached(phone_stream),
        None,
        "the WebSocket of a call's media stream; the token is good once, for the call that the webhook has announced",
    ),
    Endpoint(
        "GET",
        "/v1/phone/{line}/stream",
        detached(phone_stream),
        None,
        "likewise, with the token in the query, for [Asterisk](phone-asterisk.md)",
    ),
)

GATEWAY: Final = (
    Endpoint(
        "POST",
        "/v1/chat/completions",
        chat_completions,
        CHAT,
        "any LLM of this server, in OpenAI's shape, see [A gateway for chat](gateway.md#a-gateway-for-chat)",
    ),
    Endpoint(
        "POST",
        "/v1/responses",
        create_response,
        CHAT,
        "the same LLMs behind OpenAI's newer request, see [Responses](gateway.md#responses)",
    ),
    Endpoint("GET", "/v1/responses/{id}", one_response, CHAT, "a stored response"),
    Endpoint("GET", "/v1/responses/{id}/input_items", input_items, CHAT, "the items that the LLM read for it"),
    Endpoint("DELETE", "/v1/responses/{id}", delete_response, CHAT, "deletes a stored response"),
    Endpoint(
        "POST",
        "/v1/responses/{id}/cancel",
        cancel_response,
        CHAT,
        "refused (400): a client cancels a response by closing its connection",
    ),
    Endpoint(
        "POST",
        "/v1/embeddings",
        embeddings,
        CHAT,
        "vectors of the embedding models of the settings, see [Embeddings](gateway.md#embeddings)",
    ),
    Endpoint(
        "POST",
        "/v1/audio/speech",
        speech,
        AUDIO,
        "text to audio, in OpenAI's shape, see [Speech and transcriptions](gateway.md#speech-and-transcriptions)",
    ),
    Endpoint("POST", "/v1/audio/transcriptions", transcriptions, AUDIO, "audio to text, likewise"),
    Endpoint(
        "POST",
        "/v1/audio/translations",
        translations,
        AUDIO,
        "speech in any language to English text; needs `chat` too where an LLM translates, see "
        "[Translations](gateway.md#translations)",
    ),
    Endpoint("GET", "/v1/models", list_models, CHAT, "the models for chat completions"),
    Endpoint("GET", "/v1/models/{id:.+}", one_model, CHAT, "one of them"),
)

RECORDS: Final = (
    Endpoint(
        "GET",
        "/v1/turns",
        list_turns,
        TURNS,
        "the records of turns, newest or slowest first, by [many filters](operating.md#api)",
    ),
    Endpoint(
        "GET",
        "/v1/turns/stream",
        stream_turns,
        TURNS,
        "turns as they end and marks as they come, as server-sent events",
    ),
    Endpoint("GET", "/v1/turns/export", export_turns, TURNS, "turns as CSV or JSON lines"),
    Endpoint("GET", "/v1/turns/{id}", one_turn, TURNS, "one turn's record"),
    Endpoint(
        "POST",
        "/v1/turns/{id}/feedback",
        feedback,
        TURNS,
        "stores how good the answer was, as `score` from 0 to 1; a client secret scores its own sessions, see "
        "[Experiments](routing.md#experiments)",
    ),
    Endpoint(
        "GET",
        "/v1/experiments",
        list_experiments,
        TURNS,
        "the arms of experiments side by side: latency, cost and quality with their intervals; filters as for stats, "
        "for API keys only",
    ),
    Endpoint(
        "GET",
        "/v1/sessions",
        list_sessions,
        TURNS,
        "sessions with their results; with `live=true` those that are open now",
    ),
    Endpoint(
        "GET",
        "/v1/sessions/{id}/transcript",
        session_transcript,
        TURNS,
        "[what was said](operating.md#api), with latencies and function calls; with `format=text` as plain text",
    ),
    Endpoint(
        "GET",
        "/v1/sessions/{id}/recording",
        call_recording,
        TURNS,
        "the [recorded call](privacy.md#recorded-calls) as FLAC, whole or in ranges; 409 while it runs; read by those "
        "who read its texts",
    ),
    Endpoint(
        "GET",
        "/v1/sessions/{id}/audio",
        list_recordings,
        OPERATE,
        "the audio that `journals.audio` has stored of a session: `side` (`user`, `agent`), `rate_hz`, `duration_ms`, "
        "and of the `recording`: `path`, `duration_ms`; for API keys only",
    ),
    Endpoint(
        "GET",
        "/v1/sessions/{id}/audio/{side:user|agent}",
        one_recording,
        OPERATE,
        "one side of it as a WAV file, end to end, likewise",
    ),
    Endpoint(
        "GET",
        "/v1/sessions/{id}/items/{item}/audio",
        item_audio,
        TURNS,
        "what was said in an item of an open session, as a WAV file, where "
        "[`server.item_audio_s`](wire.md#audio-of-items) holds it",
    ),
    Endpoint("DELETE", "/v1/sessions/{id}", delete_session_data, OPERATE, "deletes all stored data of a session"),
    Endpoint("DELETE", "/v1/users/{user}", delete_user_data, OPERATE, "deletes all stored data of a user"),
    Endpoint(
        "GET",
        "/v1/stats",
        stats,
        TURNS,
        "turns summed up: quantiles of each stage, misses, cost, providers; over a window, as a series, by group",
    ),
)

OPERATION: Final = (
    Endpoint(
        "GET",
        "/v1/providers",
        list_providers,
        OPERATE,
        "the [state of each provider](endpoints.md#state-of-a-provider)",
    ),
    Endpoint(
        "GET",
        "/v1/benches",
        list_benches,
        OPERATE,
        "the [scheduled benches](benches.md): the latest run of each model, what has changed, and the cost",
    ),
    Endpoint(
        "POST",
        "/v1/settings/reload",
        reload_settings,
        OPERATE_ALL,
        "puts the [agents as they are written now](agents.md#change-agents-while-the-server-runs) in force; 409 with "
        "the reason if they are wrong",
    ),
    Endpoint("GET", "/v1/webhooks", list_webhooks, OPERATE, "the state of each [webhook](webhooks.md)"),
    Endpoint("GET", "/v1/webhooks/dead", list_dead, OPERATE, "the events that could not be delivered"),
    Endpoint(
        "POST",
        "/v1/webhooks/dead/retry",
        retry_dead,
        OPERATE,
        "delivers them again: one by `id`, those of a `webhook`, or all",
    ),
    Endpoint(
        "GET",
        "/metrics",
        metrics,
        OPERATE_ALL,
        "the [metrics for Prometheus](metrics.md); without a key from `server.metrics_allow`",
    ),
    Endpoint(
        "GET",
        "/v1/nodes",
        list_nodes,
        OPERATE_ALL,
        "the [nodes](nodes.md#which-nodes-there-are) that share a store, with their sessions and load",
    ),
    Endpoint(
        "GET",
        "/v1/regions",
        list_regions,
        None,
        "the [regions](regions.md) with their addresses, this one's name, and whether it accepts sessions",
        any_origin_reads=True,
    ),
    Endpoint("GET", "/healthz", healthz, None, "200 while the process answers"),
    Endpoint(
        "GET",
        "/readyz",
        readyz,
        None,
        "200 when sessions are accepted, else 503 and what is missing; the body names a "
        "[store that fails](records.md#when-storage-fails)",
    ),
    Endpoint(
        "GET",
        "/.well-known/jwks.json",
        jwks,
        None,
        "the public keys that verify tokens, if `server.token_keys` names some",
    ),
)

PAGES: Final = (
    Endpoint("GET", "/", home, None, "redirects to the talk page"),
    Endpoint("GET", "/talk", talk, None, "the [talk page](talk-page.md)"),
    Endpoint(
        "POST", "/talk/token", talk_token, None, "its client secret, for a browser on the server's own machine only"
    ),
    Endpoint("GET", "/docs", docs, None, "this documentation; `?q=` searches it"),
    Endpoint("GET", "/docs/{page:[a-z-]+}", docs, None, "a page of it"),
    Endpoint("GET", "/dashboard", dashboard, None, "[the operator's page](operating.md#dashboard)"),
    Endpoint(
        "GET",
        "/dashboard/about",
        about,
        OPERATE,
        "what it compares figures with: `limits`, `over_allowed`, the `published` figures of models",
    ),
    Endpoint("GET", "/web/{path:.+}", asset, None, "the files of these pages"),
)

ENDPOINTS: Final = (*REALTIME_ENDPOINTS, *PHONE, *GATEWAY, *RECORDS, *OPERATION, *PAGES)
"""All endpoints. A path that is a case of another path's variable stands before it."""
