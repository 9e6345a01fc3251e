"""A call over WebRTC from a real browser: Chromium's RTCPeerConnection, with nothing of voicepipe in the page."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.slow

QUESTION = "What do I here seek?"
QUESTION_CLIP = ("ls_2414-128291-0003", 30_000)

CALL = """
(async () => {
  const connection = (window.connection = new RTCPeerConnection());
  window.came = [];
  connection.ontrack = ({ streams: [stream] }) => {
    window.speaker = new Audio();
    window.speaker.srcObject = stream;
    window.speaker.play();
  };
  const microphone = await navigator.mediaDevices.getUserMedia({ audio: true });
  connection.addTrack(microphone.getTracks()[0], microphone);
  window.channel = connection.createDataChannel("oai-events");
  window.channel.onmessage = ({ data }) => window.came.push(JSON.parse(data));
  await connection.setLocalDescription(await connection.createOffer());
  const answer = await fetch("/v1/realtime/calls", {
    method: "POST",
    headers: { "Content-Type": "application/sdp" },
    body: connection.localDescription.sdp,
  });
  window.answered = { status: answer.status, location: answer.headers.get("Location") };
  await connection.setRemoteDescription({ type: "answer", sdp: await answer.text() });
})()
"""

ENERGY = """
window.connection.getStats().then((stats) =>
  [...stats.values()].find((each) => each.type === "inbound-rtp" && each.kind === "audio").totalAudioEnergy)
"""


INTERRUPT = """
window.channel.addEventListener("message", ({ data }) => {
  if (JSON.parse(data).type !== "output_audio_buffer.started") return;
  for (const type of ["response.cancel", "output_audio_buffer.clear"]) window.channel.send(JSON.stringify({ type }));
});
const item = { type: "message", role: "user", content: [{ type: "input_text", text: "What do I here seek?" }] };
window.channel.send(JSON.stringify({ type: "conversation.item.create", item }));
window.channel.send(JSON.stringify({ type: "response.create" }));
"""


async def test_an_interrupted_answer_is_truncated_by_the_server(talking: Any) -> None:
    """The client says only that it stops, as @openai/agents does."""
    async with talking() as talk, talk.page() as page:
        await page.evaluate(CALL)
        await page.until("window.channel.readyState === 'open'")
        await page.evaluate("(window.connection.getSenders()[0].track.enabled = false)")  # it would beep
        await page.evaluate(INTERRUPT)
        await page.until("window.came.some(({ type }) => type === 'conversation.item.truncated')")
        came = await page.evaluate("window.came")
        kinds = [each["type"] for each in came]
        assert "output_audio_buffer.cleared" in kinds
        (truncated,) = (each for each in came if each["type"] == "conversation.item.truncated")
        spoken_ms = len(talk.answer) // 24
        assert 0 < truncated["audio_end_ms"] < spoken_ms
        await page.evaluate("window.connection.close()")


async def test_a_spoken_question_is_answered_in_speech_over_webrtc(talking: Any) -> None:
    """The page sends its offer at once, before it has any candidate, as the published examples do."""
    settings = {"agents.default.end_of_turn": "silence", "agents.default.silence_ms": 1_500}
    async with talking(says=QUESTION_CLIP, settings=settings) as talk, talk.page() as page:
        await page.evaluate(CALL)
        answered = await page.evaluate("window.answered")
        assert answered["status"] == 201
        assert answered["location"].startswith("/v1/realtime/calls/rtc_")
        await page.until("window.came.some(({ type }) => type === 'output_audio_buffer.stopped')")
        kinds = await page.evaluate("window.came.map(({ type }) => type)")
        assert kinds[0] == "session.created"
        assert "response.output_audio.delta" not in kinds
        assert [kind for kind in kinds if kind.startswith("output_audio_buffer")] == [
            "output_audio_buffer.started",
            "output_audio_buffer.stopped",
        ]
        assert kinds.index("input_audio_buffer.speech_started") < kinds.index("response.created")
        assert await page.evaluate(ENERGY) > 0.01
        await page.evaluate("window.connection.close()")
