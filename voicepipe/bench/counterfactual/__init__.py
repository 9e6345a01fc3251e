"""Replay a journal with other settings, and estimate the latencies that they would have given."""
