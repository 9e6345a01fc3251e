"""Client events that are almost right."""

from __future__ import annotations

import asyncio
import copy
import json
import random
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from attack.bystanders import append
from attack.target import Event, Sent, Target, count_events, session_update, user_item

LINES = 12
EVENTS_A_LINE = 100
MAX_CHANGES = 3

TOOL = {"type": "function", "name": "look", "description": "d", "parameters": {"type": "object", "properties": {}}}
TURN_DETECTION = {
    "type": "server_vad",
    "threshold": 0.5,
    "prefix_padding_ms": 300,
    "silence_duration_ms": 500,
    "create_response": True,
    "interrupt_response": True,
    "idle_timeout_ms": 5_000,
}

VALID: tuple[Event, ...] = (
    session_update(instructions="Be brief.", output_modalities=["text"], tools=[TOOL], tool_choice="auto"),
    session_update(audio={"input": {"turn_detection": TURN_DETECTION, "transcription": {"model": "m"}}}),
    session_update(audio={"input": {"format": {"type": "audio/pcm", "rate": 24_000}, "noise_reduction": None}}),
    session_update(audio={"output": {"voice": "v", "speed": 1.1, "format": {"type": "audio/pcmu"}}}),
    session_update(max_output_tokens=100, truncation={"type": "retention_ratio", "retention_ratio": 0.5}),
    session_update(providerData={"voicepipe": {"turn_events": True, "playback_reports": True, "resume": True}}),
    user_item([{"type": "input_text", "text": "hello"}], id="item_a"),
    user_item([{"type": "input_audio", "audio": "AAAA", "transcript": "hello"}]),
    user_item([{"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"}]),
    {"type": "conversation.item.create", "item": {"type": "function_call_output", "call_id": "c", "output": "{}"}},
    {"type": "conversation.item.retrieve", "item_id": "item_a"},
    {"type": "conversation.item.truncate", "item_id": "item_a", "content_index": 0, "audio_end_ms": 100},
    {"type": "conversation.item.delete", "item_id": "item_a"},
    json.loads(append(bytes(960))),
    {"type": "input_audio_buffer.commit"},
    {"type": "input_audio_buffer.clear"},
    {"type": "output_audio_buffer.clear"},
    {"type": "response.create", "response": {"instructions": "x", "conversation": "none", "metadata": {"a": "b"}}},
    {"type": "response.create", "response": {"input": [], "output_modalities": ["text"], "tools": [TOOL]}},
    {"type": "response.cancel", "response_id": "resp_x"},
    {"type": "voicepipe.playback", "item_id": "item_a", "played_ms": 1, "buffered_ms": 2, "input_ms": 3},
    {"type": "voicepipe.resume", "session_id": "sess_x", "secret": "s", "last_event_id": "event_1"},
)

ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 2**31, 2**63, 2**64, -(2**70), 1e308, -0.0, 1e-320, 0.1,
    "", " ", "\x00", "\ud83d\ude00", "\u202e", "x" * 5_000, "../..", "null", "inf", "auto", "item_a",
    [], {}, [[]], [{}], [None], {"type": None}, {"": {}}, [1] * 200,
)  # fmt: skip

ODD_TEXTS: tuple[str, ...] = (
    "", "{", "null", "[]", '"x"', "1e999", "NaN", '{"type":NaN}', '{"type":"session.update","session":' * 50,
    '{"type":"a","type":"b"}', "[" * 2_000, '{"type":"\\ud800"}', '{"type":"input_audio_buffer.append","audio":"=*"}',
    '{"type":"input_audio_buffer.append","audio":"A"}', "\ufeff{}",
)  # fmt: skip

FOUND: tuple[Event, ...] = ()
"""What a longer random run found; sent first, each on a line of its own."""


async def events(target: Target) -> Sent:
    """Valid events with a few values changed, removed, doubled or put elsewhere."""
    chance, sent = random.Random(target.seed), Sent()
    for event in FOUND:
        await _one_line(target, sent, [json.dumps(event)])
    for _ in range(round(LINES * target.scale)):
        await _one_line(target, sent, [_odd(chance) for _ in range(EVENTS_A_LINE)])
    return sent


async def _one_line(target: Target, sent: Sent, messages: list[str]) -> None:
    line = await target.line()
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(count_events(line, sent))
        await _send_all(sent, line, messages)
        line.transport.abort()
        await reading


async def _send_all(sent: Sent, line: ClientConnection, messages: list[str]) -> None:
    try:
        for message in messages:
            await sent.send(line, message)
        await (await line.ping())  # all was taken
        sent.seen["a line that lived on"] += 1
    except ConnectionClosed:
        sent.seen["a line that was closed"] += 1


def _odd(chance: random.Random) -> str:
    if chance.random() < 0.1:
        return chance.choice(ODD_TEXTS)
    event = copy.deepcopy(chance.choice(VALID))
    for _ in range(chance.randint(0, MAX_CHANGES)):
        change(chance, event)
    return json.dumps(event)


def change(chance: random.Random, value: Any) -> None:
    """Change one place somewhere below a JSON object or array, in place."""
    places = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not places:
        return
    place = chance.choice(places)
    below = value[place]
    if isinstance(below, dict | list) and below and chance.random() < 0.7:
        change(chance, below)
    elif chance.random() < 0.25:
        del value[place]
    elif chance.random() < 0.2 and isinstance(value, dict):
        value[chance.choice(("type", "id", "x", f"{place}s"))] = copy.deepcopy(below)
    else:
        value[place] = copy.deepcopy(chance.choice(ODD_VALUES))
