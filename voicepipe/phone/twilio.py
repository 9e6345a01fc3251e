"""Twilio: TwiML for the webhook, Media Streams for the audio.

Sources: twilio.com/docs/voice/media-streams/websocket-messages, /docs/voice/twiml/stream, /docs/api/rest/making-calls
and the OpenAPI description of `Calls.json`, read on 2026-11-23; for `X-Twilio-Signature` the example of Twilio's own
libraries. Not confirmed: the values of `AnsweredBy` and `Direction`. Audio is mu-law at 8 kHz both ways. When the
server closes a stream, Twilio goes on with the next verb.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from typing import Final
from xml.sax.saxutils import escape, quoteattr

import msgspec

from voicepipe.phone.api_requests import basic, form_request, xml_answer
from voicepipe.phone.carrier import (
    AnnouncedCall,
    ApiRequest,
    CarrierAccount,
    DtmfTones,
    StreamSerializer,
    WebhookAnswer,
    WebhookRequest,
)
from voicepipe.phone.dtmf_tones import tones
from voicepipe.phone.json_stream import CarrierMessage, JsonStreamSerializer, StreamStart, Text

API_URL: Final = "https://api.twilio.com"
SIGNATURE_HEADER: Final = "x-twilio-signature"


class _Dialed(msgspec.Struct, frozen=True):
    sid: Text


class TwilioSerializer(JsonStreamSerializer):
    """Implements `StreamSerializer` with the messages of Media Streams."""

    STREAM_FIELD = "streamSid"

    def ids(self, message: CarrierMessage, start: StreamStart) -> tuple[str, str]:
        """Return `callSid` and `streamSid`."""
        return start.callSid, message.streamSid


def signature(url: str, form: list[tuple[str, str]], secret: str) -> str:
    """Return `X-Twilio-Signature`: the address, then each field's name and value in order of the names; HMAC-SHA1."""
    signed = url + "".join(name + value for name, value in sorted(set(form)))
    return b64encode(hmac.digest(secret.encode(), signed.encode(errors="replace"), "sha1")).decode()


class Twilio:
    """Implements `Carrier`."""

    signs_address = True

    def check(self, account: CarrierAccount) -> None:
        """Check nothing more: the auth token is the key of the API too."""

    def is_signed(self, request: WebhookRequest, account: CarrierAccount) -> bool:
        """Return whether `X-Twilio-Signature` is right."""
        expected = signature(request.url, list(request.form), account.secret)
        return hmac.compare_digest(
            expected.encode(), request.headers.get(SIGNATURE_HEADER, "").encode(errors="replace")
        )

    def event(self, request: WebhookRequest) -> AnnouncedCall | None:
        """Return the call of `CallSid`, `From` and `To`."""
        fields = dict(request.form)
        if not fields.get("CallSid"):
            return None
        is_dialed = fields.get("Direction", "").startswith("outbound")
        user, line = ("To", "From") if is_dialed else ("From", "To")
        return AnnouncedCall(
            call_id=fields["CallSid"],
            user_number=fields.get(user, ""),
            line_number=fields.get(line, ""),
            is_dialed=is_dialed,
            is_voicemail=fields.get("AnsweredBy", "").startswith(("machine", "fax")),
        )

    def connect(self, call: AnnouncedCall, account: CarrierAccount, *, stream_url: str, next_url: str) -> WebhookAnswer:
        """Return `<Connect><Stream>`, and a `<Redirect>` behind it, which is reached when the server closes."""
        stream = f"<Connect><Stream url={quoteattr(stream_url)}/></Connect>"
        return xml_answer(f'{stream}<Redirect method="POST">{escape(next_url)}</Redirect>')

    def transfer(self, call_id: str, number: str, account: CarrierAccount) -> WebhookAnswer:
        """Return `<Dial>`."""
        return xml_answer(f"<Dial>{escape(number)}</Dial>")

    def hang_up(self, call_id: str, account: CarrierAccount) -> WebhookAnswer:
        """Return `<Hangup>`."""
        return xml_answer("<Hangup/>")

    def reject(self, call_id: str, account: CarrierAccount) -> WebhookAnswer:
        """Return `<Reject>`, with the busy tone."""
        return xml_answer('<Reject reason="busy"/>')

    def dial(
        self, account: CarrierAccount, *, user_number: str, webhook_url: str, hangs_up_on_voicemail: bool, now_s: int
    ) -> ApiRequest:
        """Return the request that makes a call, with the detection of answering machines."""
        form = {
            "To": user_number,
            "From": account.number,
            "Url": webhook_url,
            "Method": "POST",
            "MachineDetection": "Enable",
        }
        url = f"{account.api_url or API_URL}/2010-04-01/Accounts/{account.account_id}/Calls.json"
        return form_request(url, basic(account.account_id, account.secret), form)

    def send_dtmf(
        self, call_id: str, digits: str, account: CarrierAccount, serializer: StreamSerializer, *, now_s: int
    ) -> DtmfTones:
        """Return the tones. Media Streams has no message for keys, and `<Play digits>` in an update of the
        call would end the stream."""
        return DtmfTones(tones(digits))

    def dialed_call_id(self, body: bytes) -> str:
        """Return the call's `sid`."""
        return msgspec.json.decode(body, type=_Dialed).sid

    def serializer(self) -> TwilioSerializer:
        """Return the serializer of a new media stream."""
        return TwilioSerializer()
