"""A chat completions vendor that answers at once, for measuring the servers before it.

`python -m tests.measure.chat_provider --tokens 20` prints its port and serves until its stdin is closed. It does as
little as possible, so that its own time is small beside the measured one: any POST gets the same stream.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
    b"Connection: keep-alive\r\n\r\n"
)


def _event(fields: dict[str, Any]) -> bytes:
    known = {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1, "model": "bench"}
    return _chunked(b"data: " + json.dumps(known | fields).encode() + b"\n\n")


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _delta(delta: dict[str, Any], reason: str | None = None) -> bytes:
    return _event({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})


def pieces(n_tokens: int) -> tuple[bytes, ...]:
    """Return an answer's bytes, cut where a vendor would flush: head and first token, each token, the end."""
    tokens = [_delta({"content": f"word{n} "}) for n in range(n_tokens)]
    usage = {"prompt_tokens": 20, "completion_tokens": n_tokens, "total_tokens": 20 + n_tokens}
    end = _delta({}, "stop") + _event({"choices": [], "usage": usage}) + _chunked(b"data: [DONE]\n\n") + b"0\r\n\r\n"
    return (HEAD + _delta({"role": "assistant", "content": ""}) + tokens[0], *tokens[1:], end)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: tuple[bytes, ...]) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            await reader.readexactly(int(lengths[0].partition(b":")[2]) if lengths else 0)
            for piece in answer:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def _serve(n_tokens: int) -> None:
    answer = pieces(n_tokens)
    server = await asyncio.start_server(lambda r, w: _answer(r, w, answer), "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    server.close()


def main() -> None:
    """Serve until the parent process closes stdin."""
    parser = argparse.ArgumentParser(prog="python -m tests.measure.chat_provider", description=__doc__)
    parser.add_argument("--tokens", type=int, default=20)
    asyncio.run(_serve(parser.parse_args().tokens))


if __name__ == "__main__":
    main()
