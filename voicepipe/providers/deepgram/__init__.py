"""Deepgram: STT by Nova and Flux, TTS by Aura."""
