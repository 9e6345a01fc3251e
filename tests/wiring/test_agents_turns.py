"""How an agent's settings end turns, and what a client makes of them."""

from __future__ import annotations

from voicepipe.config.agents import AgentSettings
from voicepipe.ports.endpointing import strategy_named
from voicepipe.protocol.ga import session_object
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.session.grant import SessionGrant
from voicepipe.telemetry.advice import setting_for
from voicepipe.turn.endpointing.probability import STT_END
from voicepipe.turn.endpointing.strategy import NOTHING, Evidence
from voicepipe.wiring.sessions import config_of

GRANT = SessionGrant(
    session_id="sess_1",
    project="p",
    agent="default",
    model="default",
    identity=None,
    config=None,
    expires_at=2_000_000_000,
)


def waits(config: SessionConfig) -> tuple[int, int, int]:
    """After a finished sentence, when nothing is known, and after half a sentence."""
    settings = config.turn_settings()
    whole = "I would like two large cups of coffee, please."
    finished, half = Evidence(text=whole, unfinished=-0.3), Evidence(text="I would like the", unfinished=1)
    strategy = strategy_named(settings.end_of_turn, key="end_of_turn")(settings.silence_ms)
    shorter, usual, longer = (strategy.decide(evidence).audible_ms for evidence in (finished, NOTHING, half))
    return shorter, usual, longer


def with_detection(detection: dict[str, object]) -> dict[str, object]:
    """An update of `turn_detection` alone."""
    return {"type": "realtime", "audio": {"input": {"turn_detection": detection}}}


def test_an_agent_answers_when_the_end_is_likely() -> None:
    """By default: after 350 to 700 ms, between where nothing is known. The client is shown the setting's silence."""
    config = config_of(AgentSettings(), GRANT)
    assert config.turn_settings().end_of_turn == "soft"
    assert waits(config)[1] == 560
    strategy = strategy_named("soft", key="end_of_turn")(config.turn_settings().silence_ms)
    found = [strategy.decide(Evidence(scores=((STT_END, score),))).audible_ms for score in (0.999, 0.5, 0.001)]
    assert found == [350, 560, 700]
    detection = session_object(config)["audio"]["input"]["turn_detection"]
    assert (detection["type"], detection["silence_duration_ms"]) == ("server_vad", 500)


def test_an_agent_may_wait_while_the_user_sounds_unfinished() -> None:
    """With `end_of_turn = "adaptive"`; never less than its silence, which is what the client is shown."""
    config = config_of(AgentSettings(end_of_turn="adaptive"), GRANT)
    assert waits(config) == (500, 720, 1_300)
    detection = session_object(config)["audio"]["input"]["turn_detection"]
    assert (detection["type"], detection["silence_duration_ms"]) == ("server_vad", 500)


def test_an_agent_may_be_exact() -> None:
    """With `end_of_turn = "silence"`."""
    assert waits(config_of(AgentSettings(end_of_turn="silence", silence_ms=640), GRANT)) == (640, 640, 640)


def test_a_client_gets_exactly_the_silence_it_requests() -> None:
    """The client's value counts whatever the agent has; so does the default value, if the client requests it."""
    config = config_of(AgentSettings(), GRANT)
    assert waits(config.merged(with_detection({"type": "server_vad", "silence_duration_ms": 300}))) == (300, 300, 300)
    assert waits(config.merged(with_detection({"type": "server_vad"}))) == (500, 500, 500)


def test_semantic_vad_gets_the_requested_eagerness() -> None:
    """Around a silence of its own, not the agent's."""
    config = config_of(AgentSettings(silence_ms=200), GRANT)
    low = config.merged(with_detection({"type": "semantic_vad", "eagerness": "low"}))
    assert waits(low)[1] == 1_000
    assert low.turn_settings().end_of_turn == "adaptive", "a client in no hurry gets no soft start"
    high = config.merged(with_detection({"type": "semantic_vad", "eagerness": "high"}))
    assert (waits(high)[1], high.turn_settings().end_of_turn) == (392, "soft")


def test_the_silence_is_known_by_the_setting_that_it_comes_from() -> None:
    """The advice for a turn that ended late names the agent's setting until the client sets its own."""
    config = config_of(AgentSettings(), GRANT)
    assert setting_for(config.turn_settings().silence_set_by, "default") == "agents.default.silence_ms"
    exact = config.merged(with_detection({"type": "server_vad", "silence_duration_ms": 500}))
    assert setting_for(exact.turn_settings().silence_set_by, "default") == "turn_detection.silence_duration_ms"
    eager = config.merged(with_detection({"type": "semantic_vad", "eagerness": "high"}))
    assert setting_for(eager.turn_settings().silence_set_by, "default") == "turn_detection.eagerness"


def test_an_update_of_something_else_leaves_it_so() -> None:
    """Instructions have nothing to do with it."""
    config = config_of(AgentSettings(), GRANT)
    assert waits(config.merged({"type": "realtime", "instructions": "Be brief."}))[1] == 560


def test_who_sends_g711_is_on_a_telephone() -> None:
    """Their answers begin a little later."""
    config = config_of(AgentSettings(), GRANT)
    for name, telephone in (("audio/pcm", False), ("audio/pcmu", True), ("audio/pcma", True)):
        form = {"type": name} | ({"rate": 24_000} if name == "audio/pcm" else {})
        settings = config.merged({"type": "realtime", "audio": {"input": {"format": form}}}).turn_settings()
        assert settings.telephone is telephone
