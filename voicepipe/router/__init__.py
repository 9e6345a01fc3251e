"""Decide which provider answers, transcribes and speaks, and what happens when one is late or fails.

`llm/model` is itself a model, made of several. Its decisions are pure and take `now_ms`. `policies` decide which models
may answer and in what order. `latency_stats` and `circuit_breaker` keep each model's past results, `hedging` computes
from them when to start which model, `race` runs one request by facts and orders. `simulation` runs the same parts
against drawn latencies in virtual time.

`tts/synthesizer` and `stt/transcriber` are routed likewise. `speech_order` decides the providers and their order.
`tts/speech` races synthesizers for the first audio, and continues with what `tts/progress` reports as left.
`stt/stream` replays the audio of `stt/replay_buffer` to the next transcriber.
"""
