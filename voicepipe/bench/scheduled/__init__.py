"""Measure providers again and again: when each bench is due, what was measured and paid, and what has changed."""
