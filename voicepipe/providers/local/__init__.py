"""Local engines: speech to text, a small model and a voice that need no key and no network.

All three run in one separate process for the whole machine (`engine/`), shared by every server and
command of the same user through a Unix socket. `process` starts it and keeps it alive; `stt`, `llm` and
`tts` are the adapters that meet the three ports; `wire` is what they and the engine say to one another.
"""
