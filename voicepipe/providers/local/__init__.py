"""Local engines: STT, a small LLM and TTS that need no key and no network.

All three run in one separate process for the whole machine (`engine/`), shared by every server and command of the same
user through a Unix socket. `process` starts it and restarts it; `stt`, `llm` and `tts` are the adapters of the three
ports; `wire` is the protocol between adapters and engine.
"""
