"""Errors with a code of gRPC, which vendors put into JSON."""

from __future__ import annotations

from typing import Final

import msgspec

from voicepipe.errors import StageError
from voicepipe.providers.net import failures
from voicepipe.providers.net.address import ProviderAddress

STATUS: Final = {3: 400, 5: 404, 7: 403, 8: 429, 14: 503, 16: 401}
"""Codes as HTTP statuses. Source: google.rpc.Code."""


def failure(address: ProviderAddress, code: int, words: str) -> StageError:
    """Return the stage error for a code and the vendor's text; without a known code the answer counts as broken."""
    body = msgspec.json.encode({"message": words})
    return failures.refused(address, STATUS[code], body) if code in STATUS else failures.in_band(address, body)
