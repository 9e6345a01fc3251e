"""Revocations: of one token, or of everything issued to one subject until now."""

from __future__ import annotations

from typing import Self

from msgspec import Struct

from voicepipe.auth.claims import Claims
from voicepipe.auth.tokens import MAX_LIFE_S


class RevokedToken(Struct, frozen=True):
    """One token of one project is no longer valid, and sessions opened with it end."""

    project: str
    token_id: str
    until_s: int
    """Unix seconds after which the revocation can be dropped: the token has expired by then."""

    @classmethod
    def at(cls, now_s: int, project: str, token_id: str) -> Self:
        return cls(project, token_id, now_s + MAX_LIFE_S)

    def covers(self, claims: Claims) -> bool:
        """Return whether this revokes a token, or a session opened with it."""
        return claims.project == self.project and claims.token_id == self.token_id


class RevokedSubject(Struct, frozen=True):
    """All tokens of one subject of one project that were issued up to some second. Later ones are valid."""

    project: str
    subject: str
    issued_until_s: int
    until_s: int
    """Unix seconds after which the revocation can be dropped."""

    @classmethod
    def at(cls, now_s: int, project: str, subject: str) -> Self:
        return cls(project, subject, now_s, now_s + MAX_LIFE_S)

    def covers(self, claims: Claims) -> bool:
        """Return whether this revokes a token, or a session opened with it."""
        is_of_subject = claims.project == self.project and claims.subject == self.subject
        return is_of_subject and claims.issued_at_s <= self.issued_until_s


Revocation = RevokedToken | RevokedSubject
