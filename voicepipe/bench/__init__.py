"""Measures what voicepipe claims: each module runs by itself, `python -m voicepipe.bench.NAME`, and prints a table."""
