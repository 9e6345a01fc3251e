"""Code that adapters of several TTS vendors share."""
