"""Measure how long users wait under load, and what each session costs: `voicepipe bench load`."""
