"""Code that adapters of several STT vendors share."""
