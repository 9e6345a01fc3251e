"""A backend for pages with a voice call: it serves the folder `public`, and gets a client secret for each user.

VOICEPIPE_URL=https://voice.example VOICEPIPE_KEY=vp_... python3 backend.py
"""

import json
import os
import sys
import urllib.error
import urllib.request
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

VOICEPIPE = os.environ.get("VOICEPIPE_URL", "http://127.0.0.1:8080")
PORT = int(os.environ.get("PORT", "3000"))
KEY = os.environ.get("VOICEPIPE_KEY") or sys.exit("Set VOICEPIPE_KEY: a key of `voicepipe keys create --scope tokens`.")
ORIGIN = os.environ.get("ORIGIN", f"http://127.0.0.1:{PORT}")


class Backend(SimpleHTTPRequestHandler):
    def do_POST(self) -> None:
        if self.path != "/voice-token":
            return self.send_error(404)
        # Find out here who is logged in, by your own session cookie; refuse everyone else.
        limits = {"max_sessions": 1, "session_seconds": 600, "origins": [ORIGIN]}
        request = urllib.request.Request(
            f"{VOICEPIPE}/v1/realtime/client_secrets",
            data=json.dumps({"voicepipe": {"subject": "customer-4711", "limits": limits}}).encode(),
            headers={"Authorization": f"Bearer {KEY}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                secret = json.load(answer)  # it also describes the session, with the agent's instructions
                self.reply(200, json.dumps({name: secret[name] for name in ("value", "expires_at")}).encode())
        except urllib.error.HTTPError as refusal:  # for example 503: the server is full
            body = refusal.read()
            self.log_error("%s: HTTP %d: %s", VOICEPIPE, refusal.code, body.decode(errors="replace"))
            self.reply(refusal.code, body)
        except OSError as why:
            message = f"The voicepipe server {VOICEPIPE} can't be reached: {why}"
            self.log_error("%s", message)
            self.reply(502, json.dumps({"error": {"code": "server_unreachable", "message": message}}).encode())
        return None

    def reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)


public = Path(__file__).with_name("public")
ThreadingHTTPServer(("127.0.0.1", PORT), partial(Backend, directory=public)).serve_forever()
