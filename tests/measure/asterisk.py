"""Call a server over SIP through a real Asterisk, and say what works.

`python -m tests.measure.asterisk --root FOLDER` starts a server with fake providers and the Asterisk that is installed
below FOLDER (`/` is this machine; any other folder is entered with chroot, which needs root). Asterisk gets the
dialplan and the settings of web/docs/phone-asterisk.md as they stand there. Telephones call it over SIP and RTP on
127.0.0.1, which are the other end of the same Asterisk: they play a recording, press keys, and record what they hear.

Debian 12 and 13 have no package of Asterisk. As root, this unpacks the one of Debian unstable into a folder:

    apt-get -o Dir::Etc::sourcelist=FILE ... install --download-only asterisk
    for each in *.deb; do dpkg-deb -x "$each" FOLDER; done
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import numpy as np

from tests.phone.carriers import keys_in, turns
from voicepipe.audio import g711
from voicepipe.audio.files import read_sound, write_wav
from voicepipe.audio.samples import Samples
from voicepipe.config import load
from voicepipe.phone.asterisk import QUEUE_MS
from voicepipe.testing.fakes import deepgram_stt
from voicepipe.testing.fakes.cues import CallCue, LlmCue, SttCue, tokens
from voicepipe.testing.fakes.deepgram_stt import FakeDeepgram
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.free_port import free_port
from voicepipe.testing.waiting import eventually
from voicepipe.wiring import running

GUIDE: Final = Path(__file__).parents[2] / "web" / "docs" / "phone-asterisk.md"
SPOKEN: Final = Path(__file__).parents[1] / "data" / "clean" / "cv_22058264.flac"
SPOKEN_MS: Final = 1_300
RATE_HZ: Final = 8_000
WAIT_S: Final = 90.0

SECRET, ARI_SECRET = "the secret of the dialplan", "the password of ari"
SALES, USER, TELEPHONE = "+4930123456", "+4915112345678", "4915100000001"
LONG: Final = "One two three four five six seven eight nine ten. " * 12
ANSWER: Final = "It is noon."

SAY: Final = "Playback(FOLDER/no)"
TELEPHONES: Final = {
    "asks": (SAY, "Wait(5)"),
    "types": ("Wait(1)", "SendDTMF(12#)", "Wait(5)"),
    "interrupts": (SAY, "Wait(4)", SAY, SAY, "Wait(4)"),
    "listens": (SAY, "Wait(32)"),
    "leaves": (SAY, "Wait(1)"),
}
"""What a telephone does that calls the agent, by its extension: applications of the dialplan."""

PJSIP: Final = f"""
[udp]
type = transport
protocol = udp
bind = 127.0.0.1:PORT

[telephone](!)
type = endpoint
context = voicepipe
disallow = all
allow = ulaw
direct_media = no
from_user = {TELEPHONE}

[line](telephone)
aors = line

[line]
type = identify
endpoint = line
match = 127.0.0.1

[line]
type = aor
contact = sip:127.0.0.1:PORT

[trunk](telephone)
aors = trunk

[trunk]
type = aor
contact = sip:127.0.0.1:PORT
"""

CONFIG: Final = {
    "asterisk.conf": """[directories]
astetcdir => FOLDER
astmoddir => /usr/lib/x86_64-linux-gnu/asterisk/modules
astvarlibdir => FOLDER
astdbdir => FOLDER
astkeydir => FOLDER
astdatadir => /usr/share/asterisk
astagidir => FOLDER
astspooldir => FOLDER
astrundir => FOLDER
astlogdir => FOLDER
[options]
verbose = 3
""",
    "modules.conf": "[modules]\nautoload = yes\nnoload = chan_iax2.so\nnoload = res_xmpp.so\n",
    "logger.conf": "[logfiles]\nmessages => notice,warning,error,verbose\n",
    "http.conf": "[general]\nenabled = yes\nbindaddr = 127.0.0.1\nbindport = HTTP\n",
    "ari.conf": f"[general]\nenabled = yes\n[voicepipe]\ntype = user\npassword = {ARI_SECRET}\n",
    "rtp.conf": "[general]\nrtpstart = 21000\nrtpend = 21400\n",
    "pjsip.conf": PJSIP,
    "amd.conf": "[general]\n",
    "cdr.conf": "[general]\nenable = no\n",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A server, its fake providers, and an Asterisk."""

    url: str
    vendor: FakeVendor
    deepgram: FakeDeepgram
    folder: Path
    """Where Asterisk has its files, as this process sees it."""

    run: Callable[[str], Awaitable[str]]
    """Runs a command of Asterisk's console, and returns what it prints."""

    async def call(self, telephone: str) -> None:
        """Have a telephone call the agent, and wait for the end of the call."""
        await self.run(f"channel originate PJSIP/100@line extension {telephone}@telephone")
        await self.over()

    async def over(self) -> None:
        """Wait until no call is left."""
        await eventually(self._is_idle, within_s=WAIT_S)

    async def _is_idle(self) -> bool | None:
        return (await self.run("core show channels count")).startswith("0 active channels") or None

    async def received(self, telephone: str) -> bytes:
        """Return what a telephone has heard, mu-law without the silence around it."""
        path = self.folder / f"{telephone}-heard.wav"
        sound = await eventually(lambda: _whole(path), within_s=WAIT_S)
        loud = np.flatnonzero(np.abs(sound.astype(int)) > 200)
        return g711.encode_mulaw(sound[loud[0] : loud[-1] + 1]) if len(loud) else b""

    @property
    def latest_message(self) -> str:
        """The latest message that the LLM got."""
        return str(self.vendor.llm.received[-1].question["messages"][-1]["content"])


async def _whole(path: Path) -> Samples | None:
    """Return a recording once it does not grow any more."""
    size = await asyncio.to_thread(_size, path)
    await asyncio.sleep(0.5)
    return read_sound(path, RATE_HZ) if size and await asyncio.to_thread(_size, path) == size else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


# --- scenes -----------------------------------------------------------------------------------


async def is_answered(world: World) -> str:
    """A question is answered, and the record has what the marks report."""
    await world.call("asks")
    turn, *_ = await turns(world, 1)
    assert turn["outcome"] == "completed", turn["outcome"]
    assert turn["latency_source"] == "reported"
    assert turn["user"] == f"+{TELEPHONE}", turn["user"]
    received_ms = len(await world.received("asks")) // 8
    return f"{received_ms} ms heard; total {turn['total_ms']} ms, carrier {turn['carrier_estimated_ms']} ms"


async def takes_keys(world: World) -> str:
    """Keys of the user are text for the agent."""
    await world.call("types")
    assert world.latest_message == "[DTMF: 12#]", world.latest_message
    return world.latest_message


async def is_interrupted(world: World) -> str:
    """A voice stops the agent; the rest of its answer is not heard."""
    before = len(world.vendor.llm.received)
    world.vendor.llm.cue(LlmCue(tokens=tokens(LONG)))
    world.vendor.stt.cue(SttCue(text="Tell me a lot."), SttCue(text="Stop, that is enough now."))
    await world.call("interrupts")
    assert len(world.vendor.llm.received) > before + 1
    outcomes = [each["outcome"] for each in await turns(world, 1)]
    assert "interrupted" in outcomes, outcomes
    return f"{len(await world.received('interrupts')) // 8} ms heard of both answers"


async def says_all_of_a_long_answer(world: World) -> str:
    """An answer that is longer than Asterisk's queue is played whole."""
    world.vendor.llm.cue(LlmCue(tokens=tokens(LONG)))
    await world.call("listens")
    received_ms = len(await world.received("listens")) // 8
    assert received_ms > QUEUE_MS + 5_000, received_ms
    return f"{received_ms} ms"


async def is_transferred(world: World) -> str:
    """The agent transfers the call to a number, behind its last word."""
    transfer = CallCue("transfer_call", ('{"to":"sales"}',), "c1")
    world.vendor.llm.cue(LlmCue(tokens=tokens("I connect you with sales."), calls=(transfer,)))
    await world.call("listens")
    assert await asyncio.to_thread(_size, world.folder / "sales.wav") > 0
    return SALES


async def presses_keys(world: World) -> str:
    """The keys of the agent are heard as tones."""
    world.vendor.llm.cue(LlmCue(calls=(CallCue("send_dtmf", ('{"digits":"4711#"}',), "c1"),)))
    await world.call("asks")
    sound = await world.received("asks")
    assert keys_in(sound).startswith("4711#"), keys_in(sound)
    return keys_in(sound)[:5]


async def is_left(world: World) -> str:
    """A user who hangs up ends the session."""
    world.vendor.llm.cue(LlmCue(tokens=tokens(LONG)))
    await world.call("leaves")
    await eventually(lambda: _no_sessions(world), within_s=WAIT_S)
    return "no session is left"


async def _no_sessions(world: World) -> bool | None:
    async with aiohttp.ClientSession() as session, session.get(f"{world.url}/metrics") as answer:
        return "voicepipe_sessions 0.0" in (await answer.text()).splitlines() or None


async def is_dialed(world: World) -> str:
    """The server calls a number by ARI, and the agent answers the person there. Its STT takes a telephone's audio, and
    gets what the telephone plays."""
    body = {"to": USER, "agent": "deepgram"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{world.url}/v1/phone/main/calls", json=body) as answer,
    ):
        assert answer.status == 201, await answer.text()
    answered = await eventually(lambda: _turn_of(USER, world), within_s=WAIT_S)
    assert answered["outcome"] == "completed", answered["outcome"]
    await world.run("channel request hangup all")
    await world.over()
    (stream,) = world.deepgram.calls
    assert (stream.encoding.name, stream.encoding.rate_hz) == ("audio/pcmu", RATE_HZ)
    likeness = _likeness(stream.samples, read_sound(world.folder / "no.wav", RATE_HZ))
    assert likeness > 0.999, likeness
    return f"{USER}; its STT got mu-law at 8 kHz, correlation with what the telephone has played {likeness:.5f}"


def _likeness(received: Samples, played: Samples) -> float:
    """Return the correlation of the two where they overlap, at the shift where that is greatest."""
    one, other = received.astype(float), played.astype(float)
    shift = int(np.argmax(np.correlate(one, other, "full"))) - len(other) + 1
    one, other = one[max(0, shift) :], other[max(0, -shift) :]
    n = min(len(one), len(other))
    return float(one[:n] @ other[:n] / np.linalg.norm(one[:n]) / np.linalg.norm(other[:n]))


async def _turn_of(user: str, world: World) -> dict[str, Any] | None:
    """Return the record of a user's turn that is over."""
    return next((each for each in await turns(world, 0) if each["user"] == user), None)


async def holds_twenty_calls(world: World) -> str:
    """Twenty calls at once are each answered."""
    before = len(await turns(world, 0))
    for n in range(20):
        await world.run(f"channel originate PJSIP/100@line extension asks{n}@telephone")
    await world.over()
    ended = (await turns(world, before + 20))[before:]
    lengths = [len(await world.received(f"asks{n}")) // 8 for n in range(20)]
    assert [each["outcome"] for each in ended] == ["completed"] * 20
    assert min(lengths) > 200, lengths
    return f"{min(lengths)} to {max(lengths)} ms heard"


SCENES: Final = (
    is_answered,
    takes_keys,
    is_interrupted,
    says_all_of_a_long_answer,
    is_transferred,
    presses_keys,
    is_left,
    is_dialed,
    holds_twenty_calls,
)


# --- the world --------------------------------------------------------------------------------


def guide_blocks(kind: str) -> list[str]:
    """Return the code blocks of one kind in the guide."""
    return re.findall(rf"```{kind}\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def written(folder: Path, inside: str, *, url: str, sip_port: int, http_port: int) -> None:
    """Write Asterisk's configuration: the guide's own, and what makes telephones of it."""
    websocket, dialplan, dialing = guide_blocks("ini")
    does = "".join(
        f"exten => {extension},1,MixMonitor(FOLDER/{extension}.wav,r(FOLDER/{extension}-heard.wav))\n"
        + "".join(f" same => n,{step}\n" for step in steps)
        + " same => n,Hangup()\n"
        for extension, steps in {**TELEPHONES, **{f"asks{n}": (SAY, "Wait(15)") for n in range(20)}}.items()
    )
    answers = (
        f"[voicepipe]\nexten => {SALES},1,Answer()\n same => n,MixMonitor(FOLDER/sales.wav)\n same => n,Wait(1)\n"
        f" same => n,Hangup()\nexten => {USER},1,Answer()\n same => n,Wait(1)\n same => n,{SAY}\n same => n,Wait(9)\n"
        f" same => n,{SAY}\n same => n,Wait(20)\n"
    )
    extensions = f"{dialplan}\n{dialing}\n{answers}\n[telephone]\n{does}"
    extensions = extensions.replace("VOICEPIPE_SECRET = ...", f"VOICEPIPE_SECRET = {SECRET}")
    for name, text in {**CONFIG, "websocket_client.conf": websocket, "extensions.conf": extensions}.items():
        here = text.replace("http://127.0.0.1:8080", url).replace("ws://127.0.0.1:8080", url.replace("http", "ws"))
        here = here.replace("PORT", str(sip_port)).replace("HTTP", str(http_port)).replace("FOLDER", inside)
        (folder / name).write_text(here)
    write_wav(folder / "no.wav", read_sound(SPOKEN, RATE_HZ)[: SPOKEN_MS * RATE_HZ // 1_000], RATE_HZ)


@asynccontextmanager
async def asterisk(root: Path, folder: Path) -> AsyncIterator[Callable[[str], Awaitable[str]]]:
    """Run Asterisk; yield what runs a command of its console."""
    enter = () if root == Path("/") else (shutil.which("chroot") or "chroot", str(root))
    config = f"/{(folder / 'asterisk.conf').relative_to(root)}"
    output = asyncio.subprocess.DEVNULL
    server = await asyncio.create_subprocess_exec(*enter, "/usr/sbin/asterisk", "-f", "-C", config, stdout=output)

    async def run(command: str) -> str:
        console = await asyncio.create_subprocess_exec(
            *enter, "/usr/sbin/asterisk", "-C", config, "-rx", command, stdout=asyncio.subprocess.PIPE
        )
        printed, _ = await console.communicate()
        return printed.decode(errors="replace")

    async def booted() -> bool | None:
        return "fully booted" in await run("core waitfullybooted") or None

    try:
        await eventually(booted, within_s=WAIT_S)
        yield run
    finally:
        server.terminate()
        await server.wait()


@asynccontextmanager
async def world(root: Path) -> AsyncIterator[World]:
    """Start the server, its fake providers and Asterisk."""
    http_port, sip_port = free_port(), free_port(socket.SOCK_DGRAM)
    with tempfile.TemporaryDirectory(dir=root / "tmp") as temporary:
        folder = Path(temporary)
        async with FakeVendor() as vendor, FakeDeepgram() as deepgram:
            overrides = {
                "server.port": 0,
                "server.drain_ms": 0,
                "server.data_dir": str(folder / "data"),
                "providers.fake.base_url": vendor.base_url,
                "agents.default.stt": "fake/stt",
                "agents.default.llm": "fake/llm",
                "agents.default.tts": "fake/tts",
                "agents.default.tools": "end_call, transfer_call, send_dtmf",
                "providers.deepgram.base_url": deepgram.base_url,
                "providers.deepgram.api_key": deepgram_stt.KEY,
                "agents.deepgram.stt": "deepgram/nova-3",
                "agents.deepgram.llm": "fake/llm",
                "agents.deepgram.tts": "fake/tts",
                "phone.main.carrier": "asterisk",
                "phone.main.secret": SECRET,
                "phone.main.transfer_to.sales": SALES,
                "phone.main.number": "+493012345",
                "phone.main.account": "voicepipe",
                "phone.main.api_key": ARI_SECRET,
                "phone.main.api_url": f"http://127.0.0.1:{http_port}",
            }
            vendor.llm.usual = LlmCue(tokens=tokens(ANSWER))
            async with running(load(overrides=overrides, environ={"HOME": temporary}, folder=folder)) as server:
                inside = f"/{folder.relative_to(root)}"
                written(folder, inside, url=server.base_url, sip_port=sip_port, http_port=http_port)
                async with asterisk(root, folder) as run:
                    yield World(url=server.base_url, vendor=vendor, deepgram=deepgram, folder=folder, run=run)


async def main(root: Path, only: str) -> int:
    """Run the scenes; return how many failed."""
    n_failed = 0
    async with world(root) as asterisk:
        say(await asterisk.run("core show version"))
        for scene in SCENES:
            if only and scene.__name__ != only:
                continue
            try:
                say(f"{scene.__name__}: {await scene(asterisk)}")
            except (AssertionError, TimeoutError) as why:
                n_failed += 1
                say(f"{scene.__name__}: FAILED: {why}")
                say((asterisk.folder / "messages").read_text()[-3_000:])
                await asterisk.run("channel request hangup all")
    return n_failed


def say(line: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{line.strip()}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, default=Path("/"))
    parser.add_argument("--only", default="", help="the name of one scene")
    chosen = parser.parse_args()
    sys.exit(asyncio.run(main(chosen.root, chosen.only)) > 0)
