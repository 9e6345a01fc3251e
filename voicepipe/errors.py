"""The one tree of errors, made of plain values: no error holds a request, a socket or a session."""

from __future__ import annotations

import re
from typing import Final, Literal

StorageFailureKind = Literal["full", "locked", "read_only", "damaged", "io_error", "unreachable", "unknown"]
"""How a store fails."""


class VoicepipeError(Exception):
    """Everything that voicepipe raises on purpose."""


class ConfigError(VoicepipeError):
    """A setting is unknown or wrong. The text names the key, what was expected and what came."""


class AuthError(VoicepipeError):
    """A credential was missing or refused. `code` is the wire's error code, `status` the HTTP one."""

    def __init__(self, why: str, *, code: str = "invalid_api_key", status: int = 401) -> None:
        super().__init__(why)
        self.why, self.code, self.status = why, code, status


INCORRECT_KEY = "Incorrect API key provided."
"""How OpenAI's refusal of a key begins: litellm recognizes it by these words, and does not retry."""


class UnknownCredential(AuthError):
    """A credential that this server never issued: an unknown key, or a signature by none of its keys.

    Only this refusal may be a guess: one that is expired, revoked, used up or lacks a scope was once given out.
    """


class ProtocolError(VoicepipeError):
    """A client sent something that we can't read. The connection stays open.

    `field` is the dotted path of what was wrong (`session.audio.input.format.type`), or None
    when the message as a whole was; `code` is the wire's error code.
    """

    def __init__(self, why: str, *, field: str | None = None, code: str = "invalid_value") -> None:
        super().__init__(why)
        self.why, self.field, self.code = why, field, code


class StageError(VoicepipeError):
    """A provider failed. `retryable` is true when another try, or another provider, may succeed.

    `stage` is `stt`, `llm` or `tts`; `provider` its name in the settings.
    """

    def __init__(self, stage: str, *, provider: str, why: str, retryable: bool) -> None:
        super().__init__(f"{stage} by {provider}: {why}")
        self.stage, self.provider, self.why, self.retryable = stage, provider, why, retryable


class StageTimeout(StageError):
    """The provider did not answer in time."""


class StageRefused(StageError):
    """The provider refused: a wrong key, an unknown model, a quota, a rate limit."""

    def __init__(
        self,
        stage: str,
        *,
        provider: str,
        why: str,
        retryable: bool,
        status: int | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(stage, provider=provider, why=why, retryable=retryable)
        self.status, self.retry_after_ms = status, retry_after_ms


class StageBroken(StageError):
    """The provider's answer ended early or made no sense."""


class StageExpired(StageBroken):
    """The provider ended a connection for its age. Nothing is wrong with it: a new one serves as well."""


class Overload(VoicepipeError):
    """The server is full. `retry_after_ms`: how long until another attempt is worth it."""

    def __init__(self, why: str, *, retry_after_ms: int = 1_000) -> None:
        super().__init__(why)
        self.why, self.retry_after_ms = why, retry_after_ms


class StoreUnavailable(Overload):
    """A store that several processes share can't be read or written, and nothing was changed.

    The text is for anybody; `detail` is for the log, since it may name files.
    """

    def __init__(self, kind: StorageFailureKind = "unknown", detail: str = "") -> None:
        super().__init__("The server can't look that up at the moment.", retry_after_ms=2_000)
        self.kind, self.detail = kind, detail


class StoreUndecided(StoreUnavailable):
    """The servers of a store answer, and do not agree on one session: others can be read and written."""

    def __init__(self, detail: str) -> None:
        super().__init__("unreachable", detail)


_VALIDATION: Final = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)


def validation_place(wrong: Exception) -> tuple[str, str]:
    """Return the fault that a msgspec `ValidationError` reports, and the dotted path of that field; empty: the whole
    value.

    msgspec gives both in its text alone: "Expected `str`, got `int` - at `$.item_id`".
    """
    found = _VALIDATION.match(str(wrong))
    return (found["what"], found["path"] or "") if found else (str(wrong), "")
