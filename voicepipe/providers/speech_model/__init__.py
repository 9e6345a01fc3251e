"""Parts of the adapters of speech-to-speech models."""
