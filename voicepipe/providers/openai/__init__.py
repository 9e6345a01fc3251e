"""OpenAI, and the servers that speak its HTTP and its Realtime transcription."""
