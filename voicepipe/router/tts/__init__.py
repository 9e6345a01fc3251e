"""Route TTS: synthesizers that race and replace one another, and the cache of their audio."""
