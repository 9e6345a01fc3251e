"""STT and TTS servers that speak Wyoming."""
