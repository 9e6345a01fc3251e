"""The fakes of the carriers behind one face, for the tests that each carrier has to pass."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar

import aiohttp
import numpy as np
import numpy.typing as npt

from voicepipe.audio import g711
from voicepipe.testing.fakes import asterisk, plivo, telnyx, twilio, vonage
from voicepipe.testing.fakes.carrier import PUBLIC_URL, CarrierApi, CarrierCall, reached
from voicepipe.testing.waiting import eventually

HUNG_UP = "hung up"

ROW_HZ, COLUMN_HZ = (697, 770, 852, 941), (1_209, 1_336, 1_477, 1_633)
"""The frequencies of DTMF (ITU-T Q.23)."""


def webhook(server: Any) -> str:
    return f"{server.url}/v1/phone/main"


async def turns(server: Any, n: int) -> list[dict[str, Any]]:
    """Return the records of at least `n` ended turns, the oldest first."""
    async with aiohttp.ClientSession() as session:

        async def read() -> list[dict[str, Any]] | None:
            async with session.get(f"{server.url}/v1/turns") as answer:
                listed: list[dict[str, Any]] = (await answer.json())["data"]
            found = [each for each in reversed(listed) if each["outcome"] is not None]
            return found if len(found) >= n else None

        return await eventually(read)


async def metric(server: Any, result: str) -> float:
    """Return how many calls had this result."""
    async with aiohttp.ClientSession() as session, session.get(f"{server.url}/metrics") as answer:
        line = f'voicepipe_phone_calls_total{{result="{result}"}} '
        return next(float(each[len(line) :]) for each in (await answer.text()).splitlines() if each.startswith(line))


async def played(call: CarrierCall) -> None:
    """Wait until an answer was played to its end."""
    await call.until(lambda: bool(call.played) and not call.unplayed_bytes)


class FakeCarrier(ABC):
    """One carrier. `webhook` is the address of the line `main`."""

    settings: dict[str, object]
    """Of the line `main`."""

    api: CarrierApi

    garbage: ClassVar[tuple[str | bytes, ...]] = (
        *("", "no json", "[]", '{"event":"media"}', '{"event":"media","media":{"payload":"%"}}', b"\xff\x00"),
        *('{"event":"dtmf","dtmf":{"digit":"99"}}', '{"event":"start","start":{}}', "[" * 5_000),
    )
    """Messages that it would never send."""

    reports_machines: ClassVar[bool] = True
    """Whether the server learns that a machine has answered."""

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Serve the carrier's API."""
        async with self.api.serving() as address:
            self.settings["phone.main.api_url"] = address
            yield

    @abstractmethod
    def calling(
        self, http: aiohttp.ClientSession, webhook: str, *, n: int = 1
    ) -> AbstractAsyncContextManager[CarrierCall]:
        """Call the line as user number `n`."""

    @abstractmethod
    async def outcome(self, http: aiohttp.ClientSession, webhook: str, call: CarrierCall) -> str:
        """Return what became of a call whose stream the server has closed: a number, or `HUNG_UP`."""

    @abstractmethod
    async def pressed(self, call: CarrierCall) -> str:
        """Return the keys that the agent has pressed, once it has pressed some."""

    @abstractmethod
    async def forged(self, http: aiohttp.ClientSession, webhook: str) -> list[int]:
        """Request the webhook with wrong signatures; return the statuses."""

    @abstractmethod
    async def answered_by(self, http: aiohttp.ClientSession, webhook: str, number: str, *, machine: bool) -> bool:
        """Have a dialed call answered; return whether it got a media stream."""


def keys_in(mulaw: bytes) -> str:
    """Return the keys whose tones are in the audio: two frequencies of DTMF, and hardly anything else."""
    frames = g711.decode_mulaw(mulaw[: len(mulaw) // 400 * 400]).reshape(-1, 400).astype(float)
    keys, before = "", ""
    for frame in frames:
        key = _key_of(frame)
        keys += key if key != before else ""
        before = key
    return keys


def _key_of(frame: npt.NDArray[np.float64]) -> str:
    at_s = np.arange(len(frame)) / 8_000
    power = {hz: abs(frame @ np.exp(-2j * np.pi * hz * at_s)) ** 2 for hz in (*ROW_HZ, *COLUMN_HZ)}
    row, column = max(ROW_HZ, key=power.__getitem__), max(COLUMN_HZ, key=power.__getitem__)
    explained = 2 * (power[row] + power[column]) / len(frame)
    is_tone = explained > 0.9 * float(frame @ frame) > 0
    return ("123A", "456B", "789C", "*0#D")[ROW_HZ.index(row)][COLUMN_HZ.index(column)] if is_tone else ""


async def keys_received(call: CarrierCall) -> str:
    """Return the keys whose tones were played, once they were played to their end."""
    await call.until(lambda: bool(keys_in(bytes(call.played))) and not call.unplayed_bytes)
    return keys_in(bytes(call.played))


def user_number(n: int) -> str:
    """Return the number of a user."""
    return f"+4915{n:08}"


class FakeTwilio(FakeCarrier):
    """Twilio."""

    secret = "twilio-auth-token"

    def __init__(self) -> None:
        self.api = twilio.TwilioApi(self.secret)
        self.settings = {
            "phone.main.carrier": "twilio",
            "phone.main.secret": self.secret,
            "phone.main.account": twilio.ACCOUNT,
            "phone.main.number": "+493012345",
        }

    def calling(
        self, http: aiohttp.ClientSession, webhook: str, *, n: int = 1
    ) -> AbstractAsyncContextManager[CarrierCall]:
        return twilio.calling(http, webhook, self.secret, number=user_number(n), call_sid=f"CA{n:032}")

    async def outcome(self, http: aiohttp.ClientSession, webhook: str, call: CarrierCall) -> str:
        assert isinstance(call, twilio.TwilioCall)
        twiml = await call.next(http, self.secret)
        dial = twiml.find("Dial")
        assert (dial is None) is (twiml.find("Hangup") is not None)
        return HUNG_UP if dial is None else dial.text or ""

    async def pressed(self, call: CarrierCall) -> str:
        return await keys_received(call)

    async def forged(self, http: aiohttp.ClientSession, webhook: str) -> list[int]:
        fields = {"AccountSid": twilio.ACCOUNT, "CallSid": "CA1", "From": "+1", "To": "+2"}
        return [(await twilio.post(http, webhook + path, fields, "another secret"))[0] for path in ("", "/next")]

    async def answered_by(self, http: aiohttp.ClientSession, webhook: str, number: str, *, machine: bool) -> bool:
        by = "machine_start" if machine else "human"
        fields = {"CallSid": "CA1", "Direction": "outbound-api", "AnsweredBy": by, "From": "+493012345", "To": number}
        _, twiml = await twilio.post(http, webhook, fields, self.secret)
        return twiml.find("Connect/Stream") is not None


class FakeTelnyx(FakeCarrier):
    """Telnyx."""

    garbage = (
        *FakeCarrier.garbage,
        '{"event":"start","start":{"call_control_id":"v3:1","media_format":{"encoding":"G722"}}}',
    )

    def __init__(self) -> None:
        self.api: telnyx.TelnyxApi = telnyx.TelnyxApi()
        self.signer = telnyx.Signer()
        self.settings = {
            "phone.main.carrier": "telnyx",
            "phone.main.secret": self.signer.public_key,
            "phone.main.api_key": telnyx.API_KEY,
            "phone.main.account": telnyx.APP_ID,
            "phone.main.public_url": PUBLIC_URL,
            "phone.main.number": "+493012345",
        }

    def calling(
        self, http: aiohttp.ClientSession, webhook: str, *, n: int = 1
    ) -> AbstractAsyncContextManager[CarrierCall]:
        return telnyx.calling(http, webhook, self.signer, self.api, number=user_number(n), call_id=f"v3:{n}")

    async def outcome(self, http: aiohttp.ClientSession, webhook: str, call: CarrierCall) -> str:
        return await ended_by(self.api, call.call_id)

    async def pressed(self, call: CarrierCall) -> str:
        return str((await self.api.command(call.call_id, "send_dtmf"))["digits"])

    async def forged(self, http: aiohttp.ClientSession, webhook: str) -> list[int]:
        body = telnyx.webhook("call.initiated", call_control_id="v3:1", direction="incoming")
        signed = self.signer.headers(body)
        wrong: list[dict[str, str]] = [
            {},
            telnyx.Signer().headers(body),
            self.signer.headers(body + b" "),
            self.signer.headers(body, timestamp=1_700_000_000),
            {**signed, "telnyx-timestamp": "soon"},
            {**signed, "telnyx-signature-ed25519": "%"},
        ]
        statuses = []
        for headers in wrong:
            async with http.post(webhook, data=body, headers=headers) as answer:
                statuses.append(answer.status)
        return statuses

    async def answered_by(self, http: aiohttp.ClientSession, webhook: str, number: str, *, machine: bool) -> bool:
        call_fields: dict[str, Any] = {"from": "+493012345", "to": number, "call_control_id": "v3:1"}
        body = telnyx.webhook("call.machine.detection.ended", **call_fields, result="machine" if machine else "human")
        given = json.loads(self.api.calls[0].body)["webhook_url"]
        assert await telnyx.post(http, reached(given, webhook), body, self.signer) == 200
        return self.api.calls[-1].path == "/v2/calls/v3:1/actions/streaming_start"


async def ended_by(api: telnyx.TelnyxApi, call_id: str) -> str:
    """Return what a command has made of a call."""
    actions = [f"/v2/calls/{call_id}/actions/{action}" for action in ("transfer", "hangup")]
    done = await api.until(*actions)
    return HUNG_UP if done.path == actions[1] else str((await api.command(call_id, "transfer"))["to"])


class FakeVonage(FakeCarrier):
    """Vonage."""

    secret = "the signature secret of the vonage account"
    reports_machines = False
    garbage = (
        *("", "no json", "[]", '{"event":"websocket:hummed"}', '{"event":"websocket:notify","payload":{}}'),
        *('{"event":"websocket:dtmf","digit":"99"}', b"\xff\x00", b"\xff" * 321, "[" * 5_000),
    )

    def __init__(self) -> None:
        key = vonage.private_key()
        self.api = vonage.VonageApi(key)
        self.settings = {
            "phone.main.carrier": "vonage",
            "phone.main.secret": self.secret,
            "phone.main.api_key": vonage.pem(key),
            "phone.main.account": vonage.APPLICATION,
            "phone.main.public_url": PUBLIC_URL,
            "phone.main.number": f"+{vonage.NUMBER}",
        }

    def calling(
        self, http: aiohttp.ClientSession, webhook: str, *, n: int = 1
    ) -> AbstractAsyncContextManager[CarrierCall]:
        return vonage.calling(http, webhook, self.secret, number=user_number(n), call_id=f"63f61863-{n}")

    async def outcome(self, http: aiohttp.ClientSession, webhook: str, call: CarrierCall) -> str:
        assert isinstance(call, vonage.VonageCall)
        ncco = await vonage.outcome(http, call, self.secret)
        if not ncco:
            return HUNG_UP
        assert ncco[0]["from"] == vonage.NUMBER
        return f"+{ncco[0]['endpoint'][0]['number']}"

    async def pressed(self, call: CarrierCall) -> str:
        request = await self.api.until(f"/v1/calls/{call.call_id}/dtmf")
        assert request.method == "PUT"
        return str(json.loads(request.body)["digits"])

    async def forged(self, http: aiohttp.ClientSession, webhook: str) -> list[int]:
        body = b'{"from":"1","to":"2","uuid":"3"}'
        unsigned = "eyJhbGciOiJub25lIn0.eyJpYXQiOjF9."
        wrong = [
            "",
            "Bearer ",
            f"Bearer {unsigned}",
            f"Basic {vonage.token(body, self.secret)}",
            f"Bearer {vonage.token(body, 'the signature secret of another account')}",
            f"Bearer {vonage.token(body + b' ', self.secret)}",
            f"Bearer {vonage.token(body, self.secret, iat=1_700_000_000)}",
        ]
        statuses = []
        for authorization in wrong:
            async with http.post(webhook, data=body, headers={"Authorization": authorization}) as answer:
                statuses.append(answer.status)
        return statuses

    async def answered_by(self, http: aiohttp.ClientSession, webhook: str, number: str, *, machine: bool) -> bool:
        dialed = json.loads(self.api.calls[0].body)
        assert dialed["machine_detection"] == "hangup"
        if machine:  # Vonage ends the call itself
            return False
        fields = {"from": vonage.NUMBER, "to": number.lstrip("+"), "uuid": "63f61863-1"}
        _, ncco = await vonage.post(http, reached(dialed["answer_url"][0], webhook), fields, self.secret)
        return bool(ncco)


class FakePlivo(FakeCarrier):
    """Plivo."""

    secret = "plivo-auth-token"

    def __init__(self) -> None:
        self.api = plivo.PlivoApi(self.secret)
        self.settings = {
            "phone.main.carrier": "plivo",
            "phone.main.secret": self.secret,
            "phone.main.account": plivo.AUTH_ID,
            "phone.main.number": "+493012345",
        }

    def calling(
        self, http: aiohttp.ClientSession, webhook: str, *, n: int = 1
    ) -> AbstractAsyncContextManager[CarrierCall]:
        return plivo.calling(http, webhook, self.secret, number=user_number(n), call_id=f"12345678-{n}")

    async def outcome(self, http: aiohttp.ClientSession, webhook: str, call: CarrierCall) -> str:
        assert isinstance(call, plivo.PlivoCall)
        fields = {"CallUUID": call.call_id, "CallStatus": "in-progress", "Event": "Redirect"}
        _, xml = await plivo.post(http, call.next_url, fields, self.secret)
        number = xml.find("Dial/Number")
        assert (number is None) is (xml.find("Hangup") is not None)
        return HUNG_UP if number is None else number.text or ""

    async def pressed(self, call: CarrierCall) -> str:
        assert isinstance(call, plivo.PlivoCall)
        await call.until(lambda: bool(call.pressed))
        return call.pressed

    async def forged(self, http: aiohttp.ClientSession, webhook: str) -> list[int]:
        fields = {"CallUUID": "1", "From": "1", "To": "2"}
        return [(await plivo.post(http, webhook + path, fields, "another secret"))[0] for path in ("", "/next")]

    async def answered_by(self, http: aiohttp.ClientSession, webhook: str, number: str, *, machine: bool) -> bool:
        call_fields = {"CallUUID": "1", "Direction": "outbound", "From": plivo.NUMBER, "To": number.lstrip("+")}
        detected = {"Machine": "true"} if machine else {}
        _, xml = await plivo.post(http, webhook, {**call_fields, **detected, "CallStatus": "in-progress"}, self.secret)
        return xml.find("Stream") is not None


class FakeAsterisk(FakeCarrier):
    """Asterisk."""

    secret = "the secret of the dialplan"
    garbage = (
        *("", "no json", "[]", '{"event":"HUMMED"}', '{"event":"ERROR","error_text":"Unable to parse JSON command"}'),
        *('{"event":"DTMF_END","digit":"99"}', b"\xff\x00", b"\xff" * 161, "[" * 5_000, b"{" * 81),
    )

    def __init__(self) -> None:
        self.api = asterisk.AsteriskApi()
        self.settings = {
            "phone.main.carrier": "asterisk",
            "phone.main.secret": self.secret,
            "phone.main.api_key": asterisk.ARI_PASSWORD,
            "phone.main.account": asterisk.ARI_USER,
            "phone.main.number": asterisk.NUMBER,
        }

    def calling(
        self, http: aiohttp.ClientSession, webhook: str, *, n: int = 1
    ) -> AbstractAsyncContextManager[CarrierCall]:
        return asterisk.calling(http, webhook, self.secret, number=user_number(n), call_id=f"1795463712.{n}")

    async def outcome(self, http: aiohttp.ClientSession, webhook: str, call: CarrierCall) -> str:
        assert isinstance(call, asterisk.AsteriskCall)
        return await asterisk.outcome(http, webhook, call, self.secret) or HUNG_UP

    async def pressed(self, call: CarrierCall) -> str:
        return await keys_received(call)

    async def forged(self, http: aiohttp.ClientSession, webhook: str) -> list[int]:
        fields = {"call": "1", "from": "1", "to": "2"}
        statuses = [
            (await asterisk.curl(http, webhook + path, fields, wrong))[0]
            for path in ("", "/next")
            for wrong in ("another secret", "")
        ]
        for authorization in ("", "Basic", "Basic %", "Basic \xff", f"Bearer {self.secret}"):
            async with http.post(webhook, data=fields, headers={"Authorization": authorization}) as answer:
                statuses.append(answer.status)
        return statuses

    async def answered_by(self, http: aiohttp.ClientSession, webhook: str, number: str, *, machine: bool) -> bool:
        dialed = json.loads(self.api.calls[0].body)
        assert dialed["endpoint"] == f"Local/{number}@voicepipe-out"
        call_fields = {"call": "1795463712.4", "from": dialed["callerId"], "to": dialed["variables"]["VOICEPIPE_TO"]}
        detected = {"machine": "MACHINE" if machine else "HUMAN"}
        status, token = await asterisk.curl(
            http, dialed["variables"]["VOICEPIPE_URL"], {**call_fields, **detected}, self.secret
        )
        assert status == 200
        return bool(token)


CARRIERS: dict[str, type[FakeCarrier]] = {
    "twilio": FakeTwilio,
    "telnyx": FakeTelnyx,
    "vonage": FakeVonage,
    "plivo": FakePlivo,
    "asterisk": FakeAsterisk,
}
