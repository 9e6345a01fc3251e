"""Benchmarks of voicepipe: each module runs by itself, `python -m voicepipe.bench.NAME`, and prints a table."""
