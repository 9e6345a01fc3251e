"""What a session is given of its house: the providers that serve it, and whom it tells and asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from voicepipe.protocol.session_config import SessionConfig
from voicepipe.session.phrases import PhraseBook
from voicepipe.stages.model import Model
from voicepipe.stages.synthesizer import Synthesizer
from voicepipe.stages.transcriber import Transcriber
from voicepipe.telemetry.journal import Journal, no_journal
from voicepipe.turn import commands as c
from voicepipe.turn.announcements import Announcement
from voicepipe.turn.journal import Opening
from voicepipe.turn.record import TurnRecord
from voicepipe.turn.settings import ReplySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStages:
    """The providers of one session, and the model's name at each."""

    transcriber: Transcriber
    model: Model
    synthesizer: Synthesizer
    stt_model: str
    llm_model: str
    tts_model: str
    phrases: PhraseBook | None = None
    """What was spoken before in that voice; None: the session has a book of its own."""


Told = Callable[[int, int], None]
"""(from_ms, until_ms) on `clock.monotonic_ms`'s scale."""


def _free(usd: float, by_client: bool) -> None:
    """Nobody pays."""


def _unwatched(told: Told) -> Callable[[], None]:
    """Nobody watches the loop."""
    return lambda: None


def _nobody_watches() -> bool:
    """No marks of running turns are told."""
    return False


def _to_nobody(what: Announcement) -> None:
    """It is never called while nobody watches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHooks:
    """What a session tells its house, and asks it. Each returns at once."""

    keep_record: Callable[[TurnRecord], None]
    note_overrun: Callable[[c.NoteOverrun], None]
    note_stuck: Callable[[c.NoteStuck], None]

    check_update: Callable[[SessionConfig, SessionConfig], None]
    """Before and after an update. Raises ProtocolError when this client may not make it."""

    check_reply: Callable[[SessionConfig, ReplySettings], None]
    """The session, and a reply that its client asks for. Raises ProtocolError likewise."""

    show: Callable[[SessionConfig], SessionConfig]
    """The session as its client may see it. What the wire is written by, such as formats, stays as it is."""

    charge: Callable[[float, bool], None] = _free
    """What phrases cost that were spoken ahead, in USD, and whether the client's wish for another voice is why."""

    open_journal: Callable[[Opening], Journal] = no_journal
    """Where what the session does is written down."""

    hear_of_holds: Callable[[Told], Callable[[], None]] = _unwatched
    """Have it told when the event loop was held up; what this returns ends that."""

    is_watched: Callable[[], bool] = _nobody_watches
    """Whether anybody outside of the session wants to see its turns as they run."""

    tell_live: Callable[[Announcement], None] = _to_nobody
    """Has a watcher told of a mark, a verdict or an action."""
