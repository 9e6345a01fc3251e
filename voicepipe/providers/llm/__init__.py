"""Code that adapters of several language model vendors share."""
