"""A conversation from the terminal: the microphone to the server, its answers to the loudspeaker."""

from __future__ import annotations

from collections.abc import Callable

from voicepipe.cli.sound_device import SoundDevices
from voicepipe.client import Answer, Call
from voicepipe.client import events as e
from voicepipe.client.errors import CallEnded
from voicepipe.client.turn_result import TurnCollector
from voicepipe.tasks import background_tasks


async def converse(
    call: Call,
    devices: SoundDevices,
    report: Callable[[Answer], None],
    *,
    text_only: bool = False,
    turns: int | None = None,
) -> None:
    """Hold a conversation until the server ends it, or for `turns` turns; `report` gets each answer.

    Raises:
        CallEnded: the connection was lost.
    """
    n_turns, reported = 0, False
    collector = TurnCollector(written=text_only, unrequested=True)
    async with background_tasks() as owned:
        owned.start(_send(call, devices), name="microphone")
        while turns is None or n_turns < turns:
            event = await call.next_event()
            if reported and isinstance(event, e.SpeechStarted | e.ReplyStarted):
                collector, reported = TurnCollector(written=text_only, unrequested=True), False
            _play(event, devices)
            collector.handle(event, call.sent_ms)
            answer = collector.answer() if collector.complete and not reported else None
            if answer is not None:
                report(answer)
                reported = True
                n_turns += 1
        await devices.played()


async def _send(call: Call, devices: SoundDevices) -> None:
    async for samples in devices.frames():
        try:
            await call.send(samples)
        except CallEnded:
            return  # the receiving side gets the same error


def _play(event: e.ServerEvent, devices: SoundDevices) -> None:
    match event:
        case e.ReplyAudio(_, pcm):
            devices.play(pcm)
        case e.SpeechStarted() | e.ReplyEnded(status="cancelled"):
            devices.flush()
