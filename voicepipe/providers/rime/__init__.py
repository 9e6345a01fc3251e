"""Rime: TTS."""
