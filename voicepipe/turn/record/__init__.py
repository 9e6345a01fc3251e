"""A turn's record: its values and marks, and which stage, provider or setting its latency is attributed to."""
