"""AssemblyAI: streaming STT."""
