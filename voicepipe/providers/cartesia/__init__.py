"""Cartesia: STT by Ink, TTS by Sonic."""
