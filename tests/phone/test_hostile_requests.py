"""Requests without a signature, a store that is unavailable, and a carrier's API that answers in parts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from voicepipe.cluster.port import NO_CONFIG
from voicepipe.errors import AuthError
from voicepipe.phone.carrier import ApiRequest, Carrier, CarrierAccount, WebhookRequest
from voicepipe.phone.plivo import NONCE_HEADER, Plivo
from voicepipe.phone.plivo import SIGNATURE_HEADER as PLIVO_SIGNATURE
from voicepipe.phone.twilio import SIGNATURE_HEADER as TWILIO_SIGNATURE
from voicepipe.phone.twilio import Twilio
from voicepipe.server.phone import pending_calls
from voicepipe.server.phone.carrier_api import MAX_ANSWER_BYTES, send_request

NO_TEXT = "\udcff"
"""A byte of a header that is no UTF-8, as aiohttp gives it."""


@pytest.mark.parametrize(
    ("carrier", "headers"),
    [
        (Twilio(), {TWILIO_SIGNATURE: NO_TEXT}),
        (Plivo(), {PLIVO_SIGNATURE: NO_TEXT, NONCE_HEADER: "1"}),
        (Plivo(), {PLIVO_SIGNATURE: "a", NONCE_HEADER: NO_TEXT}),
    ],
)
def test_a_signature_that_is_no_text_is_wrong(carrier: Carrier, headers: dict[str, str]) -> None:
    request = WebhookRequest(url="https://a/", headers=headers, form=())
    assert not carrier.is_signed(request, CarrierAccount(secret="s"))


@pytest.mark.parametrize("carrier", [Twilio(), Plivo()])
def test_the_signature_of_an_address_that_is_no_text_is_wrong(carrier: Carrier) -> None:
    """The `Host` of a request may be any bytes: it is refused as any unsigned request is."""
    request = WebhookRequest(url=f"https://{NO_TEXT}/", headers={}, form=())
    assert not carrier.is_signed(request, CarrierAccount(secret="s"))


async def test_a_store_that_is_away_has_no_call_and_no_transfer() -> None:
    """A client that is admitted without its config is no call that was announced, and no number to transfer to."""

    async def config(_: str, **__: object) -> bytes:
        return NO_CONFIG

    cluster: Any = SimpleNamespace(config=config)
    line: Any = SimpleNamespace(name="line", project="default")
    assert await pending_calls.stored_transfer("1", line, cluster) == ""
    assert await pending_calls.dialed_agent("1", line, cluster) is None
    with pytest.raises(AuthError, match="No call waits"):
        await pending_calls.take_pending_call("token", line, cluster)


@pytest.mark.parametrize("n_bytes", [10, 2 * MAX_ANSWER_BYTES])
async def test_an_answer_of_the_api_is_read_to_its_end(n_bytes: int) -> None:
    """Also where it comes in parts; what is beyond the limit is dropped."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(2):
            await response.write(b"a" * (n_bytes // 2))
        return response

    app = web.Application()
    app.router.add_post("/", answer)
    async with TestServer(app) as server:
        sent = ApiRequest(url=str(server.make_url("/")), body=b"", content_type="text/plain", authorization="")
        assert await send_request(sent) == (200, b"a" * min(n_bytes, MAX_ANSWER_BYTES))
