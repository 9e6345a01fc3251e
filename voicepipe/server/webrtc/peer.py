"""One peer connection, by aiortc: ICE, DTLS, the data channel, and Opus both ways.

Only this module imports aiortc and PyAV, which are in the extra `webrtc`.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from fractions import Fraction
from typing import Any, Final

import numpy as np
from aiortc import (
    RTCConfiguration,
    RTCDataChannel,
    RTCIceServer,
    RTCPeerConnection,
    RTCSessionDescription,
)
from aiortc.exceptions import InvalidStateError
from aiortc.jitterbuffer import JitterFrame
from aiortc.mediastreams import MediaStreamError, MediaStreamTrack
from aiortc.rtcconfiguration import RTCBundlePolicy
from av.audio.codeccontext import AudioCodecContext
from av.audio.frame import AudioFrame
from av.frame import Frame
from av.packet import Packet

from voicepipe.audio.resample import Resampler
from voicepipe.audio.samples import Samples, silence
from voicepipe.clock import monotonic_us
from voicepipe.errors import ProtocolError
from voicepipe.server.webrtc.jitter_buffer import AudioJitterBuffer, DecoderQueue
from voicepipe.server.webrtc.playout import RATE_HZ, Playout, mono
from voicepipe.server.webrtc.rtc_socket import RtcSocket
from voicepipe.server.webrtc.settings import WebRtcSettings
from voicepipe.telemetry.log import log_event

OPUS_HZ: Final = 48_000
"""The clock of Opus over RTP (RFC 7587, 4.1), and the rate at which the user's audio is decoded."""

FRAME_MS: Final = 20
BIT_RATE: Final = 32_000
"""Wideband speech with room for the copy of each frame that its successor carries (RFC 6716, 2.1.7)."""

OPUS_OPTIONS: Final = {"application": "voip", "frame_duration": str(FRAME_MS), "fec": "1", "packet_loss": "5"}

MAX_LATE_US: Final = 200_000
"""After a longer stall of the event loop, frames are sent later instead of in a burst."""

MAX_GAP: Final = OPUS_HZ
"""Longest gap in the user's audio that is filled with silence: 1 s. In a longer gap the client sent nothing."""

BUFFERED_BYTES: Final = 256 * 1024
"""Bytes of events that the data channel may hold before the session waits."""


JITTER_BUFFER: Final = "_RTCRtpReceiver__jitter_buffer"
"""The attribute of aiortc's receiver that `AudioJitterBuffer` replaces."""

DECODER_QUEUE: Final = "_RTCRtpReceiver__decoder_queue"
"""The attribute of aiortc's receiver that `DecoderQueue` replaces."""


class AgentTrack(MediaStreamTrack):  # type: ignore[misc] # mypy does not read aiortc
    """The agent's audio as Opus packets, one every 20 ms."""

    kind = "audio"

    def __init__(self, playout: Playout) -> None:
        super().__init__()
        self._playout, self._n_samples, self._n_frames = playout, RATE_HZ * FRAME_MS // 1_000, 0
        self._due_us = 0
        self._encoder = AudioCodecContext.create("libopus", "w")
        self._encoder.sample_rate, self._encoder.format, self._encoder.layout = RATE_HZ, "s16", "mono"
        self._encoder.bit_rate, self._encoder.options = BIT_RATE, OPUS_OPTIONS

    async def recv(self) -> Packet[Any]:
        """Return the next packet when it is due.

        Raises:
            MediaStreamError: the track has been stopped.
        """
        while True:
            now_us = monotonic_us()
            if now_us - self._due_us > MAX_LATE_US:
                self._due_us = now_us
            await asyncio.sleep(max(0, self._due_us - now_us) / 1_000_000)
            self._due_us += FRAME_MS * 1_000
            if self.readyState != "live":
                raise MediaStreamError
            frame = AudioFrame.from_ndarray(self._playout.take(self._n_samples)[np.newaxis], "s16", "mono")
            frame.sample_rate, frame.pts = RATE_HZ, self._n_frames * self._n_samples
            self._n_frames += 1
            for packet in self._encoder.encode(frame):
                packet.pts, packet.time_base = self._n_frames * OPUS_HZ * FRAME_MS // 1_000, Fraction(1, OPUS_HZ)
                return packet


class UserAudio:
    """Converts the user's decoded frames to 24 kHz mono. Lost audio becomes silence."""

    def __init__(self) -> None:
        self._resampler = Resampler(OPUS_HZ, RATE_HZ)
        self._next_pts: int | None = None

    def samples(self, frame: AudioFrame) -> Samples:
        """Return the audio of the next frame, 48 kHz stereo, with silence for a gap before the frame."""
        stereo: Samples = frame.to_ndarray().astype(np.int16, copy=False).reshape(-1, 2)
        pts = frame.pts or 0
        gap = 0 if self._next_pts is None else pts - self._next_pts
        self._next_pts = pts + len(stereo)
        lost = self._resampler.push(silence(gap)) if 0 < gap <= MAX_GAP else silence(0)
        return np.concatenate((lost, self._resampler.push(mono(stereo))))


class RtcPeer:
    """One client's peer connection. Implements `EventChannel`."""

    def __init__(self, settings: WebRtcSettings, socket: RtcSocket) -> None:
        servers = [
            RTCIceServer(url)
            if url.startswith("stun:")
            else RTCIceServer(url, settings.turn_username, settings.turn_credential)
            for url in settings.ice_servers
        ]
        self._connection = RTCPeerConnection(RTCConfiguration(servers, bundlePolicy=RTCBundlePolicy.MAX_BUNDLE))
        self._socket, self._ice_servers = socket, settings.ice_servers
        self._channel: RTCDataChannel | None = None
        self._user_track: MediaStreamTrack | None = None
        self._ready, self._all_sent = asyncio.Event(), asyncio.Event()
        self._all_sent.set()
        self._connection.on("track", self._on_track)
        self._connection.on("datachannel", self._on_data_channel)
        self._connection.on("connectionstatechange", self._on_connection_state)

    async def answer(self, offer: str) -> str:
        """Return the SDP answer to a client's SDP offer, with all candidates.

        Raises:
            ProtocolError: the offer can't be read, or has no audio and no data channel.
        """
        try:
            await self._connection.setRemoteDescription(RTCSessionDescription(offer, "offer"))
            self._connection.addTrack(AgentTrack(self._socket.playout))
            for receiver in self._connection.getReceivers():
                if receiver.track.kind == "audio":
                    setattr(receiver, JITTER_BUFFER, AudioJitterBuffer())
                    setattr(receiver, DECODER_QUEUE, DecoderQueue(JitterFrame))
            await self._connection.setLocalDescription(await self._connection.createAnswer())
        except (
            AssertionError,
            ValueError,
            KeyError,
            IndexError,
            AttributeError,
            InvalidStateError,
        ):  # aiortc asserts too
            raise ProtocolError("sdp: expected an SDP offer, got one that can't be read", field="sdp") from None
        answer: str = self._connection.localDescription.sdp
        self._log_missing_candidates(answer)
        return answer

    def _log_missing_candidates(self, answer: str) -> None:
        """Log each STUN and TURN server without a candidate in the answer: aiortc does not report them."""
        for server in self._ice_servers:
            candidate = "typ srflx" if server.startswith("stun:") else "typ relay"
            if candidate not in answer:
                log_event("ice_server_failed", level=logging.WARNING, server=server)

    async def connected(self, within_ms: int) -> bool:
        """Wait for the data channel; return False if it does not open in that time."""
        try:
            async with asyncio.timeout(within_ms / 1_000):
                await self._ready.wait()
        except TimeoutError:
            return False
        return self._channel is not None

    async def read_audio(self) -> None:
        """Pass the user's audio to the socket until the track ends."""
        track, audio = self._user_track, UserAudio()
        while track is not None:
            try:
                frame: Frame = await track.recv()
            except MediaStreamError:
                return
            if isinstance(frame, AudioFrame):
                self._socket.on_audio(audio.samples(frame))

    def send(self, event: str) -> None:
        """Send an event; dropped if the channel is closed, or the event is too long for the client."""
        channel = self._channel
        if channel is None or channel.readyState != "open":
            return
        with suppress(ValueError):  # longer than `max-message-size` of the client's offer
            channel.send(event)
        if channel.bufferedAmount:
            self._all_sent.clear()

    async def drained(self) -> None:
        """If more than `BUFFERED_BYTES` are buffered, wait until all of them are sent."""
        if self._channel is not None and self._channel.bufferedAmount > BUFFERED_BYTES:
            await self._all_sent.wait()

    async def flushed(self) -> None:
        """Wait until the data channel has sent everything, or is closed."""
        await self._all_sent.wait()

    async def close(self) -> None:
        """Close the connection, completely even if this is cancelled: a half-closed one can't be closed again."""
        self._end()
        await asyncio.shield(self._connection.close())

    def _on_track(self, track: MediaStreamTrack) -> None:
        if track.kind == "audio" and self._user_track is None:
            self._user_track = track

    def _on_data_channel(self, channel: RTCDataChannel) -> None:
        if self._channel is not None:
            return
        self._channel = channel
        channel.on("message", self._socket.on_event)
        channel.on("bufferedamountlow", self._all_sent.set)
        channel.on("close", self._end)
        self._ready.set()

    def _on_connection_state(self) -> None:
        if self._connection.connectionState in ("failed", "closed"):
            self._end()

    def _end(self) -> None:
        self._socket.end()
        self._ready.set()
        self._all_sent.set()
