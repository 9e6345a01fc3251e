"""Anthropic: Claude models behind the Messages API."""
