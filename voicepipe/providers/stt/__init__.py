"""Speech-to-text vendors, one module each."""
