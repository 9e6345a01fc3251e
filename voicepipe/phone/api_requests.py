"""Requests to the APIs of carriers, and the XML answers that several carriers take."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec

from voicepipe.phone.carrier import ApiRequest, WebhookAnswer


def basic(user: str, password: str) -> str:
    """Return the `Authorization` of HTTP Basic (RFC 7617)."""
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


def form_request(url: str, authorization: str, fields: Mapping[str, str]) -> ApiRequest:
    """Return a POST of a form."""
    return ApiRequest(
        url=url,
        body=urlencode(fields).encode(),
        content_type="application/x-www-form-urlencoded",
        authorization=authorization,
    )


def json_request(url: str, authorization: str, fields: Mapping[str, Any], *, method: str = "POST") -> ApiRequest:
    """Return a request with a JSON body."""
    body = msgspec.json.encode(fields)
    return ApiRequest(url=url, body=body, content_type="application/json", authorization=authorization, method=method)


def xml_answer(verbs: str) -> WebhookAnswer:
    """Return `<Response>` with these verbs."""
    return WebhookAnswer(f'<?xml version="1.0" encoding="UTF-8"?><Response>{verbs}</Response>', "text/xml")
