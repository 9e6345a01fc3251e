"""Inworld: STT and TTS."""
