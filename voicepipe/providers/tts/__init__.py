"""Text-to-speech vendors, one module each."""
