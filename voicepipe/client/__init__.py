"""The Python client: sends audio to a voicepipe server in real time and receives its answer, typed.

async with connect("ws://127.0.0.1:8080/v1/realtime") as call:
    answer = await call.turn(read_sound("question.wav", RATE_HZ))
    print(answer.agent_text, answer.latency_ms)
"""

from voicepipe.client.address import DEFAULT_URL, Address
from voicepipe.client.call import RATE_HZ, Call, connect
from voicepipe.client.errors import CallEnded, CallFailed, CallRefused, NoAnswer, ServerUnreachable
from voicepipe.client.health import answers, until_ready
from voicepipe.client.mcp import McpServer
from voicepipe.client.records import closed_turn, fetch_turn
from voicepipe.client.regions import Region, nearest_region, regions
from voicepipe.client.session_options import SessionOptions
from voicepipe.client.tools import Tool
from voicepipe.client.turn_result import Answer

__all__ = [
    "DEFAULT_URL",
    "RATE_HZ",
    "Address",
    "Answer",
    "Call",
    "CallEnded",
    "CallFailed",
    "CallRefused",
    "McpServer",
    "NoAnswer",
    "Region",
    "ServerUnreachable",
    "SessionOptions",
    "Tool",
    "answers",
    "closed_turn",
    "connect",
    "fetch_turn",
    "nearest_region",
    "regions",
    "until_ready",
]
