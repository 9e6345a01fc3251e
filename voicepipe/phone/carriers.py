"""The carriers, by the name that `phone.NAME.carrier` has."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from voicepipe.phone.carrier import Carrier
from voicepipe.phone.twilio import Twilio

CarrierName = Literal["twilio"]

CARRIERS: Final[Mapping[CarrierName, Carrier]] = MappingProxyType({"twilio": Twilio()})
