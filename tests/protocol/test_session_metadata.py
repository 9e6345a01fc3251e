"""Names and values of a session that rules about the model look at: read, bounded, echoed, and locked by a token."""

from __future__ import annotations

import pytest

from voicepipe.auth.claims import Lock
from voicepipe.errors import ProtocolError
from voicepipe.protocol.extensions import echo
from voicepipe.protocol.field_locks import check_locks, check_update
from voicepipe.protocol.ga import session_object
from voicepipe.protocol.session_config import SessionConfig

PLAIN = SessionConfig.start(session_id="sess_1", model="default", voice="heart", instructions="", expires_at=9)


def with_metadata(value: object, session: SessionConfig = PLAIN) -> SessionConfig:
    return session.merged({"providerData": {"voicepipe": {"metadata": value}}})


def test_they_reach_the_turns_and_are_echoed() -> None:
    session = with_metadata({"user_tier": "gold", "country": "at"})
    assert session.turn_settings().metadata == (("user_tier", "gold"), ("country", "at"))
    rendered = echo(session_object(session), session.extensions)
    assert rendered["providerData"]["voicepipe"]["metadata"] == {"user_tier": "gold", "country": "at"}
    assert with_metadata(None, session).turn_settings().metadata == ()


def test_metadata_is_not_echoed_without_opt_in() -> None:
    session = PLAIN.merged({"providerData": {"voicepipe": {"resume": True}}})
    assert "metadata" not in echo(session_object(session), session.extensions)["providerData"]["voicepipe"]


@pytest.mark.parametrize("value", [[], "gold", {"a": 1}, {"a": "b" * 513}, {str(i): "x" for i in range(17)}])
def test_what_is_wrong_is_refused_with_its_path(value: object) -> None:
    with pytest.raises(ProtocolError) as refused:
        with_metadata(value)
    assert str(refused.value.field).startswith("session.providerData.voicepipe.metadata")


def test_a_token_that_sets_them_can_lock_them() -> None:
    """Else a browser could choose the models of paying customers."""
    session, locks = with_metadata({"user_tier": "free"}), (Lock("providerData.voicepipe.metadata"),)
    check_locks(session, locks)
    with pytest.raises(ProtocolError) as refused:
        check_update(session, with_metadata({"user_tier": "gold"}, session), locks)
    assert refused.value.code == "field_locked"
