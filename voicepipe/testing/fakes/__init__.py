"""Fakes that answer, stall, break and send wrong data on cue.

`vendor` is a complete OpenAI-shaped server on a real socket; `ports` are the three ports without one. A test
controls either through a `Script`: `script.cue(LlmCue(fault=Cut(after=3)))`.
"""
