"""Metrics: every name, label and help text, and the Prometheus registry that counts them."""
