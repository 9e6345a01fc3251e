"""Together's STT and TTS, over its WebSockets. Its LLMs are in the catalog."""
