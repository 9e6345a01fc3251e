"""Route STT: transcribers that replace one another, and the audio that is replayed to the next."""
