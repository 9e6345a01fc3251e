"""The docs give receivers the right advice: the few lines that verify work as they stand there."""

from __future__ import annotations

from typing import Any

from tests import docs
from voicepipe.telemetry.webhooks.payload import Webhook, read_secrets, signed_headers

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + "B" * 32
NOW_S = 1_700_000_000


def verified(headers: dict[str, str], body: bytes, secret: str, now_s: int = NOW_S) -> bool:
    """Ask the function of the docs."""
    (code,) = (each for each in docs.code("py") if "webhook-id" in each)
    room: dict[str, Any] = {}
    exec(code, room)
    answer: bool = room["verified"](headers, body, secret, lambda: now_s)
    return answer


def test_the_lines_of_the_docs_know_a_good_event_from_a_bad_one() -> None:
    """Ours, also while two secrets sign; not another's, not one that was changed, and not one of yesterday."""
    body = b'{"type":"turn.completed"}'
    for secrets in (SECRET, f"{OTHER} {SECRET}"):
        webhook = Webhook(name="crm", url="", secrets=read_secrets(secrets))
        headers = signed_headers(webhook, "msg_1", body, now_s=NOW_S)
        assert verified(headers, body, SECRET)
        assert not verified(headers, body + b" ", SECRET)
        assert not verified(headers, body, "whsec_" + "C" * 32)
        assert not verified({**headers, "webhook-id": "msg_2"}, body, SECRET)
        assert not verified({**headers, "webhook-timestamp": str(NOW_S + 1)}, body, SECRET)
        assert not verified(headers, body, SECRET, now_s=NOW_S + 301)
