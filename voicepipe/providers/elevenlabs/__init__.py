"""ElevenLabs: STT by Scribe, and TTS."""
