"""Google: Gemini models behind `streamGenerateContent`."""
