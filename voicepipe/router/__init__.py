"""Decide which provider answers, transcribes and speaks, and what happens when one is late or fails.

`routed` is itself a model, made of several. Its decisions are pure and take `now_ms`. `policies` decide which models
may answer and in what order. `scoreboard` and `breaker` keep each model's past results, `planner` computes from them
when to start which model, `race` runs one request by facts and orders. `rehearsal` runs the same parts against drawn
latencies in virtual time.

`voices` (TTS) and `ears` (STT) are routed likewise. `lineup` decides the providers and their order. `performance`
races synthesizers for the first audio, and continues with what `progress` reports as left. `relay` replays the audio
of `kept` to the next transcriber.
"""
