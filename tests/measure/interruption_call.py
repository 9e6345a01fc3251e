"""One call of the interruption bench: let the agent speak, speak over it in real time, and record its reaction."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from tests.measure.interruption_scenes import Scene, room
from voicepipe import clock
from voicepipe.client import RATE_HZ, Call, CallEnded, SessionOptions, connect
from voicepipe.client import events as e
from voicepipe.client.call import FRAME_MS
from voicepipe.client.errors import CallFailed
from voicepipe.protocol.extensions import Extensions
from voicepipe.tasks import background_tasks

_QUIET_MS: Final = 600
"""Room noise alone before the agent speaks, so that the VAD can measure its level."""

_AFTER_MS: Final = 2_500
"""Time after the user's speech during which the call is watched: a later verdict does not count."""

_SESSION_OPTIONS: Final = SessionOptions(extensions=Extensions(binary_audio=True, playback_reports=True, ducking=True))
_FRAME: Final = FRAME_MS * RATE_HZ // 1_000


@dataclass(slots=True)
class Seen:
    """The result of a scene. Instants are ms since the user's speech began, at the client."""

    scene: Scene
    ducked_ms: int | None = None
    n_ducked: int = 0
    verdicts_ms: tuple[int, ...] = ()
    """Time from each ducking to its verdict, as the server reported."""

    stopped_ms: int | None = None
    """When the agent was stopped; None if it was not."""

    why: str = ""
    """The reported reason."""

    failure: str = ""
    """The error of a failed call, which has no other results."""


class _Microphone:
    """Plays the room noise, and the scene once it begins."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._room = room(RATE_HZ)
        self._first_ms = clock.monotonic_ms()
        self._began: int | None = None
        self._n_sent = 0

    def begin(self) -> None:
        """Begin the scene: the agent's first audio plays now."""
        self._began = self._began if self._began is not None else self._n_sent

    def since_onset_ms(self) -> int:
        """Return the time since the user's speech began; negative before."""
        begun_ms = (self._began if self._began is not None else self._n_sent) * FRAME_MS
        return clock.monotonic_ms() - self._first_ms - begun_ms - self._scene.onset_ms

    @property
    def over(self) -> bool:
        """Whether the scene was played to its end, and a while has passed."""
        end = len(self._scene.sound) // _FRAME + _AFTER_MS // FRAME_MS
        return self._began is not None and self._n_sent - self._began > end

    async def run(self, call: Call) -> None:
        """Send each frame at its capture time, until cancelled or disconnected."""
        while True:
            due_ms = self._first_ms + (self._n_sent + 1) * FRAME_MS
            await asyncio.sleep(max(0, due_ms - clock.monotonic_ms()) / 1_000)
            place = None if self._began is None else (self._n_sent - self._began) * _FRAME
            frame = self._room[:_FRAME] if place is None else self._scene.sound[place : place + _FRAME]
            try:
                await call.send(frame if len(frame) == _FRAME else self._room[:_FRAME])
            except CallEnded:
                return  # the receiving task gets the same error, with its cause
            self._n_sent += 1


async def play(scene: Scene, url: str) -> Seen:
    """Call, and record the agent's reaction. A failure is a result too."""
    seen = Seen(scene)
    try:
        async with connect(url, session_options=_SESSION_OPTIONS) as call, background_tasks() as owned:
            microphone = _Microphone(scene)
            owned.start(microphone.run(call), name="microphone")
            await asyncio.sleep(_QUIET_MS / 1_000)
            await call.respond()
            await _watch(call, microphone, seen)
    except CallFailed as why:
        seen.failure = str(why)
    return seen


async def _watch(call: Call, microphone: _Microphone, seen: Seen) -> None:
    while not microphone.over and seen.stopped_ms is None:
        try:
            async with asyncio.timeout(FRAME_MS / 1_000):
                event = await call.next_event()
        except TimeoutError:
            continue
        _take(event, microphone, seen)


def _take(event: e.ServerEvent, microphone: _Microphone, seen: Seen) -> None:
    match event:
        case e.ReplyAudio():
            microphone.begin()
        case e.AgentDucked():
            seen.n_ducked += 1
            since_ms = microphone.since_onset_ms()
            if seen.ducked_ms is None and since_ms >= 0:
                seen.ducked_ms = since_ms
        case e.AgentUnducked(_, _, after_ms):
            seen.verdicts_ms += (after_ms,)
        case e.AgentInterrupted(_, reason, _):
            seen.stopped_ms, seen.why = microphone.since_onset_ms(), reason
        case e.ReplyEnded(_, "cancelled" | "failed", why):
            seen.stopped_ms, seen.why = microphone.since_onset_ms(), why
