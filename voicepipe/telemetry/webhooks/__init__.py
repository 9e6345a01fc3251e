"""Webhooks: the signed body, the durable queue, and the sender that retries."""
