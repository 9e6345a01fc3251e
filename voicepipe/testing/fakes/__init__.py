"""Stand-ins that answer, stall, break and lie on cue.

`vendor` is a whole OpenAI-shaped server on a real socket; `ports` are the three ports without one. A test
tells either what to do next through a `Script`: `script.cue(LlmCue(fault=Cut(after=3)))`.
"""
