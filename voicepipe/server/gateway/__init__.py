"""The model endpoints: chat completions, speech and transcriptions, with their limits."""
