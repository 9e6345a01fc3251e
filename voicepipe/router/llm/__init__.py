"""Route LLM requests: one request over several models, and the continuation of an answer that breaks."""
