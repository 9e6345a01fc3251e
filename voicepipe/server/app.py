"""Register all routes."""

from __future__ import annotations

import logging
from typing import Final

from aiohttp import web

from voicepipe.server.api.call_recording import call_recording
from voicepipe.server.api.dashboard import about
from voicepipe.server.api.deletion import delete_session_data, delete_user_data
from voicepipe.server.api.export import export_turns
from voicepipe.server.api.health import healthz, readyz
from voicepipe.server.api.legacy_tokens import sessions, transcription_sessions
from voicepipe.server.api.metrics import metrics
from voicepipe.server.api.pages import asset, dashboard, docs, home, talk
from voicepipe.server.api.providers import list_providers
from voicepipe.server.api.recordings import list_recordings, one_recording
from voicepipe.server.api.settings import reload_settings
from voicepipe.server.api.stats import list_sessions, stats
from voicepipe.server.api.stream import stream_turns
from voicepipe.server.api.tokens import client_secrets, jwks, revoke, talk_token
from voicepipe.server.api.transcript import session_transcript
from voicepipe.server.api.turns import list_turns, one_turn
from voicepipe.server.api.webhooks import list_dead, list_webhooks, retry_dead
from voicepipe.server.bodies import MAX_BODY_BYTES
from voicepipe.server.context import CONTEXT, ServerContext
from voicepipe.server.detached import detached
from voicepipe.server.errors import refuse_in_json
from voicepipe.server.gateway.chat import chat_completions
from voicepipe.server.gateway.models import list_models, one_model
from voicepipe.server.gateway.speech import speech
from voicepipe.server.gateway.transcriptions import transcriptions
from voicepipe.server.headers import add_headers, add_trace_header, answer_preflight, read_trace
from voicepipe.server.realtime import realtime
from voicepipe.server.websocket_auth_errors import websocket_auth_errors

REALTIME_PATHS: Final = ("/v1/realtime", "/openai/v1/realtime", "/openai/realtime", "/api/v1/realtime/session")
"""Paths of the Realtime endpoint: OpenAI's, Azure's two, and Inworld's."""


def build_app(context: ServerContext) -> web.Application:
    """Return the app; each route exists with and without a trailing slash."""
    # aiohttp logs all subprotocols that a client offered when it finds no known one among them, and one holds the key.
    logging.getLogger("aiohttp.websocket").setLevel(logging.ERROR)
    app = web.Application(middlewares=[read_trace, refuse_in_json, answer_preflight], client_max_size=MAX_BODY_BYTES)
    app[CONTEXT] = context
    app.on_response_prepare.extend((add_headers, add_trace_header))
    routes = [
        *(("GET", path, detached(websocket_auth_errors(realtime))) for path in REALTIME_PATHS),
        ("POST", "/v1/realtime/client_secrets", client_secrets),
        ("POST", "/v1/realtime/client_secrets/revoke", revoke),
        ("POST", "/v1/realtime/sessions", sessions),
        ("POST", "/v1/realtime/transcription_sessions", transcription_sessions),
        ("POST", "/v1/chat/completions", chat_completions),
        ("POST", "/v1/audio/speech", speech),
        ("POST", "/v1/audio/transcriptions", transcriptions),
        ("GET", "/v1/models", list_models),
        ("GET", "/v1/models/{id:.+}", one_model),
        ("GET", "/v1/providers", list_providers),
        ("GET", "/v1/turns", list_turns),
        ("GET", "/v1/turns/stream", stream_turns),
        ("GET", "/v1/turns/export", export_turns),
        ("GET", "/v1/turns/{id}", one_turn),
        ("GET", "/v1/sessions", list_sessions),
        ("GET", "/v1/sessions/{id}/transcript", session_transcript),
        ("GET", "/v1/sessions/{id}/recording", call_recording),
        ("GET", "/v1/sessions/{id}/audio", list_recordings),
        ("GET", "/v1/sessions/{id}/audio/{side:user|agent}", one_recording),
        ("DELETE", "/v1/sessions/{id}", delete_session_data),
        ("DELETE", "/v1/users/{user}", delete_user_data),
        ("GET", "/v1/stats", stats),
        ("POST", "/v1/settings/reload", reload_settings),
        ("GET", "/v1/webhooks", list_webhooks),
        ("GET", "/v1/webhooks/dead", list_dead),
        ("POST", "/v1/webhooks/dead/retry", retry_dead),
        ("GET", "/.well-known/jwks.json", jwks),
        ("GET", "/talk", talk),
        ("POST", "/talk/token", talk_token),
        ("GET", "/dashboard", dashboard),
        ("GET", "/dashboard/about", about),
        ("GET", "/docs", docs),
        ("GET", "/docs/{page:[a-z-]+}", docs),
        ("GET", "/healthz", healthz),
        ("GET", "/readyz", readyz),
        ("GET", "/metrics", metrics),
    ]
    for method, path, handler in routes:
        app.router.add_route(method, path, handler)
        app.router.add_route(method, f"{path}/", handler)
    app.router.add_get("/", home)
    app.router.add_get("/web/{path:.+}", asset)
    return app
