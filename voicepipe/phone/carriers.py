"""The carriers, by the name that `phone.NAME.carrier` has."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from voicepipe.phone.asterisk import Asterisk
from voicepipe.phone.carrier import Carrier, CarrierName
from voicepipe.phone.plivo import Plivo
from voicepipe.phone.telnyx import Telnyx
from voicepipe.phone.twilio import Twilio
from voicepipe.phone.vonage import Vonage

CARRIERS: Final[Mapping[CarrierName, Carrier]] = MappingProxyType(
    {"twilio": Twilio(), "telnyx": Telnyx(), "vonage": Vonage(), "plivo": Plivo(), "asterisk": Asterisk()}
)
